"""Tells the queue which changes of the cluster could help pods that fit nowhere.

Every change shows in one of two places, wherever it began: in the rooms of GPUs (`placer.core.candidates`), or in the
nodes apart from their GPUs (`placer.scheduler.cache.cache`). Both become cluster events
(`placer.scheduler.queue.queueing_hints`), of one node where the change is one's, else of any node.

What always holds: a decision, a probe and an explanation first compute the rooms that changed. So each of them reads
rooms whose every later rise is an event, and no rise is lost between a refusal and the moment when it is given.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from placer.core.room import Room
from placer.decide import Decider
from placer.scheduler.clock import loop_now_s
from placer.scheduler.profile import Profile
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queueing_hints import Cause, ClusterEvent, best_bytes, event_of_rooms
from plimsoll.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class ClusterEvents:
    """Passes changes on to the queue.

    Attributes:
        queue: the pods that wait.
        decider: the reports and the ledger, which give the rooms.
        profile: the nodes and their pods, and the rules about other pods.
    """

    queue: Queue
    decider: Decider
    profile: Profile

    def __post_init__(self) -> None:
        decider, ledger, work = self.decider, self.decider.ledger, self.queue.work
        # Rooms change with the ledger and the reports. `catch_up` computes them, once there is time.
        ledger.on_change(lambda *_: work.set())
        decider.reports.on_change(lambda _: work.set())
        decider.candidates.on_change(self._rooms_changed)
        self.profile.cache.on_gain(self._node_changed)
        # Changes that may help on any node.
        ledger.on_less_expected(lambda _: self.move_on(Cause.MEMORIES))
        ledger.on_name_freed(lambda: self.move_on(Cause.GPUS))
        ledger.owner_models.on_freed(lambda: self.move_on(Cause.GPUS))
        ledger.on_affinity_freed(lambda: self.move_on(Cause.LABELS))
        decider.pool.on_change(lambda _: self.move_on(Cause.POOL))
        self.profile.topology.on_change(lambda topics: self.move_on(Cause.RULES, topics))

    def catch_up(self) -> None:
        """Pass on the changes of rooms since the last search for candidates."""
        if len(self.queue.unschedulable):
            self.decider.candidates.refresh()

    def move_on(self, causes: Cause, topics: Collection[Hashable] | None = None) -> None:
        """Try the pods with one of these causes again: a change may have lifted it on any node."""
        if len(self.queue.unschedulable):
            self.queue.move_on(ClusterEvent(causes, topics=topics), loop_now_s())

    def _rooms_changed(
        self, node: NodeName, before: Mapping[GpuUuid, Room], after: Mapping[GpuUuid, Room]
    ) -> None:
        if len(self.queue.unschedulable):
            self._move_on_node(event_of_rooms(node, before, after), after.values())

    def _node_changed(self, node: NodeName | None, lifted: Cause) -> None:
        if node is None:
            self.move_on(lifted)
        elif lifted and len(self.queue.unschedulable):
            known = self.decider.candidates.find(node)
            rooms = known.rooms.values() if known is not None else ()
            self._move_on_node(ClusterEvent(lifted, node, best_bytes=best_bytes(rooms)), rooms)

    def _move_on_node(self, event: ClusterEvent, rooms: Iterable[Room]) -> None:
        """Pass on a change of one node, with the pods that could fit there where pods of lower priority end."""
        if not event.causes or event.node is None:
            return
        highest = self.queue.unschedulable.highest_preemptor
        lowest = self.profile.cache.assigned.lowest(event.node, highest) if highest is not None else None
        if lowest is not None:
            most_bytes = max((room.gpu.usable_bytes for room in rooms), default=0)
            event = replace(event, above_priority=lowest, preempt_bytes=most_bytes)
        self.queue.move_on(event, loop_now_s())
