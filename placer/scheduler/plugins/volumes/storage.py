"""The storage objects of the cluster, as the watches show them and as the scheduler assumes them.

A decision assumes that a volume belongs to a claim, or that a claim is provisioned for a node, before the API server
knows. What always holds: an assumption stands only beside the version of the object for which it was made. Each later
version that a watch shows replaces it.
"""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from placer.core.mounts import ClaimKey
from placer.scheduler.plugins.volumes.limits import Attachable, Limits
from placer.scheduler.plugins.volumes.provisioning import FreeSpaces
from placer.scheduler.plugins.volumes.shelf import KnownVolume, Shelf, known_volume
from placer.scheduler.plugins.volumes.wanted_volume import class_of
from plimsoll.ids import NodeName
from plimsoll.kube.models import ObjectMeta
from plimsoll.kube.storage_models import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    Claim,
    ClaimRef,
    StorageClass,
    Volume,
    VolumeAttachment,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_DRIVERS: Final = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azureDisk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azureFile": ("kubernetes.io/azure-file", "file.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworxVolume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "vsphereVolume": ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
}
"""Sources of volumes that Kubernetes moved out of its tree, each with its provisioner then and its driver today."""
MOVED_PROVISIONERS: Final = dict(_DRIVERS.values())


@dataclass(slots=True)
class Storage:
    """All storage objects.

    Attributes:
        claims: by name, as assumed.
        shelf: the volumes, as assumed.
        classes: the classes by name.
        limits: the attach limits of each node that has a CSINode.
        serving: the nodes whose broker serves our inline volume.
        measured: the drivers whose free space counts.
        spaces: the free space that drivers report.
        named_by: by volume, the claims that name it.
        attachments: by node, the volumes that are attached, by the name of the attachment, each with its attacher.
    """

    claims: dict[ClaimKey, Claim] = field(default_factory=dict)
    shelf: Shelf = field(default_factory=Shelf)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    limits: dict[NodeName, Limits] = field(default_factory=dict)
    serving: set[NodeName] = field(default_factory=set)
    measured: set[str] = field(default_factory=set)
    spaces: FreeSpaces = field(default_factory=FreeSpaces)
    named_by: defaultdict[str, set[ClaimKey]] = field(default_factory=lambda: defaultdict(set))
    attachments: defaultdict[NodeName, dict[str, tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _attaching: defaultdict[str, dict[str, NodeName]] = field(default_factory=lambda: defaultdict(dict))
    # As the watch showed them, where another form is assumed.
    _shown_claims: dict[ClaimKey, Claim] = field(default_factory=dict)
    _shown_volumes: dict[str, Volume] = field(default_factory=dict)

    def put_claim(self, claim: Claim) -> None:
        """Take a claim as a watch shows it."""
        key = key_of(claim.metadata)
        self._shown_claims.pop(key, None)
        self._replace(key, claim)

    def remove_claim(self, key: ClaimKey) -> None:
        """Remove a claim that is gone."""
        self._shown_claims.pop(key, None)
        self._replace(key, None)

    def put_volume(self, volume: Volume) -> tuple[KnownVolume | None, KnownVolume]:
        """Take a volume as a watch shows it; returns it as it was before, and as it is now."""
        self._shown_volumes.pop(volume.metadata.name, None)
        return self._place(volume)

    def remove_volume(self, name: str) -> KnownVolume | None:
        """Remove a volume that is gone; returns it if it was known."""
        self._shown_volumes.pop(name, None)
        return self.shelf.remove(name)

    def shown_claim(self, key: ClaimKey) -> Claim | None:
        """A claim as the watch showed it last, without assumptions."""
        return self._shown_claims.get(key) or self.claims.get(key)

    def shown_volume(self, name: str) -> Volume | None:
        """A volume as the watch showed it last, without assumptions."""
        known = self.shelf.volumes.get(name)
        return self._shown_volumes.get(name) or (known.api if known is not None else None)

    def assume_claim(self, key: ClaimKey, node: NodeName) -> Claim:
        """Assume that a claim is provisioned for a node; returns the claim of that form."""
        claim = self.claims[key]
        meta = msgspec.structs.replace(
            claim.metadata, annotations={**(claim.metadata.annotations or {}), SELECTED_NODE: node}
        )
        self._shown_claims.setdefault(key, claim)
        assumed = self.claims[key] = msgspec.structs.replace(claim, metadata=meta)
        return assumed

    def assume_volume(self, name: str, claim: Claim) -> Volume:
        """Assume that a volume is bound to a claim; returns the volume of that form."""
        volume, meta = self.shelf.volumes[name].api, claim.metadata
        ref = ClaimRef(meta.namespace, meta.name, meta.uid)
        annotations = {BOUND_BY_CONTROLLER: "yes", **(volume.metadata.annotations or {})}
        if volume.spec.claimRef is not None:  # a person bound it
            annotations = dict(volume.metadata.annotations or {})
        assumed = msgspec.structs.replace(
            volume,
            metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
            spec=msgspec.structs.replace(volume.spec, claimRef=ref),
        )
        self._shown_volumes.setdefault(name, volume)
        self._place(assumed)
        return assumed

    def restore_claim(self, assumed: Claim) -> bool:
        """Drop an assumption; returns False if a later version of the claim has replaced it."""
        key = key_of(assumed.metadata)
        shown = self._shown_claims.get(key)
        if shown is None or self.claims.get(key) is not assumed:
            return False
        self.put_claim(shown)
        return True

    def restore_volume(self, assumed: Volume) -> bool:
        """Drop an assumption; returns False if a later version of the volume has replaced it."""
        name = assumed.metadata.name
        shown, known = self._shown_volumes.get(name), self.shelf.volumes.get(name)
        if shown is None or known is None or known.api is not assumed:
            return False
        self.put_volume(shown)
        return True

    def class_of(self, claim: Claim) -> StorageClass | None:
        """The class of a claim; None if it names none, or one that does not exist."""
        return self.classes.get(class_of(claim.metadata, claim.spec.storageClassName))

    def attachable(self, key: ClaimKey) -> Attachable | None:
        """The volume of a claim as its driver counts it, also before it exists; None for one without a driver."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.shelf.volumes.get(claim.spec.volumeName or "")
        if volume is not None:
            return _attachable(volume.api)
        storage_class = self.class_of(claim)
        if storage_class is None:
            return None
        driver = MOVED_PROVISIONERS.get(storage_class.provisioner, storage_class.provisioner)
        return Attachable(driver, f"claim {key.namespace}/{key.name}")  # no handle of a volume has a space

    def attached_to(self, node: NodeName) -> list[Attachable]:
        """The volumes that are attached to a node, or being attached or detached."""
        found = []
        for attacher, name in self.attachments.get(node, {}).values():
            volume = self.shelf.volumes.get(name)
            if volume is not None and volume.api.spec.csi is not None:
                found.append(Attachable(attacher, volume.api.spec.csi.volumeHandle))
        return found

    def put_attachment(self, attachment: VolumeAttachment) -> None:
        """Take an attachment; one without an attacher or a volume is left out."""
        spec, name = attachment.spec, attachment.spec.source.persistentVolumeName
        if spec.attacher and name is not None:
            self.attachments[NodeName(spec.nodeName)][attachment.metadata.name] = (spec.attacher, name)
            self._attaching[name][attachment.metadata.name] = NodeName(spec.nodeName)

    def remove_attachment(self, attachment: VolumeAttachment) -> None:
        """Remove an attachment."""
        name = attachment.metadata.name
        _remove(self.attachments, NodeName(attachment.spec.nodeName), name)
        _remove(self._attaching, attachment.spec.source.persistentVolumeName or "", name)

    def nodes_attaching(self, volume: str) -> list[NodeName]:
        """The nodes to which a volume is attached."""
        return list(self._attaching.get(volume, {}).values())

    def _replace(self, key: ClaimKey, claim: Claim | None) -> None:
        before = self.claims.pop(key, None)
        if before is not None and before.spec.volumeName:
            self.named_by[before.spec.volumeName].discard(key)
            if not self.named_by[before.spec.volumeName]:
                del self.named_by[before.spec.volumeName]
        if claim is not None:
            self.claims[key] = claim
            if claim.spec.volumeName:
                self.named_by[claim.spec.volumeName].add(key)

    def _place(self, volume: Volume) -> tuple[KnownVolume | None, KnownVolume]:
        before, now = self.shelf.volumes.get(volume.metadata.name), known_volume(volume)
        self.shelf.put(now)
        return before, now


def key_of(meta: ObjectMeta) -> ClaimKey:
    """The key of a claim."""
    return ClaimKey(meta.namespace, meta.name)


def moved_source(volume: Volume) -> str | None:
    """The source of a volume of a kind that Kubernetes moved out of its tree; None for any other."""
    return next((kind for kind in _DRIVERS if getattr(volume.spec, kind) is not msgspec.UNSET), None)


def _remove(things: defaultdict[K, dict[str, V]], key: K, name: str) -> None:
    things[key].pop(name, None)
    if not things[key]:
        del things[key]


def _attachable(volume: Volume) -> Attachable | None:
    if volume.spec.csi is not None:
        csi = volume.spec.csi
        return Attachable(csi.driver, csi.volumeHandle) if csi.driver and csi.volumeHandle else None
    moved = moved_source(volume)
    return None if moved is None else Attachable(_DRIVERS[moved][1], f"volume {volume.metadata.name}")
