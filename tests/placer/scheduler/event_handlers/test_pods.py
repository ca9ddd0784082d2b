"""Pods that the watch shows, in the queue."""

import msgspec

from placer.scheduler.queue.states import QueueState
from plimsoll.contract import DECISION
from plimsoll.kube.models import PodCondition
from tests.logs import capture_logs
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import scene


async def test_refusals_by_the_leader_reach_a_follower_by_the_condition() -> None:
    """A pod that another placer refused is not fresh here any more, and one without that condition stays fresh."""
    async with scene() as made:
        for name in ("refused", "new"):
            made.show(made.pod(name, {MEMORY: "1Gi"}))
        assert made.queue.counts[QueueState.NEVER_TRIED] == 2
        pod = made.pods["refused"]
        condition = PodCondition(
            "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes are available."
        )
        made.show(
            msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[condition]))
        )
        assert made.queue.counts[QueueState.NEVER_TRIED] == 1
        assert made.queue.counts[QueueState.TRIED] == 1


async def test_a_pod_that_another_placer_bound_is_said_loudly_by_the_placer_that_leads() -> None:
    """Two placers with two Leases would promise the same room twice; binds of its own are none of another's."""
    async with scene() as made:
        made.node("n1")
        made.report("n1", 24)
        rivals = made.decider.metrics.lease.rival_binds._value
        made.parts.context.leads.set()
        made.show(made.pod("own", {MEMORY: "1Gi"}))
        await made.settle()
        assert made.is_placed("own")
        assert rivals.get() == 0
        pod = made.pod("taken", {MEMORY: "1Gi"})
        made.show(pod)
        metadata = msgspec.structs.replace(
            pod.metadata, annotations=dict(made.pods["own"].metadata.annotations or {})
        )
        bound = msgspec.structs.replace(pod.spec, nodeName="n1")
        with capture_logs() as logged:
            made.show(msgspec.structs.replace(pod, metadata=metadata, spec=bound))
        assert rivals.get() == 1
        [line] = [one for one in logged if one["log_level"] == "error"]
        assert line["pod"] == "default/taken"
        assert "PLIMSOLL_LEASE_NAMESPACE" in line["remedy"]


async def test_a_follower_says_nothing_of_the_leaders_binds() -> None:
    """While another placer leads by the same Lease, its binds are as they should be."""
    async with scene() as made:
        pod = made.pod("p", {MEMORY: "1Gi"}, annotations={})
        made.show(pod)
        metadata = msgspec.structs.replace(pod.metadata, annotations={DECISION: "{}"})
        bound = msgspec.structs.replace(pod.spec, nodeName="n1")
        made.show(msgspec.structs.replace(pod, metadata=metadata, spec=bound))
        assert made.decider.metrics.lease.rival_binds._value.get() == 0
