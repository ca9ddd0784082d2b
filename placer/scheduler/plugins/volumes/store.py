"""All storage objects of the cluster, as the watches show them and as the scheduler assumes them.

A decision assumes that a volume belongs to a claim, or that a claim is provisioned for a node, before the API server
knows. What always holds: a change of an object, also of an assumed one, takes back the verdicts that depend on it,
and wakes the pods that it may help: on a few nodes by their names, else on all.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from placer.core.mounts import ClaimKey, ClaimUse, Mounts
from placer.scheduler.plugins.volumes.assume_cache import AssumeCache
from placer.scheduler.plugins.volumes.free_volumes import ByNodeLabels, FreeVolumes, discard
from placer.scheduler.plugins.volumes.objects import (
    MIGRATED_PROVISIONERS,
    CsiVolume,
    FreeSpace,
    Label,
    NodeLabels,
    PersistentVolume,
    UnboundClaim,
    class_of,
    key_of,
    read_capacity,
    read_volume,
)
from plimsoll.broker.volume import DRIVER
from plimsoll.ids import NodeName
from plimsoll.kube.storage_models import (
    Claim,
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)

StorageObject = Claim | Volume | StorageClass | CsiNode | CsiDriver | StorageCapacity | VolumeAttachment

FEW_NODES: Final = 16
"""A change that concerns this many nodes at most is noted for each; else it is noted for a whole class."""


@dataclass(frozen=True, slots=True)
class PodChanges:
    """Pods that a check counts otherwise than they are counted.

    Attributes:
        removed: the mounts of pods on the node that are left out.
        added: the mounts of pods that are added.
    """

    removed: Sequence[Mounts] = ()
    added: Sequence[Mounts] = ()


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """The CSI volumes on one node.

    Attributes:
        used: the volumes of pods.
        counts: by driver, the number of those of pods and of those that are attached without a pod.
    """

    used: frozenset[CsiVolume]
    counts: Mapping[str, int]


class VolumeStore:
    """All storage objects, and the claims and disks of the pods with a node.

    Attributes:
        claims, volumes: by name, as assumed.
        free: the volumes that no claim has.
        classes: the classes by name.
        limits: of each node that has a CSINode, the most volumes by driver; a driver without an entry has no limit.
        serving: the nodes whose broker serves our inline volume.
        measured: the drivers whose free space counts.
        serial: grows with each change that a pod's own claims may depend on.
        class_serials: by class, a number that grows when the volumes that it offers change.
    """

    def __init__(
        self,
        on_change: Callable[[NodeName], None],
        on_gain: Callable[[NodeName | None], None],
        nodes_with: Callable[[Label], Collection[NodeName]],
    ) -> None:
        """Without objects.

        Args:
            on_change: takes a node for which an answer may have changed.
            on_gain: takes a node that may have become fit for a pod's volumes; None: any node may have.
            nodes_with: gives the nodes with a label.
        """
        self._on_change, self._on_gain, self._nodes_with = on_change, on_gain, nodes_with
        self._on_claim: list[Callable[[ClaimKey | None], None]] = []
        self.claims: AssumeCache[ClaimKey, Claim] = AssumeCache(self._claim_replaced)
        self.volumes: AssumeCache[str, PersistentVolume] = AssumeCache(self._volume_replaced)
        self.free = FreeVolumes()
        self.classes: dict[str, StorageClass] = {}
        self.limits: dict[NodeName, Mapping[str, int]] = {}
        self.serving: set[NodeName] = set()
        self.measured: set[str] = set()
        self.serial = 0
        self.class_serials: defaultdict[str, int] = defaultdict(int)
        self._spaces: dict[ClaimKey, FreeSpace] = {}
        self._spaces_by_node: defaultdict[str, ByNodeLabels[FreeSpace]] = defaultdict(ByNodeLabels)
        self._claims_naming: defaultdict[str, dict[ClaimKey, None]] = defaultdict(dict)
        self._attachments: defaultdict[NodeName, dict[str, VolumeAttachment]] = defaultdict(dict)
        self._attached_to: defaultdict[str, dict[str, NodeName]] = defaultdict(dict)
        self._mounts: defaultdict[NodeName, list[Mounts]] = defaultdict(list)
        self._nodes_using: defaultdict[ClaimKey, Counter[NodeName]] = defaultdict(Counter)
        self._pods: Counter[ClaimKey] = Counter()  # those of ephemeral volumes left out, as in kube-scheduler
        self._node_volumes: dict[NodeName, NodeVolumes] = {}

    def on_claim(self, listener: Callable[[ClaimKey | None], None]) -> None:
        """Call `listener` with each claim that changed, or whose volume or pods did; None: any claim may have."""
        self._on_claim.append(listener)

    def put(self, one: StorageObject) -> None:
        """Take an object as a watch shows it."""
        name = one.metadata.name
        match one:
            case Claim():
                self.claims.put(key_of(one.metadata), one)
            case Volume():
                self.volumes.put(name, read_volume(one))
            case StorageClass():
                self.classes[name] = one
                self._class_changed()
            case CsiNode():
                drivers, node = one.spec.drivers or (), NodeName(name)
                limits = {driver.name: driver.allocatable for driver in drivers}
                self.limits[node] = {
                    driver: limit.count
                    for driver, limit in limits.items()
                    if limit is not None and limit.count is not None
                }
                (self.serving.add if DRIVER in limits else self.serving.discard)(node)
                self._node_changed(node)
            case CsiDriver():
                self._measure(name, is_measured=bool(one.spec.storageCapacity))
            case StorageCapacity():
                self._put_space(key_of(one.metadata), read_capacity(one))
            case VolumeAttachment(spec=spec):
                volume = spec.source.persistentVolumeName
                if spec.attacher and volume is not None:
                    self._attachments[NodeName(spec.nodeName)][name] = one
                    self._attached_to[volume][name] = NodeName(spec.nodeName)
                self._node_changed(NodeName(spec.nodeName))

    def remove(self, one: StorageObject) -> None:
        """Remove an object that is gone."""
        name = one.metadata.name
        match one:
            case Claim():
                self.claims.put(key_of(one.metadata), None)
            case Volume():
                self.volumes.put(name, None)
            case StorageClass():
                self.classes.pop(name, None)
                self._class_changed()
            case CsiNode():
                self.limits.pop(NodeName(name), None)
                self.serving.discard(NodeName(name))
                self._node_changed(NodeName(name))
            case CsiDriver():
                self._measure(name, is_measured=False)
            case StorageCapacity():
                self._put_space(key_of(one.metadata), None)
            case VolumeAttachment(spec=spec):
                discard(self._attachments, NodeName(spec.nodeName), name)
                discard(self._attached_to, spec.source.persistentVolumeName or "", name)
                self._node_changed(NodeName(spec.nodeName))

    def pod_assigned(self, node: NodeName, mounts: Mounts) -> None:
        """Count the mounts of a pod that has a node now; the caller notes the change of the node."""
        self._mounts[node].append(mounts)
        for use in mounts.claims:
            self._nodes_using[use.claim][node] += 1
            self._pods[use.claim] += not use.ephemeral
        self._pods_changed(node)

    def pod_unassigned(self, node: NodeName, mounts: Mounts) -> None:
        """Stop counting the mounts of a pod; the caller announces the gain of the node."""
        self._mounts[node].remove(mounts)
        if not self._mounts[node]:
            del self._mounts[node]
        for use in mounts.claims:
            nodes = self._nodes_using[use.claim]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes_using[use.claim]
            self._pods[use.claim] -= not use.ephemeral
            if not self._pods[use.claim]:
                del self._pods[use.claim]
        self._pods_changed(node)
        for use in mounts.claims:
            if not self.has_pod(use.claim):
                self._announce(use.claim)

    def class_of(self, claim: Claim) -> StorageClass | None:
        """The class of a claim; None if it names none, or one that does not exist."""
        return self.classes.get(class_of(claim.metadata, claim.spec.storageClassName))

    def has_space(self, claim: UnboundClaim, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels has the space for a claim, as the driver of its class reports it."""
        if claim.requested is None:
            return True
        least, by_node = ceil(claim.requested), self._spaces_by_node.get(claim.class_name)
        return by_node is not None and any(
            space.most_bytes is not None and space.most_bytes >= least and space.nodes.matches(labels)
            for space in by_node.on(labels)
        )

    def is_used(self, claim: ClaimKey) -> bool:
        """Whether a pod with a node uses a claim."""
        return claim in self._nodes_using

    def has_pod(self, claim: ClaimKey, changes: PodChanges | None = None) -> bool:
        """Whether a pod with a node names this claim; claims of ephemeral volumes are left out."""
        if changes is None:
            return claim in self._pods
        named = ClaimUse(claim, ephemeral=False)
        removed, added = (
            sum(one.claims.count(named) for one in part) for part in (changes.removed, changes.added)
        )
        return self._pods[claim] - removed + added > 0

    def mounts_on(self, node: NodeName, changes: PodChanges | None = None) -> Sequence[Mounts]:
        """The mounts of the pods on a node."""
        found = self._mounts.get(node, [])
        if changes is None:
            return found
        left = [*found, *changes.added]
        for one in changes.removed:
            left.remove(one)
        return left

    def node_volumes(self, node: NodeName, changes: PodChanges | None = None) -> NodeVolumes:
        """The CSI volumes on a node: those of pods, and those that are attached, or being attached or detached."""
        known = self._node_volumes.get(node) if changes is None else None
        if known is None:
            used = frozenset(
                self.csi_volumes(use.claim for one in self.mounts_on(node, changes) for use in one.claims)
            )
            attached = set()
            for one in self._attachments.get(node, {}).values():
                volume = self.volumes.get(one.spec.source.persistentVolumeName)
                if volume is not None and volume.api.spec.csi is not None:
                    attached.add(CsiVolume(one.spec.attacher, volume.api.spec.csi.volumeHandle))
            known = NodeVolumes(used, Counter(volume.driver for volume in used | attached))
            if changes is None:
                self._node_volumes[node] = known
        return known

    def csi_volumes(self, claims: Iterable[ClaimKey]) -> list[CsiVolume]:
        """The volumes of claims as their drivers count them, also before they exist."""
        return [one for one in map(self._csi_volume, claims) if one is not None]

    def nodes_of(self, labels: frozenset[Label], most: int) -> list[NodeName] | None:
        """The nodes that have one of these labels, sorted; None if they are more than `most`."""
        if sum(len(self._nodes_with(label)) for label in labels) > most:
            return None
        return sorted({node for label in labels for node in self._nodes_with(label)})

    def _csi_volume(self, key: ClaimKey) -> CsiVolume | None:
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.spec.volumeName)
        if volume is not None:
            return volume.csi
        storage_class = self.class_of(claim)
        if storage_class is None:
            return None
        driver = MIGRATED_PROVISIONERS.get(storage_class.provisioner, storage_class.provisioner)
        return CsiVolume(driver, f"claim {key.namespace}/{key.name}")  # no handle of a volume has a space

    def _claim_replaced(self, key: ClaimKey, before: Claim | None, now: Claim | None) -> None:
        if before is not None and before.spec.volumeName:
            discard(self._claims_naming, before.spec.volumeName, key)
        if now is not None and now.spec.volumeName:
            self._claims_naming[now.spec.volumeName][key] = None
        self._claim_changed(key)

    def _claim_changed(self, key: ClaimKey) -> None:
        self.serial += 1
        for node in tuple(self._nodes_using.get(key, ())):
            self._node_changed(node)
        self._announce(key)

    def _volume_replaced(
        self, name: str, before: PersistentVolume | None, now: PersistentVolume | None
    ) -> None:
        self.serial += 1
        if before is not None:
            self.free.remove(before)
        if now is not None:
            self.free.add(now)
        for volume in (before, now):
            if volume is not None and volume.is_free:
                self._offer_changed(volume.class_name, volume.node_labels, is_gain=volume is now)
        for node in tuple(self._attached_to.get(name, {}).values()):
            self._node_changed(node)
        keys = {one.claim for one in (before, now) if one is not None and one.claim is not None}
        for key in sorted(keys.union(self._claims_naming.get(name, ()))):
            self._claim_changed(key)

    def _put_space(self, key: ClaimKey, now: FreeSpace | None) -> None:
        before = self._spaces.pop(key, None)
        if before is not None:
            self._spaces_by_node[before.class_name].remove(before, before.node_labels)
        if now is not None:
            self._spaces[key] = now
            self._spaces_by_node[now.class_name].add(now, now.node_labels)
        for space in (before, now):
            if space is not None:
                self._offer_changed(space.class_name, space.node_labels, is_gain=space is now)

    def _measure(self, driver: str, *, is_measured: bool) -> None:
        if is_measured != (driver in self.measured):
            (self.measured.add if is_measured else self.measured.discard)(driver)
            self._class_changed()

    def _pods_changed(self, node: NodeName) -> None:
        self.serial += 1
        self._node_volumes.pop(node, None)

    def _node_changed(self, node: NodeName) -> None:
        self._node_volumes.pop(node, None)
        self._on_change(node)
        self._on_gain(node)

    def _class_changed(self) -> None:
        self.serial += 1
        for name in (*self.class_serials, *self.classes):
            self.class_serials[name] += 1
        for node in tuple(self._node_volumes):
            self._node_volumes.pop(node)
            self._on_change(node)
        self._on_gain(None)
        self._announce(None)

    def _offer_changed(self, class_name: str, labels: NodeLabels, *, is_gain: bool) -> None:
        """Take back the verdicts on the nodes that one of these labels names."""
        nodes = None if labels is None else self.nodes_of(labels, FEW_NODES)
        if nodes is None:
            self.serial += 1
            self.class_serials[class_name] += 1
        for node in nodes or ():
            self._on_change(node)
        if is_gain:
            for one in (None,) if nodes is None else nodes:
                self._on_gain(one)

    def _announce(self, claim: ClaimKey | None) -> None:
        for listener in self._on_claim:
            listener(claim)
