"""Finds pods that do not end although their grace periods are long over, as a finalizer or a dead node may have it.

What always holds: no nominated pod waits for such a pod for ever, and no such pod is a victim again until it is gone.
The time is that of the API server's own record, `metadata.deletionTimestamp`. So a new leader goes on where the last
one was.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn

from placer.scheduler.preemption.nominated_pods import NominatedPods
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

CHECK_S: Final = 5.0
"""The pause between two looks at the pods that end, in seconds."""

OnGivenUp = Callable[[Pod, NodeName, list[Pod]], None]
"""Called with a pod whose nomination ended, its node, and the pods there that do not end."""


@dataclass(frozen=True, slots=True)
class StuckPods:
    """Finds stuck pods while `run` does.

    Attributes:
        nominated: has the nominations, and must not wait for these pods.
        after_s: the time after the end of its grace period for which a pod is awaited, in seconds.
        clock: the wall clock in UTC.
        on_given_up: see `OnGivenUp`.
    """

    nominated: NominatedPods
    after_s: float
    clock: Callable[[], datetime]
    on_given_up: OnGivenUp

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        await self.nominated.leads.wait()
        while True:
            heed_cancellation()
            await asyncio.sleep(CHECK_S)  # no event reports that time has passed
            self.look()

    def look(self) -> None:
        """Look once at the pods on the nodes of nominations."""
        cache, stuck = self.nominated.scheduling.cache, self.nominated.stuck
        due_s = self.clock().timestamp() - self.after_s
        stuck.intersection_update([uid for uid in stuck if cache.assigned.find(uid) is not None])
        for node in cache.nominator.nodes():
            found = [
                one
                for one in cache.assigned.on(node)
                if one.uid not in stuck and one.should_have_ended(due_s)
            ]
            if found:
                stuck.update(one.uid for one in found)
                self._give_up(node, [one.pod for one in found])

    def _give_up(self, node: NodeName, pods: list[Pod]) -> None:
        """End the nominations for a node that need the room of pods which do not end."""
        nominator = self.nominated.scheduling.cache.nominator
        before = nominator.on(node)
        self.nominated.check(node)
        for own in before:
            if nominator.find(own.uid) is None and own.is_ours:
                names = [one.full_name for one in pods]
                get_logger().warning("nomination given up", pod=own.pod.full_name, node=node, stuck=names)
                self.on_given_up(own.pod, node, pods)
