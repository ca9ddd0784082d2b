"""Whether a class can make a new volume for a node: its topologies, and the free space that its driver reports.

Follows Kubernetes 1.36, plugin `volumebinding` (`checkVolumeProvisions`, `hasEnoughCapacity`). Pure.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from placer.scheduler.plugins.volumes.pinned import Pairs, Pinned, pairs_of_labels
from placer.scheduler.plugins.volumes.wanted_volume import Check, WantedVolume, check_of_labels, size_of
from plimsoll.kube.storage_models import StorageCapacity, StorageClass

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""A class whose volumes are all made by hand."""
WAITS: Final = "WaitForFirstConsumer"
"""The mode of a class whose claims are bound once a pod has a node."""

Key = tuple[str, str]


def allows(storage_class: StorageClass, labels: Mapping[str, str]) -> bool:
    """Whether a class may make a volume for a node with these labels."""
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return False
    terms = storage_class.allowedTopologies or ()
    return not terms or any(
        term.matchLabelExpressions
        and all(labels.get(one.key) in one.values for one in term.matchLabelExpressions)
        for term in terms
    )


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free space of a class in a topology.

    Attributes:
        class_name: the class.
        most_bytes: the largest volume that can be made; None if not known, so that none can.
        pairs: see `Pairs`.
        holds: whether a node with these labels is in the topology.
    """

    class_name: str
    most_bytes: int | None
    pairs: Pairs
    holds: Check


def free_space(capacity: StorageCapacity) -> FreeSpace:
    """Read a report of free space. Without a topology, no node has the space."""
    given = capacity.maximumVolumeSize if capacity.maximumVolumeSize is not None else capacity.capacity
    size = size_of(given)
    topology = capacity.nodeTopology
    return FreeSpace(
        capacity.storageClassName,
        None if size is None else math.ceil(size),
        frozenset() if topology is None else pairs_of_labels(topology),
        (lambda _: False) if topology is None else check_of_labels(topology),
    )


class FreeSpaces:
    """All reports of free space, by class and node."""

    def __init__(self) -> None:
        self._spaces: dict[Key, FreeSpace] = {}
        self._pinned: defaultdict[str, Pinned[Key]] = defaultdict(Pinned)

    def put(self, key: Key, space: FreeSpace) -> FreeSpace | None:
        """Take a report in place of the one with this key; returns that."""
        before = self.remove(key)
        self._spaces[key] = space
        self._pinned[space.class_name].add(key, space.pairs)
        return before

    def remove(self, key: Key) -> FreeSpace | None:
        """Remove a report; returns it if it was known."""
        space = self._spaces.pop(key, None)
        if space is not None:
            self._pinned[space.class_name].remove(key, space.pairs)
        return space

    def suffice(self, wanted: WantedVolume, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels has the space for a claim."""
        if wanted.requested is None:
            return True
        least, pinned = math.ceil(wanted.requested), self._pinned.get(wanted.class_name)
        return pinned is not None and any(
            space.most_bytes is not None and space.most_bytes >= least and space.holds(labels)
            for space in map(self._spaces.__getitem__, pinned.on(labels))
        )
