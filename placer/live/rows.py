"""The rows of nodes for the live page: each encoded once, and kept until a report or a booking changes its node.

What always holds: every change of a node gives it a greater number. So a reader remembers one number, and asks for
the nodes that changed since then, however long it was away.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.core.booking import Booking
from placer.core.room import Room
from placer.decide import Decider
from placer.live.pods import PodName
from plimsoll.events import Gpu, NodeState, Task
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import LiveGpu, LiveNode, LostGpu, Sharer

SHARERS_SHOWN: Final = 64
"""The most pods of one GPU in a row: twice the sharers that a GPU may have by default."""

NOT_REPORTED: Final = "no report names it"
"""The reason of a GPU that pods have, and of which nothing else is known."""

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    body: bytes


class LiveRows:
    """The rows of all nodes that report, or have pods. Not thread-safe: one event loop owns it.

    Attributes:
        number: the number of the last change.
        removals: the number of times that a node went away.
        encoded: the number of rows that were encoded, for tests.
    """

    def __init__(self, decider: Decider, name_of: Callable[[PodUid], PodName | None]) -> None:
        """Keep the rows of a decider's nodes.

        Args:
            decider: has the reports and the promises.
            name_of: gives the name of a pod, or None.
        """
        self.number = self.removals = self.encoded = 0
        self._decider, self._name_of = decider, name_of
        self._changes: dict[NodeName, int] = {}  # the node that changed last comes last
        self._rows: dict[NodeName, _Row] = {}
        for node in {
            **dict.fromkeys(decider.reports),
            **{one.node: None for one in decider.ledger.bookings()},
        }:
            self._note(node)
        decider.reports.on_change(self._note)
        decider.ledger.on_change(lambda node, _: self._note(node))
        decider.pool.on_change(self._note)

    def __contains__(self, node: object) -> bool:
        return node in self._changes

    def __len__(self) -> int:
        return len(self._changes)

    def changed_since(self, number: int) -> list[NodeName]:
        """The nodes with a change after this number, in the order of their changes."""
        changed: list[NodeName] = []
        for node in reversed(self._changes):
            if self._changes[node] <= number:
                break
            changed.append(node)
        changed.reverse()
        return changed

    def row(self, node: NodeName) -> bytes | None:
        """A node's `LiveNode` in JSON; None for a node that neither reports nor has pods any more."""
        number, state = self._changes.get(node), self._decider.reports.get(node)
        if number is None:
            return None
        known = self._rows.get(node)
        if known is None or known.number != number:
            self.encoded += 1
            known = self._rows[node] = _Row(number, _ENCODER.encode(self._live(node, state)))
        return known.body

    def _note(self, node: NodeName) -> None:
        was_there = self._changes.pop(node, None) is not None
        if node in self._decider.reports or self._decider.ledger.gpus_on(node):
            self.number += 1
            self._changes[node] = self.number
        elif was_there:
            self._rows.pop(node, None)
            self.removals += 1

    def _live(self, node: NodeName, state: NodeState | None) -> LiveNode:
        if state is None:
            return LiveNode(node=node, time="", silent=True, gpus=(), lost=self._lost(node, (), frozenset()))
        rooms = {room.gpu.uuid: room for room in self._decider.candidates.rooms_of(state)}
        health = {one.gpu: one for one in state.health}
        pool = self._decider.pool
        schedulability = pool.schedulability(state.node)
        inside = pool.part(state.node).gpus if pool.is_on else None
        here = frozenset(gpu.uuid for gpu in state.gpus)
        return LiveNode(
            node=state.node,
            time=state.time,
            silent=state.node in self._decider.reports.silent,
            gpus=tuple(
                self._gpu(
                    state.node,
                    gpu,
                    rooms[gpu.uuid],
                    health.get(gpu.uuid),
                    is_outside=inside is not None and gpu.uuid not in inside,
                    is_cordoned=schedulability.has_cordoned(gpu.uuid, gpu.mig_parent),
                )
                for gpu in state.gpus
            ),
            lost=self._lost(node, state.health, here),
            unenforced_since=state.broker_away_since,
            closed=schedulability.closed,
            taints=schedulability.taints,
            stale_cordons=schedulability.stale_cordons(state),
        )

    def _lost(
        self, node: NodeName, health: Iterable[GpuHealth], here: frozenset[GpuUuid]
    ) -> tuple[LostGpu, ...]:
        """The GPUs that the report calls lost, and those of bookings that it does not name, with their pods."""
        known = {one.gpu: one for one in health if one.gpu not in here}
        booked = (gpu for gpu in self._decider.ledger.gpus_on(node) if gpu not in here)
        return tuple(self._lost_gpu(node, gpu, known.get(gpu)) for gpu in dict.fromkeys((*known, *booked)))

    def _lost_gpu(self, node: NodeName, gpu: GpuUuid, health: GpuHealth | None) -> LostGpu:
        sharers = [self._sharer(booking, gpu, []) for booking in self._decider.ledger.on_gpu(node, gpu)]
        sharers.sort(key=_largest_first)
        return LostGpu(
            uuid=gpu,
            index=health.index if health is not None else None,
            model=health.model if health is not None else "",
            reason=health.reason if health is not None else NOT_REPORTED,
            promised_bytes=sum(one.expected_bytes for one in sharers),
            promised_share_pct=sum(one.share_pct for one in sharers),
            pods=tuple(sharers[:SHARERS_SHOWN]),
            more_pods=max(len(sharers) - SHARERS_SHOWN, 0),
        )

    def _gpu(
        self,
        node: NodeName,
        gpu: Gpu,
        room: Room,
        health: GpuHealth | None,
        *,
        is_outside: bool,
        is_cordoned: bool,
    ) -> LiveGpu:
        tasks: dict[PodUid | None, list[Task]] = {}
        for task in gpu.tasks:
            tasks.setdefault(task.pod, []).append(task)
        bookings = self._decider.ledger.on_gpu(node, gpu.uuid)
        sharers = [self._sharer(booking, gpu.uuid, tasks.get(booking.pod, [])) for booking in bookings]
        sharers.sort(key=_largest_first)
        attributed = sum(one.used_bytes for one in sharers)
        grade = health.health if health is not None else HealthClass.HEALTHY
        return LiveGpu(
            uuid=gpu.uuid,
            index=gpu.index,
            model=gpu.model,
            usable_bytes=gpu.usable_bytes,
            line_bytes=int(gpu.usable_bytes * gpu.overcommit_ratio),
            used_bytes=gpu.used_bytes,
            promised_bytes=sum(one.expected_bytes for one in sharers),
            promised_share_pct=sum(one.share_pct for one in sharers),
            other_bytes=max(gpu.used_bytes - attributed, 0),
            free_bytes=room.free_bytes,
            idle_pct=gpu.idle_pct,
            health=grade,
            reason=health.reason if health is not None else "",
            mig=gpu.mig_parent is not None,
            labels=room.labels.words,
            closed=is_outside or is_cordoned or grade is HealthClass.FATAL,
            cordoned=is_cordoned,
            pods=tuple(sharers[:SHARERS_SHOWN]),
            more_pods=max(len(sharers) - SHARERS_SHOWN, 0),
        )

    def _sharer(self, booking: Booking, gpu: GpuUuid, tasks: list[Task]) -> Sharer:
        promise = self._decider.ledger.promise(booking, gpu)
        grants = [grant for grant in booking.grants if grant.gpu == gpu]
        name = self._name_of(booking.pod)
        phases: Mapping[str, int] = Counter(task.phase.value for task in tasks)
        return Sharer(
            pod=booking.pod,
            namespace=name.namespace if name is not None else "",
            name=name.name if name is not None else "",
            expected_bytes=promise.expected_bytes,
            declared=all(grant.memory_bytes is not None or grant.whole for grant in grants),
            share_pct=promise.share_pct,
            limit_pct=max(grant.limit_pct for grant in grants),
            whole=promise.whole,
            used_bytes=sum(task.used_bytes for task in tasks),
            phases=dict(phases),
            doubt=booking.doubt.reason if booking.doubt is not None else "",
        )


def _largest_first(one: Sharer) -> tuple[int, str, str, str]:
    return -one.expected_bytes, one.namespace, one.name, one.pod
