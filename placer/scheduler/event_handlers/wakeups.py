"""Tells the queue which changes of the cluster could help pods that fit nowhere.

Every change shows in one of two places, wherever it began: in the rooms of GPUs (`placer.core.candidates`), or in the
nodes apart from their GPUs (`placer.scheduler.cache.cache`). A change of one node becomes a gain
(`placer.scheduler.queue.hints`). A change that may help on any node wakes all kinds with its cause.

What always holds: a decision, a probe and an explanation first compute the rooms that changed. So each of them reads
rooms whose every later rise is a gain, and no rise is lost between a refusal and its parking.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from placer.core.room import Room
from placer.decide import Decider
from placer.scheduler.clock import loop_now_s
from placer.scheduler.profile import Profile
from placer.scheduler.queue.hints import Cause, Gain, best_bytes, gain_of_rooms
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class Wakeups:
    """Passes changes on to the queue.

    Attributes:
        queue: the pods that wait.
        decider: the reports and the ledger, which give the rooms.
        profile: the nodes and their pods.
        on_work: called when the queue may have work, or `catch_up` something to do.
    """

    queue: Queue
    decider: Decider
    profile: Profile
    on_work: Callable[[], None]

    def __post_init__(self) -> None:
        self.decider.candidates.on_change(self._rooms_changed)
        self.decider.ledger.on_change(lambda *_: self.on_work())
        self.decider.ledger.on_less_expected(lambda _: self.wake(Cause.MEMORIES))
        self.decider.ledger.on_name_freed(lambda: self.wake(Cause.GPUS))
        self.decider.ledger.owner_models.on_freed(lambda: self.wake(Cause.GPUS))
        self.decider.ledger.on_affinity_freed(lambda: self.wake(Cause.LABELS))
        self.decider.pool.on_change(lambda _: self.wake(Cause.POOL))
        self.decider.reports.on_change(lambda _: self.on_work())
        self.profile.cache.on_gain(self._gained)
        self.profile.topology.on_change(self._rules_changed)

    def catch_up(self) -> None:
        """Pass on the changes of rooms since the last search for candidates."""
        if self.queue.heeds_changes:
            self.decider.candidates.refresh()

    def wake(self, causes: Cause) -> None:
        """Try all kinds with one of these causes again: a change may have lifted it on any node."""
        if self.queue.heeds_changes:
            self.queue.wake(causes, loop_now_s())
            self.on_work()

    def _rooms_changed(
        self, node: NodeName, before: Mapping[GpuUuid, Room], after: Mapping[GpuUuid, Room]
    ) -> None:
        if self.queue.heeds_changes:
            self._note(node, gain_of_rooms(before, after), after.values())

    def _gained(self, node: NodeName | None, lifted: Cause) -> None:
        if node is None:
            self.wake(lifted)
        elif lifted and self.queue.heeds_changes:
            known = self.decider.candidates.find(node)
            rooms = known.rooms.values() if known is not None else ()
            self._note(node, Gain(lifted, best_bytes(rooms)), rooms)

    def _rules_changed(self, topics: Collection[Hashable]) -> None:
        if self.queue.heeds_changes:
            self.queue.wake_for(topics, loop_now_s())
            self.on_work()

    def _note(self, node: NodeName, gain: Gain, rooms: Iterable[Room]) -> None:
        if gain.causes:
            self.queue.gained(node, self._with_preemption(node, gain, rooms), loop_now_s())
            self.on_work()

    def _with_preemption(self, node: NodeName, gain: Gain, rooms: Iterable[Room]) -> Gain:
        """The gain with the pods that do not fit now, and could where pods of lower priority end."""
        highest = self.queue.highest_preemptor
        lowest = self.profile.cache.assigned.lowest(node, highest) if highest is not None else None
        if lowest is None:
            return gain
        most_bytes = max((room.gpu.usable_bytes for room in rooms), default=0)
        return replace(gain, above_priority=lowest, preempt_bytes=most_bytes)
