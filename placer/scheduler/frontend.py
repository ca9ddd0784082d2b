"""The scheduler of one cluster: the start of its parts, its loop, and its takeover from a leader before.

The loop tries one pod at a time (`attempts`) and binds many at once (`committer`); the `watches` feed its queue. What
always holds: nothing is decided before pods, nodes and reports were all read once, and before all that an earlier
leader wrote is known.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from placer.kube.parts import KubeParts
from placer.scheduler.binding.fence import take_over
from placer.scheduler.cache.comparer import CacheComparer
from plimsoll.events import NodeState
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation, noticed


async def _recall_nothing() -> None:
    """No placer has learned anything before."""


@dataclass(frozen=True, slots=True)
class KubeFrontEnd:
    """Places the pods of one cluster while `run` runs.

    Attributes:
        parts: all parts, wired together.
        reports_loaded: set once every node's last report was read (`Intake.ready`).
        recall: awaited before the first decision: reads what earlier placers learned. It must neither raise nor take
            long.
    """

    parts: KubeParts
    reports_loaded: asyncio.Event
    recall: Callable[[], Awaitable[None]] = _recall_nothing

    async def run(self) -> None:
        """Schedule until cancelled. Binds under way are abandoned then; the next start reads their results."""
        parts = self.parts
        unsubscribe = parts.decider.reports.on_report(self._observe)
        try:
            async with asyncio.TaskGroup() as group:
                parts.watches.start(group)
                _start(group, "record", parts.recorder.run)
                _start(group, "schedule", partial(self._schedule, group))
                _start(group, "explain refusals", parts.failures.run)
                _start(group, "renew the reasons of refusals", parts.renewal.run)
                _start(group, "preempt", parts.preempting.run)
                _start(group, "find stuck pods", parts.stuck.run)
                _start(group, "evict", parts.evictions.run)
                _start(group, "relocate", parts.relocating.run)
                _start(group, "release GPUs of the pool", parts.pool.run)
                _start(group, "carry out resizes", parts.tickets.run)
                _start(group, "read quotas", partial(parts.rules.run, parts.attempts.again))
                _start(group, "bind for kube-scheduler", parts.extender.binds.run)
        finally:
            unsubscribe()

    def _observe(self, state: NodeState) -> None:
        self.parts.cache.bookings.observe(state)
        self.parts.evictions.measure(state)

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        await self._read_everything(group)
        await self._begin_to_lead()
        parts = self.parts
        while True:
            pod = await parts.attempts.next()
            if parts.finishes:
                return
            placed = None if parts.committer.puts_off(pod) else parts.attempts.attempt(pod)
            heed_cancellation()  # a group that is ending takes no task
            if placed is not None:
                taken = await parts.committer.take(placed)
                group.create_task(parts.committer.commit(placed, taken), name=f"kube: bind {pod.uid}")
            await asyncio.sleep(0)  # a decision may await nothing, and a long queue must not block the loop

    async def _read_everything(self, group: asyncio.TaskGroup) -> None:
        """Return once all objects of the API server and all reports were read."""
        parts, decider = self.parts, self.parts.decider
        await parts.watches.until_synced()
        drift = CacheComparer(
            parts.transport, parts.cache, decider.ledger, decider.metrics, parts.options.drift_s
        )
        group.create_task(drift.run(), name="kube: compare the ledger")
        parts.synced.set()
        await self.reports_loaded.wait()
        for state in decider.reports.values():
            parts.cache.bookings.observe(state)
            decider.learn(state)

    async def _begin_to_lead(self) -> None:
        """Return once this placer is the one that places, and knows all that an earlier one wrote."""
        parts = self.parts
        if parts.lease is not None:
            await parts.lease.held.wait()
            await take_over(parts.writes, parts.scopes, parts.watches.pods.catch_up, self._without_node)
        await self.recall()
        await parts.relocating.restore()
        parts.cache.bookings.decides = True
        parts.nominating.check_all()
        gc.freeze()  # the objects of a whole cluster live long, and the collector need not walk them again
        parts.leads.set()

    def _without_node(self) -> tuple[Pod, ...]:
        return (*(one.pod for one in self.parts.queue), *self.parts.outside)


def _start(group: asyncio.TaskGroup, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    group.create_task(noticed(f"kube front end's task `{name}`", work), name=f"kube: {name}")
