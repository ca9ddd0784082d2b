"""The queue of pods that wait for a node: active, backing off, or parked until something changes.

The rules are kube-scheduler's. Pods of higher priority go first, then older ones. After a failed attempt, a pod
waits 1 s, doubled with each attempt up to 10 s, so a pod that can never be placed does not starve the others. A pod
that fits nowhere is parked until a change in the cluster could help, or five minutes pass. Pure: `now_s` is any clock
that never goes back. What always holds: a pod is in one place only, and a change during an attempt is never lost.
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
    """All pods that wait for a node, with their attempts."""

    def __init__(self) -> None:
        self._entries: dict[PodUid, _Entry] = {}
        # Heaps may hold outdated items. An item counts only if its entry still has the same values.
        self._active: list[tuple[int, str, PodUid]] = []
        self._timed: list[tuple[float, PodUid]] = []
        # Kept apart, because reports wake often and nearly always no pod is parked. May hold outdated uids too.
        self._parked: set[PodUid] = set()
        self._changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def put(self, uid: PodUid, priority: int, created: str) -> None:
        """Add a pod, or note that it changed. The pod is tried as soon as no pod of higher rank waits.

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
            entry.seen_changes = -1  # the attempt under way reads an outdated pod
        else:
            self._activate(entry)

    def discard(self, uid: PodUid) -> None:
        """Remove a pod that is bound, gone, or no longer ours. An unknown pod is no error."""
        self._entries.pop(uid, None)

    def take(self, now_s: float) -> PodUid | None:
        """The pod to try now, or None. After the attempt call `discard`, `again`, `park` or `give_up`."""
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
        """Try a pod again after its backoff: the attempt failed for a reason that may pass by itself."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.failed_s = now_s
            self._wait(entry, _Place.BACKOFF, now_s + entry.backoff_s)

    def park(self, uid: PodUid, now_s: float) -> None:
        """Park a pod that fits nowhere until a `wake`; if one came during the attempt, for its backoff only."""
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
        """Stop trying a pod that only its own change can help: it is malformed, or asks for the impossible."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.seen_changes == -1:
            self._activate(entry)
        else:
            entry.place = _Place.HOPELESS

    def wake(self, now_s: float) -> None:
        """Try parked pods once their backoff is over: a change in the cluster may have made room."""
        self._changes += 1
        woken, self._parked = self._parked, set()
        for uid in woken:
            entry = self._entries.get(uid)
            if entry is not None and entry.place is _Place.PARKED:
                self._wait(entry, _Place.BACKOFF, max(now_s, entry.failed_s + entry.backoff_s))

    def due_s(self) -> float | None:
        """The next time at which a pod becomes active by itself, on the clock of `now_s`; None if there is none."""
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
