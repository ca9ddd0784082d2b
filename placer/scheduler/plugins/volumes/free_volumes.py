"""The volumes that no claim has, by class and by the nodes that reach them."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

from placer.core.mounts import ClaimKey
from placer.scheduler.plugins.volumes.objects import Label, NodeLabels, PersistentVolume

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)
V = TypeVar("V")


class ByNodeLabels(Generic[T]):
    """Objects that only nodes with certain labels can use, found by the labels of a node.

    A cluster may have a local volume and a storage capacity for each node. What always holds: the look-up costs as
    much as the node has labels, and as there are objects for this node, however many there are for other nodes.
    """

    def __init__(self) -> None:
        self._by_label: defaultdict[Label, dict[T, None]] = defaultdict(dict)
        self._anywhere: dict[T, None] = {}

    def add(self, one: T, labels: NodeLabels) -> None:
        """Add an object for the nodes that have one of these labels."""
        if labels is None:
            self._anywhere[one] = None
        for label in labels or ():
            self._by_label[label][one] = None

    def remove(self, one: T, labels: NodeLabels) -> None:
        """Remove an object that was added with these labels."""
        if labels is None:
            del self._anywhere[one]
        for label in labels or ():
            discard(self._by_label, label, one)

    def on(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The objects that a node with these labels may be able to use; one may come twice."""
        yield from self._anywhere
        if self._by_label:
            for label in labels.items():
                yield from self._by_label.get(label, ())


@dataclass(slots=True, eq=False)
class _AlikeVolumes:
    """The free volumes of one class with equal node affinity, by size. Their affinity is checked once for a node."""

    node_labels: NodeLabels
    volumes: list[tuple[Fraction, str, PersistentVolume]] = field(default_factory=list)


class FreeVolumes:
    """The volumes that no claim has. Those that name a claim are found by the claim, the others by class and node."""

    def __init__(self) -> None:
        self._alike: defaultdict[str, dict[bytes, _AlikeVolumes]] = defaultdict(dict)
        self._nodes: defaultdict[str, ByNodeLabels[_AlikeVolumes]] = defaultdict(ByNodeLabels)
        self._reserved: defaultdict[ClaimKey, dict[str, PersistentVolume]] = defaultdict(dict)

    def add(self, volume: PersistentVolume) -> None:
        """Add a volume."""
        if volume.claim is not None:
            self._reserved[volume.claim][volume.name] = volume
        elif volume.is_free:
            of_class = self._alike[volume.class_name]
            alike = of_class.get(volume.affinity_key)
            if alike is None:
                alike = of_class[volume.affinity_key] = _AlikeVolumes(volume.node_labels)
                self._nodes[volume.class_name].add(alike, volume.node_labels)
            insort(alike.volumes, (volume.capacity, volume.name, volume))

    def remove(self, volume: PersistentVolume) -> None:
        """Remove a volume that was added."""
        if volume.claim is not None:
            discard(self._reserved, volume.claim, volume.name)
        elif volume.is_free:
            alike = self._alike[volume.class_name][volume.affinity_key]
            del alike.volumes[bisect_left(alike.volumes, (volume.capacity, volume.name))]
            if not alike.volumes:
                del self._alike[volume.class_name][volume.affinity_key]
                self._nodes[volume.class_name].remove(alike, volume.node_labels)

    def reserved_for(self, claim: ClaimKey) -> list[PersistentVolume]:
        """The volumes that name this claim, by name. A uid in their reference may be another claim's."""
        return [volume for _, volume in sorted(self._reserved.get(claim, {}).items())]

    def on(
        self, class_name: str, labels: Mapping[str, str], least: Fraction
    ) -> Iterator[Iterator[PersistentVolume]]:
        """The free volumes of a class that a node reaches, in groups, each from this size on, the smallest first."""
        if class_name not in self._nodes:
            return
        for alike in dict.fromkeys(self._nodes[class_name].on(labels)):
            volumes = alike.volumes
            if volumes[0][2].reaches(labels):
                start = bisect_left(volumes, (least, ""))
                yield (volumes[at][2] for at in range(start, len(volumes)))

    def node_labels(self, class_name: str) -> Iterator[NodeLabels]:
        """For each group of free volumes of a class, the labels of the nodes that reach it."""
        return (alike.node_labels for alike in self._alike.get(class_name, {}).values())


def discard(things: defaultdict[K, dict[T, V]], key: K, name: T) -> None:
    """Remove a thing from those of a key, if it is there."""
    things[key].pop(name, None)
    if not things[key]:
        del things[key]
