"""The pods of the queue, the lanes of those that may be tried now, and the timers of those that wait for a time."""

import enum
import heapq
from dataclasses import dataclass
from typing import Final

from placer.kube.queue.parking import PodKind, Rank
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
    """Active pods by rank. The heap may hold outdated items."""

    def __init__(self, place: QueuePlace, entries: dict[PodUid, QueuedPod]) -> None:
        self._place = place
        self._entries = entries
        self._heap: list[Rank] = []

    def push(self, entry: QueuedPod) -> None:
        """Add a pod that is in this lane's place, or whose rank changed."""
        heapq.heappush(self._heap, entry.rank)

    def head(self) -> QueuedPod | None:
        """The first pod, which stays; None if there is none."""
        while self._heap:
            entry = self._entries.get(self._heap[0][2])
            if entry is not None and entry.place is self._place and entry.rank == self._heap[0]:
                return entry
            heapq.heappop(self._heap)
        return None

    def first(self, most: int) -> list[PodUid]:
        """The first `most` pods by rank. Outdated items count too."""
        found: list[PodUid] = []
        edge = [(self._heap[0], 0)] if self._heap else []
        while edge and len(found) < most:
            (_, _, uid), at = heapq.heappop(edge)
            found.append(uid)
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(self._heap):
                    heapq.heappush(edge, (self._heap[child], child))
        return found


class Timers:
    """The pods that back off and the parked kinds, by the time at which each is tried again."""

    def __init__(self) -> None:
        self._timed: list[tuple[float, int, QueuedPod | PodKind]] = []  # may hold outdated items
        self._numbers = 0

    def set(self, thing: QueuedPod | PodKind) -> None:
        """Let a pod or a kind come back at its `due_s`. An earlier timer of it is outdated once `due_s` differs."""
        self._numbers += 1
        heapq.heappush(self._timed, (thing.due_s, self._numbers, thing))

    def due_s(self) -> float | None:
        """The next time at which a pod becomes active by itself, on the clock of `now_s`; None if there is none."""
        while self._timed and not _is_due(self._timed[0][2], self._timed[0][0]):
            heapq.heappop(self._timed)
        return self._timed[0][0] if self._timed else None

    def pop(self) -> QueuedPod | PodKind:
        """Take the pod or the kind that is due next; `due_s` must not be None."""
        return heapq.heappop(self._timed)[2]


def _is_due(thing: QueuedPod | PodKind, due_s: float) -> bool:
    """Whether a pod or a kind still waits for this time."""
    if isinstance(thing, PodKind):
        return thing.waiting > 0 and thing.front is None and thing.due_s == due_s
    return thing.place is QueuePlace.BACKOFF and thing.due_s == due_s


def backoff_s(attempts: int) -> float:
    """The pause after this many attempts, or refusals of a kind: 1 s, doubled with each, up to 10 s."""
    exponent = min(max(attempts - 1, 0), 10)  # far past the ceiling already
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**exponent)
