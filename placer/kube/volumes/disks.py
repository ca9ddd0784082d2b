"""Disks that pods name in their own spec: two pods on one node share a disk only if both read.

Follows Kubernetes 1.36, plugin `volumerestrictions`. Pure.
"""

from collections import Counter
from collections.abc import Iterable

from placer.core.mounts import Disk

_Name = tuple[str, ...]


class Disks:
    """The disks of the pods on one node."""

    def __init__(self) -> None:
        self._mounts: Counter[_Name] = Counter()
        self._writers: Counter[_Name] = Counter()

    def __bool__(self) -> bool:
        return bool(self._mounts)

    def add(self, disks: Iterable[Disk]) -> None:
        """Count the disks of a pod."""
        for disk in disks:
            self._mounts.update(disk.names)
            if disk.writes:
                self._writers.update(disk.names)

    def remove(self, disks: Iterable[Disk]) -> None:
        """Stop counting the disks of a pod."""
        for disk in disks:
            self._mounts -= Counter(disk.names)
            if disk.writes:
                self._writers -= Counter(disk.names)

    def copy(self) -> "Disks":
        """The same disks, which may then change apart."""
        made = Disks()
        made._mounts, made._writers = self._mounts.copy(), self._writers.copy()
        return made

    def clash(self, disks: Iterable[Disk]) -> bool:
        """Whether a pod with these disks cannot come to this node."""
        return any(
            name in (self._mounts if one.writes else self._writers) for one in disks for name in one.names
        )
