"""The kinds of pods that fit nowhere, and the probes that a change of a node asks for.

Pods of one kind share a refusal, and wait together. What always holds: a parked kind that a gain concerns is either
probed on that node, or woken. Pure.
"""

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from placer.core.reasons import Reason
from placer.scheduler.queue.heap import Heap
from placer.scheduler.queue.hints import EVERYTHING, Cause, Gain
from plimsoll.ids import NodeName, PodUid

Rank = tuple[int, int, PodUid]
"""The order of pods, the least first."""

PROBES_AT_MOST: Final = 16
"""Nodes on which a kind may have to be probed. With more, the kind is woken: one decision costs less then."""


@dataclass(frozen=True, slots=True)
class KindRefusal:
    """The refusal that the pods of a kind share.

    Attributes:
        note: the text for people.
        causes: see `placer.scheduler.queue.hints.causes_of`.
        ask_bytes: see `placer.scheduler.queue.hints.largest_ask`; a percentage where the causes have `PERCENTAGE`.
        reasons: all reasons in the note.
        priority: that of the kind's pods; None if they may not preempt.
        topics: the changes that may lift `Cause.RULES`, see `PodTopology.on_change`; None: any of them may.
    """

    note: str = ""
    causes: Cause = EVERYTHING
    ask_bytes: int = 0
    reasons: frozenset[str] = frozenset()
    priority: int | None = None
    topics: frozenset[Hashable] | None = None


@dataclass(slots=True, eq=False)
class PodKind:
    """Pods that get the same answer.

    Attributes:
        number: the kind's own, for an order among equals.
        refusal: the refusal that was given last.
        members: the pods that wait for the kind's next try, by rank; `PodKinds` knows which.
        waiting: the number of these pods.
        front: the pod that is tried for all of them, or None.
        parked: the refusal is in force.
        woken: a change may have lifted it, so it is tried again at `due_s`, and not shared until then.
        refusals: the number of refusals since a pod of the kind was placed.
        refused_s: the time of the last refusal.
        due_s: the time of the next try, while there is no front.
        unprobed: nodes that changed since the refusal, in ways that may lift its causes.
    """

    key: Hashable
    number: int
    refusal: KindRefusal = KindRefusal()
    members: Heap[Rank] = field(default_factory=lambda: Heap(lambda _: False))
    waiting: int = 0
    front: PodUid | None = None
    parked: bool = False
    woken: bool = False
    refusals: int = 0
    refused_s: float = 0.0
    due_s: float = 0.0
    unprobed: set[NodeName] = field(default_factory=set)

    @property
    def is_refused(self) -> bool:
        """Whether the refusal is in force, and no change may have lifted it."""
        return self.parked and not self.woken and not self.unprobed


class Parking:
    """All parked kinds, by cause and by the bytes that they ask for.

    Args:
        rank_of: the rank of the first pod of a parked kind, now.
    """

    def __init__(self, rank_of: Callable[[PodKind], Rank]) -> None:
        self._rank_of = rank_of
        self._by_cause: dict[Cause, list[tuple[int, int, PodKind]]] = {cause: [] for cause in Cause}
        # Heaps, the first rank first; they may hold outdated items.
        self._probes: dict[NodeName, list[tuple[Rank, int, PodKind]]] = {}
        self._planned = 0
        self._parked = 0
        self._preemptors: Counter[int] = Counter()  # parked kinds that may preempt, by priority

    def __len__(self) -> int:
        return self._parked

    @property
    def has_probes(self) -> bool:
        """Whether a kind is to be probed on a node."""
        return self._planned > 0

    @property
    def highest(self) -> int | None:
        """The highest priority of a parked kind that may preempt; None if none may."""
        return max(self._preemptors, default=None)

    def park(self, kind: PodKind, refusal: KindRefusal) -> None:
        """Put a refusal in force; it knows every change so far."""
        self.leave(kind)
        kind.parked, kind.woken, kind.refusal = True, False, refusal
        self._parked += 1
        if refusal.priority is not None:
            self._preemptors[refusal.priority] += 1
        self._index(kind)

    def leave(self, kind: PodKind) -> None:
        """End a kind's refusal, if one is in force."""
        if not kind.parked:
            return
        kind.parked = kind.woken = False
        self._parked -= 1
        priority = kind.refusal.priority
        if priority is not None:
            self._preemptors[priority] -= 1
            self._preemptors += Counter()  # drops those that are 0
        self._planned -= len(kind.unprobed)
        kind.unprobed.clear()
        for cause in kind.refusal.causes:
            items = self._by_cause[cause]
            del items[bisect.bisect_left(items, (kind.refusal.ask_bytes, kind.number))]

    def note(self, node: NodeName, gain: Gain) -> list[PodKind]:
        """Plan the probes for a node's gain.

        Returns:
            The kinds to be woken: those that have too many probes, and those that ask for more than new GPUs have and
            whose refusal does not say so yet. Pods of the second sort need no probe, and the next new GPU does not
            wake them.
        """
        woken = self._outdated(gain)
        for kind in tuple(self._concerned(gain)):
            if node in kind.unprobed:
                continue
            if len(kind.unprobed) == PROBES_AT_MOST:
                woken.append(kind)
                continue
            kind.unprobed.add(node)
            self._planned += 1
            self._plan(kind, node)
        return woken

    def next_probe(self) -> tuple[PodKind, NodeName] | None:
        """The probe to do next: those of the node that changed first, the kind with the first rank first."""
        while self._probes:
            node, items = next(iter(self._probes.items()))
            while items:
                rank, _, kind = items[0]
                is_planned = node in kind.unprobed
                if is_planned and rank == self._rank_of(kind):
                    return kind, node
                heapq.heappop(items)
                if is_planned:  # its first pod is gone; no pod joins a kind that is to be probed
                    self._plan(kind, node)
            del self._probes[node]
        return None

    def probed(self, kind: PodKind, node: NodeName, causes: Cause) -> bool:
        """Note a probe and the causes that it found. Returns False if the probe is not asked for any more."""
        if node not in kind.unprobed:
            return False
        kind.unprobed.discard(node)
        self._planned -= 1
        if Cause.RULES in causes:  # maybe by rules that came after the refusal
            kind.refusal = replace(kind.refusal, topics=None)
        more = causes & ~kind.refusal.causes
        if more:
            kind.refusal = replace(kind.refusal, causes=kind.refusal.causes | causes)
            self._index(kind, more)
        return True

    def with_cause(self, causes: Cause) -> tuple[PodKind, ...]:
        """The parked kinds that have one of these causes."""
        found = {kind: None for cause in causes for _, _, kind in self._by_cause[cause]}
        return tuple(found)

    def waiting_for(self, topics: Collection[Hashable]) -> tuple[PodKind, ...]:
        """The parked kinds that rules keep out, and that a change of these topics may help."""
        found = (kind for _, _, kind in self._by_cause[Cause.RULES])
        return tuple(
            kind
            for kind in found
            if kind.refusal.topics is None or not kind.refusal.topics.isdisjoint(topics)
        )

    def _index(self, kind: PodKind, causes: Cause | None = None) -> None:
        for cause in kind.refusal.causes if causes is None else causes:
            bisect.insort(self._by_cause[cause], (kind.refusal.ask_bytes, kind.number, kind))

    def _plan(self, kind: PodKind, node: NodeName) -> None:
        heapq.heappush(self._probes.setdefault(node, []), (self._rank_of(kind), kind.number, kind))

    def _outdated(self, gain: Gain) -> list[PodKind]:
        """The kinds that new GPUs are too small for, although no refusal of theirs has named memory so far."""
        if Cause.GPUS not in gain.causes or not gain.best_bytes:
            return []
        items = self._by_cause[Cause.GPUS]
        larger = items[bisect.bisect_left(items, (gain.best_bytes + 1,)) :]
        return [kind for _, _, kind in larger if Reason.GPU_MEMORY.value not in kind.refusal.reasons]

    def _concerned(self, gain: Gain) -> Iterator[PodKind]:
        for cause in gain.causes:
            items = self._by_cause[cause]
            above, up_to = -1, gain.best_bytes
            if cause is Cause.MEMORY:
                above, up_to = gain.above_bytes, min(gain.best_bytes, gain.up_to_bytes)
            elif cause is Cause.PERCENTAGE:
                above, up_to = gain.above_pct, gain.up_to_pct if gain.best_bytes else 0
            start = bisect.bisect_left(items, (above + 1,))
            for item in items[start : bisect.bisect_left(items, (up_to + 1,))]:
                yield item[2]
            if gain.above_priority is not None:
                for _, _, kind in items[: bisect.bisect_left(items, (gain.preempt_bytes + 1,))]:
                    if kind.refusal.priority is not None and kind.refusal.priority > gain.above_priority:
                        yield kind
