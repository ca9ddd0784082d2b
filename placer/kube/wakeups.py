"""Tells the queue which changes of the cluster could help pods that fit nowhere.

A change of one node becomes a gain (`placer.kube.hints`): the rooms on its GPUs are compared, before and after. A
change that may help on any node wakes all kinds with its cause. What always holds: no rooms are compared while no pod
could profit.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from placer.core.room import Room, room_on
from placer.core.view import NodeView
from placer.decide import Decider
from placer.kube.hints import EVERYTHING, Cause, Gain, best_bytes, gain_of_rooms
from placer.kube.queue import Queue
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class Wakeups:
    """Passes changes on to the queue.

    Attributes:
        queue: the pods that wait.
        decider: the reports and the ledger, which give the rooms.
        on_work: called when the queue may have work.
    """

    queue: Queue
    decider: Decider
    on_work: Callable[[], None]

    def reported(self, state: NodeState) -> None:
        """Compare a new report with the one that it replaced."""
        if not self.queue.heeds_changes:
            return
        before, after = self.decider.reports.replaced, self.decider.reports.view(state.node)
        if before is None or after is None or before.is_silent:
            self.gained(state.node, EVERYTHING)
            self.wake(
                Cause.GPUS
            )  # the refusals of these kinds may still name the missing report, or the silence
        elif self._teaches(before, after):
            # Less may be expected of the owner's pods than before, here and wherever they are or could go.
            self.gained(state.node, Cause.MEMORY | Cause.MEMORIES)
            self.wake(Cause.MEMORIES)
        elif _may_gain(before, after):
            self._note(state.node, gain_of_rooms(self._rooms(before), self._rooms(after)))

    def gained(self, node: NodeName, lifted: Cause) -> None:
        """Note that a change of a node may have lifted these causes, whatever its GPUs gave before."""
        if lifted and self.queue.heeds_changes:
            rooms = self._rooms(self.decider.reports.view(node))
            self._note(node, Gain(lifted, best_bytes(rooms.values())))

    @contextlib.contextmanager
    def noting(self, node: NodeName | None, lifted: Cause) -> Iterator[None]:
        """Compare a node's GPUs before and after a change of its pods, which may also lift these causes."""
        if node is None or not self.queue.heeds_changes:
            yield
            return
        view = self.decider.reports.view(node)
        before = self._rooms(view)
        yield
        gain = gain_of_rooms(before, self._rooms(view))
        self._note(node, replace(gain, causes=gain.causes | lifted))

    def wake(self, causes: Cause) -> None:
        """Try all kinds with one of these causes again: a change may have lifted it on any node."""
        self.queue.wake(causes, _now_s())
        self.on_work()

    def _note(self, node: NodeName, gain: Gain) -> None:
        if gain.causes:
            self.queue.gained(node, gain, _now_s())
            self.on_work()

    def _teaches(self, before: NodeView, after: NodeView) -> bool:
        """Whether a best-effort pod was measured for the first time, so that its owner's peak may be known now."""
        old = {pod for gpu in before.gpus for pod in gpu.measured_bytes}
        new = {pod for gpu in after.gpus for pod in gpu.measured_bytes} - old
        bookings = (self.decider.ledger.booking(pod) for pod in new)
        return any(
            grant.memory_bytes is None and not grant.whole
            for booking in bookings
            if booking is not None and booking.owner is not None
            for grant in booking.grants
        )

    def _rooms(self, view: NodeView | None) -> dict[GpuUuid, Room]:
        if view is None:
            return {}
        return {gpu.uuid: room_on(view.node, gpu, self.decider.ledger) for gpu in view.gpus}


def _may_gain(before: NodeView, after: NodeView) -> bool:
    """Whether a report differs in anything that the room on its GPUs follows from."""
    return len(before.gpus) != len(after.gpus) or any(
        replace(new, idle_pct=old.idle_pct) != old for old, new in zip(before.gpus, after.gpus, strict=True)
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
