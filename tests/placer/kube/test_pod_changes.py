"""Pods that the watch shows, in the queue."""

import msgspec

from placer.kube.queue.lanes import QueuePlace
from plimsoll.kube.models import PodCondition
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import scene


async def test_refusals_by_the_leader_reach_a_follower_by_the_condition() -> None:
    """A pod that another placer refused is not fresh here any more, and one without that condition stays fresh."""
    async with scene() as made:
        for name in ("refused", "new"):
            made.show(made.pod(name, {MEMORY: "1Gi"}))
        assert made.queue.counts[QueuePlace.FRESH] == 2
        pod = made.pods["refused"]
        condition = PodCondition(
            "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes are available."
        )
        made.show(
            msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[condition]))
        )
        assert made.queue.counts[QueuePlace.FRESH] == 1
        assert made.queue.counts[QueuePlace.RETRY] == 1
