"""The volumes that exist, by class and by the nodes that reach them.

What always holds: the volumes that one node reaches are found by the node's labels. Volumes of one class with equal
node affinity stand together, by their size, so their affinity is checked once for a node.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from placer.core.mounts import ClaimKey
from placer.core.selector import Selector, selector_from
from placer.scheduler.plugins.volumes.pinned import Pairs, Pinned, pairs_of
from placer.scheduler.plugins.volumes.wanted_volume import class_of, storage_in
from placer.scheduler.plugins.volumes.zones import Zones, zones_of
from plimsoll.kube.models import NodeSelector
from plimsoll.kube.storage_models import Volume

GroupKey = tuple[str, bytes]
"""Class, and required node affinity as JSON."""


@dataclass(frozen=True, slots=True)
class KnownVolume:
    """A volume as decisions read it.

    Attributes:
        api: the volume, as the scheduler assumes it.
        class_name: the StorageClass; empty for none.
        capacity: in bytes.
        affinity: the required node affinity, or None.
        pairs: see `Pairs`.
        zones: the zones and regions of its labels.
        group: see `GroupKey`.
    """

    api: Volume
    class_name: str
    capacity: Fraction
    affinity: Selector | None
    pairs: Pairs
    zones: Zones
    group: GroupKey

    @property
    def name(self) -> str:
        """Its name."""
        return self.api.metadata.name

    @property
    def is_free(self) -> bool:
        """Whether any claim may be bound to it."""
        return self.api.spec.claimRef is None and self.api.status.phase == "Available"

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels reaches the volume."""
        return self.affinity is None or self.affinity.selects(labels)


def known_volume(api: Volume) -> KnownVolume:
    """Read a volume."""
    affinity = api.spec.nodeAffinity
    required = affinity.required if affinity is not None else None
    class_name = class_of(api.metadata, api.spec.storageClassName)
    return KnownVolume(
        api,
        class_name,
        storage_in(api.spec.capacity) or Fraction(0),
        None if required is None else _affinity_of(required),
        None if required is None else pairs_of(required),
        zones_of(api.metadata.labels or {}),
        (class_name, b"" if required is None else msgspec.json.encode(required)),
    )


def _affinity_of(required: NodeSelector) -> Selector | None:
    """The affinity without its rules about the names of nodes, which kube-scheduler ignores for volumes."""
    terms = [msgspec.structs.replace(term, matchFields=None) for term in required.nodeSelectorTerms]
    if any(
        one.matchFields and not term.matchExpressions
        for one, term in zip(required.nodeSelectorTerms, terms, strict=True)
    ):
        return None
    return selector_from(NodeSelector(terms))


@dataclass(slots=True)
class _Group:
    pairs: Pairs
    volumes: list[tuple[Fraction, str]] = field(default_factory=list)


class Shelf:
    """All volumes."""

    def __init__(self) -> None:
        self.volumes: dict[str, KnownVolume] = {}
        # The free volumes, by class.
        self._groups: defaultdict[str, dict[GroupKey, _Group]] = defaultdict(dict)
        self._pinned: defaultdict[str, Pinned[GroupKey]] = defaultdict(Pinned)
        self._reserved: defaultdict[ClaimKey, set[str]] = defaultdict(set)

    def put(self, volume: KnownVolume) -> None:
        """Take a volume in place of that of the same name."""
        self.remove(volume.name)
        self.volumes[volume.name] = volume
        ref = volume.api.spec.claimRef
        if ref is not None:
            self._reserved[ClaimKey(ref.namespace, ref.name)].add(volume.name)
        elif volume.is_free:
            groups = self._groups[volume.class_name]
            group = groups.get(volume.group)
            if group is None:
                group = groups[volume.group] = _Group(volume.pairs)
                self._pinned[volume.class_name].add(volume.group, volume.pairs)
            insort(group.volumes, (volume.capacity, volume.name))

    def remove(self, name: str) -> KnownVolume | None:
        """Remove a volume; returns it if it was known."""
        volume = self.volumes.pop(name, None)
        if volume is None:
            return None
        ref = volume.api.spec.claimRef
        if ref is not None:
            key = ClaimKey(ref.namespace, ref.name)
            self._reserved[key].discard(name)
            if not self._reserved[key]:
                del self._reserved[key]
        elif volume.is_free:
            group = self._groups[volume.class_name][volume.group]
            del group.volumes[bisect_left(group.volumes, (volume.capacity, name))]
            if not group.volumes:
                del self._groups[volume.class_name][volume.group]
                self._pinned[volume.class_name].remove(volume.group, volume.pairs)
        return volume

    def reserved_for(self, claim: ClaimKey) -> list[KnownVolume]:
        """The volumes that name this claim, by name. A uid in their reference may be another claim's."""
        return [self.volumes[name] for name in sorted(self._reserved.get(claim, ()))]

    def free(
        self, class_name: str, labels: Mapping[str, str], least: Fraction
    ) -> Iterator[Iterator[KnownVolume]]:
        """The free volumes of a class that a node reaches, in groups, each from this size on, the smallest first."""
        pinned = self._pinned.get(class_name)
        if pinned is None:
            return
        for key in dict.fromkeys(pinned.on(labels)):
            volumes = self._groups[class_name][key].volumes
            if self.volumes[volumes[0][1]].reaches(labels):
                start = bisect_left(volumes, (least, ""))
                yield (self.volumes[volumes[at][1]] for at in range(start, len(volumes)))

    def pairs_in(self, class_name: str) -> Iterator[Pairs]:
        """For each group of free volumes of a class, the labels of the nodes that reach it."""
        return (group.pairs for group in self._groups.get(class_name, {}).values())
