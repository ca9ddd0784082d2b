"""The kinds of the pods that fit nowhere, and the pod that stands for each kind: its first member by rank.

Pure. What always holds: a pod is a member of its kind while it is parked with it.
"""

from collections.abc import Hashable, Iterator, Mapping

from placer.scheduler.queue.heap import Heap
from placer.scheduler.queue.lanes import QueuedPod, QueuePlace
from placer.scheduler.queue.parking import PodKind, Rank
from plimsoll.ids import PodUid


class PodKinds:
    """The kinds that have a parked pod, or one that is tried for the others.

    Args:
        entries: the pods of the queue; the queue changes them.
    """

    def __init__(self, entries: Mapping[PodUid, QueuedPod]) -> None:
        self._entries = entries
        self._kinds: dict[Hashable, PodKind] = {}

    def __iter__(self) -> Iterator[PodKind]:
        return iter(self._kinds.values())

    def get(self, key: Hashable) -> PodKind | None:
        """The kind with this key; None if it has no pod."""
        return self._kinds.get(key)

    def add(self, kind: PodKind) -> PodKind:
        """Add a kind; returns it."""
        kind.members = Heap(lambda rank: self._is_member(rank, kind))
        self._kinds[kind.key] = kind
        return kind

    def remove(self, kind: PodKind) -> None:
        """Remove a kind that has no pod any more."""
        del self._kinds[kind.key]

    def waiting(self) -> tuple[Hashable, ...]:
        """The kinds with a pod that waits for the kind's next try."""
        return tuple(key for key, kind in self._kinds.items() if kind.waiting)

    def members(self, kind: Hashable) -> tuple[PodUid, ...]:
        """The parked pods of a kind."""
        known = self._kinds.get(kind)
        return tuple(uid for _, _, uid in known.members.in_order()) if known is not None else ()

    def is_parked(self, uid: PodUid, kind: Hashable) -> bool:
        """Whether a pod is parked with this kind."""
        entry = self._entries.get(uid)
        if entry is None or entry.kind is None or entry.place is not QueuePlace.PARKED:
            return False
        return entry.kind.key == kind

    def best_member(self, kind: PodKind) -> QueuedPod | None:
        """The first parked pod of a kind; None if none is parked."""
        rank = kind.members.head()
        return None if rank is None else self._entries[rank[2]]

    def _is_member(self, rank: Rank, kind: PodKind) -> bool:
        entry = self._entries.get(rank[2])
        return (
            entry is not None
            and entry.kind is kind
            and entry.place is QueuePlace.PARKED
            and entry.rank == rank
        )

    def rank_of(self, kind: PodKind) -> Rank:
        """The rank of the first pod of a kind that has a parked pod."""
        entry = self.best_member(kind)
        assert entry is not None, "a parked kind has a member"
        return entry.rank
