"""Searches for the fewest moves that give a waiting pod a place, so that each moved pod has one too.

Kang et al. (ICOIN 2024, §IV) name relocation "based on the status of GPU memory I/O operations of other pods sharing
the GPU" as future work, without a method. The order among plans is ours: fewest moves, then least cost, then least
traffic. Traffic is the bandwidth used on the GPUs that moved pods go to, less that on the GPUs that they leave. So
pods leave busy neighbours rather than quiet ones, and go to quiet ones. The waiting pod's own place does not count.

The number of moves and their cost are the least there are, as long as the search stays within its trials. Traffic is
weighed pod by pod: each moved pod takes the quietest GPU that leaves the others a place. What always holds: in a plan
all pods have room at the same time, no pod moves that the snapshot does not offer, and the same snapshot gives the
same plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from placer.core.booking import Booking
from placer.core.relocation.plan import EvictablePod, Move, Relocation, Snapshot, Spot, Steps
from plimsoll.ids import PodUid

MOST_MOVES: Final = 3
"""A plan with more moves disturbs more than it is worth. The time to find it grows with a power of this number."""
MOST_TRIALS: Final = 5000
"""The trials of one search, some 0.1 ms each. Beyond them the best plan so far counts."""

_Key = tuple[int, float, float, tuple[tuple[str, str, tuple[str, ...]], ...]]


class _ExhaustedError(Exception):
    """The search has used up its trials."""


@dataclass(frozen=True, slots=True)
class _State:
    """A part of a plan: the pods without a place, the pods that have left theirs, and the places given so far."""

    pending: tuple[PodUid, ...]
    gone: tuple[EvictablePod, ...] = ()
    placed: tuple[Booking, ...] = ()

    @property
    def cost(self) -> float:
        return sum(one.cost for one in self.gone)

    def without(self, group: tuple[EvictablePod, ...]) -> "_State":
        return replace(self, gone=(*self.gone, *group))

    def settled(self, place: Booking, group: tuple[EvictablePod, ...] = ()) -> "_State":
        """The first pending pod has a place, for which a group of pods leaves."""
        left = (*self.pending[1:], *(one.pod for one in group))
        return _State(left, (*self.gone, *group), (*self.placed, place))


@dataclass(slots=True)
class _Search:
    """A search for plans of this many moves."""

    snapshot: Snapshot
    moves: int
    trials: int
    best: Relocation | None = None
    known: dict[object, Booking | None] = field(default_factory=dict)

    def fill(self, state: _State) -> Steps[int | None]:
        """Give all pending pods a place; returns the further moves that this takes at least, or None."""
        if not state.pending:
            self._note(state)
            return 0
        fewest: int | None = None
        for spot in self._quietest_first(state):
            place = yield from self._try(spot, state)
            if place is not None:
                fewest = _least(fewest, (yield from self.fill(state.settled(place))))
                if fewest == 0:
                    return 0  # to move more pods only costs more
        if len(state.gone) < self.moves:
            for spot in self.snapshot.hosts(state.pending[0]):
                fewest = _least(fewest, (yield from self._clear(spot, state)))
        return fewest

    def _clear(self, spot: Spot, state: _State) -> Steps[int | None]:
        """Let further pods leave a spot for the first pending pod: each group of pods that must all leave."""
        left = {one.pod for one in state.gone}
        offered = tuple(one for one in self.snapshot.evictable(state.pending[0], spot) if one.pod not in left)
        if not offered or (yield from self._try(spot, state.without(offered))) is None:
            return None
        enough: list[frozenset[PodUid]] = []
        fewest: int | None = None
        for group in self._groups(offered, self.moves - len(left)):
            pods = frozenset(one.pod for one in group)
            if any(smaller <= pods for smaller in enough) or self._costs_more(state, group):
                continue
            place = yield from self._try(spot, state.without(group))
            if place is not None:
                enough.append(pods)
                further = yield from self.fill(state.settled(place, group))
                fewest = _least(fewest, None if further is None else further + len(group))
        return fewest

    def _groups(self, offered: tuple[EvictablePod, ...], most: int) -> Iterator[tuple[EvictablePod, ...]]:
        for size in range(1, most + 1):
            yield from combinations(offered, size)

    def _costs_more(self, state: _State, group: tuple[EvictablePod, ...]) -> bool:
        return self.best is not None and state.without(group).cost > self.best.cost

    def _quietest_first(self, state: _State) -> list[Spot]:
        """The spots for the first pending pod, those that pods have left too."""
        spots = self.snapshot.spots(state.pending[0])
        if not state.placed:
            return list(spots)
        left = (Spot(one.node, gpu) for one in state.gone for gpu in sorted(one.gpus))
        every = dict.fromkeys((*spots, *left)) if all(spot.gpu for spot in spots) else spots
        return sorted(every, key=lambda spot: self.snapshot.traffic_pct(*spot) if spot.gpu else 0.0)

    def _try(self, spot: Spot, state: _State) -> Steps[Booking | None]:
        """The place of the first pending pod at a spot. Equal questions are asked once."""
        pod = state.pending[0]
        gone = frozenset(one.pod for one in state.gone if one.node == spot.node)
        there = tuple(one for one in state.placed if one.node == spot.node)
        key = (pod, spot, gone, there)
        if key not in self.known:
            if self.trials <= 0:
                raise _ExhaustedError
            self.trials -= 1
            self.known[key] = self.snapshot.place(pod, spot, gone, there)
            yield
        return self.known[key]

    def _note(self, state: _State) -> None:
        """Keep a plan if it is the best so far."""
        # Pods get their places in the order in which they left.
        moves = tuple(Move(one, to) for one, to in zip(state.gone, state.placed[1:], strict=True))
        found = Relocation(state.placed[0], moves, self._traffic_pct(state))
        if self.best is None or _key(found) < _key(self.best):
            self.best = found

    def _traffic_pct(self, state: _State) -> float:
        traffic_pct = self.snapshot.traffic_pct
        to = {(one.pod, one.node, grant.gpu) for one in state.placed[1:] for grant in one.grants}
        reached = sum(traffic_pct(node, gpu) for _, node, gpu in sorted(to))
        return reached - sum(traffic_pct(one.node, gpu) for one in state.gone for gpu in sorted(one.gpus))


def search(
    snapshot: Snapshot, pod: PodUid, most_moves: int = MOST_MOVES, most_trials: int = MOST_TRIALS
) -> Steps[Relocation | None]:
    """The best plan for a waiting pod; None if there is none, or none was found within the trials.

    Args:
        snapshot: the cluster.
        pod: the waiting pod.
        most_moves: 1 or more.
        most_trials: the most trials of all steps together.
    """
    known: dict[object, Booking | None] = {}
    for moves in range(1, most_moves + 1):
        searching = _Search(snapshot, moves, most_trials, known=known)
        try:
            yield from searching.fill(_State((pod,)))
        except _ExhaustedError:
            return searching.best
        if searching.best is not None:
            return searching.best
        most_trials = searching.trials
    return None


def confirmed(snapshot: Snapshot, pod: PodUid, found: Relocation) -> Relocation | None:
    """The same plan by all that the snapshot shows now; None if a pod has no place any more."""
    gone = [one.evicted for one in found.moves]
    placed: list[Booking] = []
    for uid, to in ((pod, found.place), *((one.evicted.pod, one.to) for one in found.moves)):
        gpus = {grant.gpu for grant in to.grants}
        spot = Spot(to.node, next(iter(gpus)) if len(gpus) == 1 else None)
        left = frozenset(one.pod for one in gone if one.node == to.node)
        place = snapshot.place(uid, spot, left, [one for one in placed if one.node == to.node])
        if place is None:
            return None
        placed.append(place)
    moves = tuple(Move(one, to) for one, to in zip(gone, placed[1:], strict=True))
    return replace(found, place=placed[0], moves=moves)


def result(steps: Steps[Relocation | None]) -> Relocation | None:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Relocation | None = end.value
            return found


def _least(one: int | None, other: int | None) -> int | None:
    return min((count for count in (one, other) if count is not None), default=None)


def _key(one: Relocation) -> _Key:
    """The order of plans, total: equal keys mean equal plans."""
    names = (
        (place.pod, place.node, tuple(sorted({grant.gpu for grant in place.grants})))
        for place in (one.place, *(move.to for move in one.moves))
    )
    return len(one.moves), one.cost, one.traffic_pct, tuple(sorted(names))
