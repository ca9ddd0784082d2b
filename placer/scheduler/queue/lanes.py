"""The pods of the queue, the lanes of those that may be tried now, and the timers of those that wait for a time."""

import enum
from dataclasses import dataclass
from itertools import islice
from typing import Final

from placer.scheduler.queue.heap import Heap
from placer.scheduler.queue.parking import PodKind, Rank
from plimsoll.ids import PodUid

FIRST_BACKOFF_S: Final = 1.0
LONGEST_BACKOFF_S: Final = 10.0


class QueuePlace(enum.Enum):
    """The place of a pod in the queue."""

    FRESH = "fresh"
    RETRY = "retry"
    TAKEN = "deciding"
    PLACED = "binding"
    BACKOFF = "backoff"
    PARKED = "parked"
    GIVEN_UP = "given_up"  # only a change of the pod itself can help


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue.

    Attributes:
        uid: the pod.
        priority: `spec.priority`; higher goes first.
        number: the order of entry; a pod that comes back gets a new one.
        place: where the pod is.
        kind: the kind with which it is parked, or for which it is tried.
        attempts: the number of its attempts.
        ready_s: in `FRESH` and `RETRY`, the time at which the pod came to its lane.
        due_s: in `BACKOFF`, the time at which the pod becomes active by itself.
        is_outdated: in `TAKEN` and `PLACED`, whether the pod has changed since its attempt began.
    """

    uid: PodUid
    priority: int
    number: int
    place: QueuePlace = QueuePlace.FRESH
    kind: PodKind | None = None
    attempts: int = 0
    ready_s: float = 0.0
    due_s: float = 0.0
    is_outdated: bool = False

    @property
    def rank(self) -> Rank:
        """The pod's place in any order of pods."""
        return (-self.priority, self.number, self.uid)


class Lane:
    """Active pods by rank."""

    def __init__(self, place: QueuePlace, entries: dict[PodUid, QueuedPod]) -> None:
        self._place = place
        self._entries = entries
        self._heap: Heap[Rank] = Heap(self._is_current)

    def __len__(self) -> int:
        """The number of items that are kept, outdated ones included."""
        return len(self._heap)

    def push(self, entry: QueuedPod) -> None:
        """Add a pod that is in this lane's place, or whose rank changed."""
        self._heap.push(entry.rank)

    def head(self) -> QueuedPod | None:
        """The first pod, which stays; None if there is none."""
        rank = self._heap.head()
        return None if rank is None else self._entries[rank[2]]

    def first(self, most: int) -> list[PodUid]:
        """The first `most` pods by rank."""
        return [uid for _, _, uid in islice(self._heap.in_order(), most)]

    def _is_current(self, rank: Rank) -> bool:
        entry = self._entries.get(rank[2])
        return entry is not None and entry.place is self._place and entry.rank == rank


_Timer = tuple[float, int, QueuedPod | PodKind]


class Timers:
    """The pods that back off and the parked kinds, by the time at which each is tried again."""

    def __init__(self) -> None:
        self._timed: Heap[_Timer] = Heap(_is_due)
        self._numbers = 0

    def __len__(self) -> int:
        """The number of items that are kept, outdated ones included."""
        return len(self._timed)

    def set(self, thing: QueuedPod | PodKind) -> None:
        """Let a pod or a kind come back at its `due_s`. An earlier timer of it is outdated once `due_s` differs."""
        self._numbers += 1
        self._timed.push((thing.due_s, self._numbers, thing))

    def due_s(self) -> float | None:
        """The next time at which a pod becomes active by itself, on the clock of `now_s`; None if there is none."""
        first = self._timed.head()
        return None if first is None else first[0]

    def pop(self) -> QueuedPod | PodKind:
        """Take the pod or the kind that is due next; `due_s` must not be None."""
        return self._timed.pop()[2]


def _is_due(timer: _Timer) -> bool:
    """Whether a pod or a kind still waits for its time."""
    due_s, _, thing = timer
    if isinstance(thing, PodKind):
        return thing.waiting > 0 and thing.front is None and thing.due_s == due_s
    return thing.place is QueuePlace.BACKOFF and thing.due_s == due_s


def backoff_s(attempts: int) -> float:
    """The pause after this many attempts, or refusals of a kind: 1 s, doubled with each, up to 10 s."""
    exponent = min(max(attempts - 1, 0), 10)  # far past the ceiling already
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**exponent)
