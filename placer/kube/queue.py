"""Which pod is tried next, and when: active, backing off, or parked until something changes.

The rules are kube-scheduler's: higher priority first, then older; a pod that failed waits 1 s, doubled with each
attempt up to 10 s, so that one that can never be placed does not starve the others; one that fits nowhere is parked
until a change in the cluster could help it, or five minutes pass. Pure: `now_s` is any clock that never goes back.
What always holds: a pod is in one place only, and a change during an attempt is never lost.
"""

import enum
import heapq
from dataclasses import dataclass
from typing import Final

from plimsoll.ids import PodUid

FIRST_BACKOFF_S: Final = 1.0
LONGEST_BACKOFF_S: Final = 10.0
PARKED_AT_MOST_S: Final = 300.0
"""A parked pod is tried again after this long, in case a change was missed."""


class _Place(enum.Enum):
    ACTIVE = enum.auto()
    TAKEN = enum.auto()  # an attempt is under way
    BACKOFF = enum.auto()
    PARKED = enum.auto()
    HOPELESS = enum.auto()  # only a change of the pod itself can help


@dataclass(slots=True)
class _Entry:
    uid: PodUid
    priority: int
    created: str
    place: _Place = _Place.ACTIVE
    attempts: int = 0
    failed_s: float = 0.0
    due_s: float = 0.0  # in BACKOFF and PARKED: when it becomes active by itself
    seen_changes: int = 0

    @property
    def backoff_s(self) -> float:
        exponent = min(max(self.attempts - 1, 0), 10)  # far past the ceiling already
        return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**exponent)


class Queue:
    """All pods that wait for a node."""

    def __init__(self) -> None:
        self._entries: dict[PodUid, _Entry] = {}
        # Heaps may hold outdated items; an item counts only if its entry still says the same.
        self._active: list[tuple[int, str, PodUid]] = []
        self._timed: list[tuple[float, PodUid]] = []
        # Reports wake often, and nearly always nobody is parked. May hold outdated uids too.
        self._parked: set[PodUid] = set()
        self._changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def put(self, uid: PodUid, priority: int, created: str) -> None:
        """Add a pod, or tell that it was changed: it is tried as soon as nothing more urgent waits.

        Args:
            uid: the pod.
            priority: `spec.priority`; higher goes first.
            created: `metadata.creationTimestamp`; older goes first.
        """
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _Entry(uid, priority, created)
        entry.priority, entry.created = priority, created
        if entry.place is _Place.TAKEN:
            entry.seen_changes = -1  # what the attempt looked at is outdated
        else:
            self._activate(entry)

    def discard(self, uid: PodUid) -> None:
        """The pod waits no more: it is bound, gone, or not ours. One that is not here is no error."""
        self._entries.pop(uid, None)

    def take(self, now_s: float) -> PodUid | None:
        """The pod to try now, or None; afterwards tell its fate by `discard`, `again`, `park` or `give_up`."""
        self._ripen(now_s)
        while self._active:
            priority, created, uid = heapq.heappop(self._active)
            entry = self._entries.get(uid)
            if (
                entry is not None
                and entry.place is _Place.ACTIVE
                and _rank(entry) == (priority, created, uid)
            ):
                entry.place = _Place.TAKEN
                entry.attempts += 1
                entry.seen_changes = self._changes
                return uid
        return None

    def again(self, uid: PodUid, now_s: float) -> None:
        """The attempt failed for a reason that may pass by itself: try again after the pod's backoff."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.failed_s = now_s
            self._wait(entry, _Place.BACKOFF, now_s + entry.backoff_s)

    def park(self, uid: PodUid, now_s: float) -> None:
        """It fits nowhere: try again after a `wake`, and at once after its backoff if one came meanwhile."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.seen_changes != self._changes:
            self.again(uid, now_s)
            return
        entry.failed_s = now_s
        self._wait(entry, _Place.PARKED, now_s + PARKED_AT_MOST_S)
        self._parked.add(uid)

    def give_up(self, uid: PodUid) -> None:
        """Nothing but a change of the pod itself can help: it cannot be understood, or asks for the impossible."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.seen_changes == -1:
            self._activate(entry)
        else:
            entry.place = _Place.HOPELESS

    def wake(self, now_s: float) -> None:
        """Something in the cluster changed for the better: parked pods are tried once their backoff is over."""
        self._changes += 1
        woken, self._parked = self._parked, set()
        for uid in woken:
            entry = self._entries.get(uid)
            if entry is not None and entry.place is _Place.PARKED:
                self._wait(entry, _Place.BACKOFF, max(now_s, entry.failed_s + entry.backoff_s))

    def due_s(self) -> float | None:
        """When `take` could next give a pod that it does not give now, on the clock of `now_s`; None if never."""
        while self._timed and not self._is_current(*self._timed[0]):
            heapq.heappop(self._timed)
        return self._timed[0][0] if self._timed else None

    def _ripen(self, now_s: float) -> None:
        while (due_s := self.due_s()) is not None and due_s <= now_s:
            _, uid = heapq.heappop(self._timed)
            self._activate(self._entries[uid])

    def _activate(self, entry: _Entry) -> None:
        entry.place = _Place.ACTIVE
        heapq.heappush(self._active, _rank(entry))

    def _wait(self, entry: _Entry, place: _Place, due_s: float) -> None:
        entry.place, entry.due_s = place, due_s
        heapq.heappush(self._timed, (due_s, entry.uid))

    def _is_current(self, due_s: float, uid: PodUid) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.place in (_Place.BACKOFF, _Place.PARKED) and entry.due_s == due_s


def _rank(entry: _Entry) -> tuple[int, str, PodUid]:
    return (-entry.priority, entry.created, entry.uid)
