"""The lifecycle of a placer in a cluster: the start of its parts, and its takeover from a leader before.

What always holds: nothing is decided before pods, nodes and reports were all read once, and before all that an
earlier leader wrote is known.
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
from plimsoll.part.ending import noticed


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
        core, controllers, doors = self.parts.core, self.parts.controllers, self.parts.doors
        unsubscribe = self.parts.context.decider.reports.on_report(self._observe)
        try:
            async with asyncio.TaskGroup() as group:
                self.parts.watches.start(group)
                _start(group, "record", core.results.recorder.run)
                _start(group, "schedule", partial(self._schedule, group))
                _start(group, "explain refusals", core.failures.run)
                _start(group, "renew the reasons of refusals", self.parts.renewal.run)
                _start(group, "preempt", core.preemption.run)
                _start(group, "find stuck pods", controllers.stuck.run)
                _start(group, "evict", controllers.evictions.run)
                _start(group, "relocate", controllers.relocator.run)
                _start(group, "release GPUs of the pool", controllers.pool.run)
                _start(group, "carry out resizes", doors.tickets.run)
                _start(group, "read quotas", partial(core.quotas.run, core.scheduler.activate))
                _start(group, "bind for kube-scheduler", doors.binds.run)
        finally:
            unsubscribe()

    def _observe(self, state: NodeState) -> None:
        self.parts.core.profile.cache.bookings.observe(state)
        self.parts.controllers.evictions.measure(state)

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        await self._read_everything(group)
        await self._begin_to_lead()
        await self.parts.core.scheduler.run(group)

    async def _read_everything(self, group: asyncio.TaskGroup) -> None:
        """Return once all objects of the API server and all reports were read."""
        context, cache, decider = (
            self.parts.context,
            self.parts.core.profile.cache,
            self.parts.context.decider,
        )
        await self.parts.watches.until_synced()
        comparer = CacheComparer(
            context.transport, cache, decider.ledger, context.metrics, context.options.drift_s
        )
        group.create_task(comparer.run(), name="kube: compare the ledger")
        self.parts.synced.set()
        await self.reports_loaded.wait()
        for state in decider.reports.values():
            cache.bookings.observe(state)
            decider.learn(state)

    async def _begin_to_lead(self) -> None:
        """Return once this placer is the one that places, and knows all that an earlier one wrote."""
        context, core, pods = self.parts.context, self.parts.core, self.parts.watches.pods
        if context.lease is not None:
            await context.lease.held.wait()
            await take_over(core.writes, core.scopes, pods.catch_up, self._without_node)
        await self.recall()
        await self.parts.controllers.relocator.restore()
        core.profile.cache.bookings.decides = True
        core.preemption.nominated.check_all()
        gc.freeze()  # the objects of a whole cluster live long, and the collector need not walk them again
        context.leads.set()
        for booking in context.decider.ledger.bookings():
            self.parts.report_unheld(booking)

    def _without_node(self) -> tuple[Pod, ...]:
        return (*(one.pod for one in self.parts.core.queue), *self.parts.doors.outside)


def _start(group: asyncio.TaskGroup, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    group.create_task(noticed(f"kube front end's task `{name}`", work), name=f"kube: {name}")
