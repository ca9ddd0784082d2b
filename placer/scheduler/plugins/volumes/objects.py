"""Storage objects, read once: volumes, unbound claims, free space, and the labels of the nodes that can use them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from placer.core.label_selector import ParsedSelector, parse_selector
from placer.core.mounts import ClaimKey
from placer.core.selector import Selector, selector_from
from plimsoll.kube.models import LabelSelector, NodeSelector, NodeSelectorRequirement, ObjectMeta
from plimsoll.kube.storage_models import (
    BETA_CLASS,
    BIND_COMPLETED,
    SELECTED_NODE,
    STORAGE,
    Claim,
    StorageCapacity,
    StorageClass,
    Volume,
)
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_exact

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""A class whose volumes are all made by hand."""

Label = tuple[str, str]
NodeLabels = frozenset[Label] | None
"""Each node that can use an object has one of these labels; None if that is not known."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_MIGRATED: Final = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azureDisk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azureFile": ("kubernetes.io/azure-file", "file.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworxVolume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "vsphereVolume": ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
}
"""Sources of volumes that Kubernetes moved out of its tree, each with its provisioner then and its driver today."""
MIGRATED_PROVISIONERS: Final = dict(_MIGRATED.values())


class CsiVolume(NamedTuple):
    """A volume as its CSI driver knows it."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A volume as decisions read it.

    Attributes:
        api: the volume, perhaps as the scheduler assumes it.
        class_name: the StorageClass; empty for none.
        capacity: in bytes.
        node_affinity: the required node affinity, or None.
        node_labels: see `NodeLabels`.
        affinity_key: equal for volumes with equal required node affinity.
    """

    api: Volume
    class_name: str
    capacity: Fraction
    node_affinity: Selector | None
    node_labels: NodeLabels
    affinity_key: bytes

    @property
    def name(self) -> str:
        """Its name."""
        return self.api.metadata.name

    @property
    def is_free(self) -> bool:
        """Whether any claim may be bound to it."""
        return self.api.spec.claimRef is None and self.api.status.phase == "Available"

    @property
    def claim(self) -> ClaimKey | None:
        """The claim that it names; a uid in the reference may be another claim's."""
        ref = self.api.spec.claimRef
        return None if ref is None else ClaimKey(ref.namespace, ref.name)

    @property
    def migrated_source(self) -> str | None:
        """Its source, if Kubernetes moved that out of its tree; None for any other."""
        return next((name for name in _MIGRATED if getattr(self.api.spec, name) is not msgspec.UNSET), None)

    @property
    def csi(self) -> CsiVolume | None:
        """The volume as its driver knows it; None for one without a driver."""
        csi = self.api.spec.csi
        if csi is not None:
            return CsiVolume(csi.driver, csi.volumeHandle) if csi.driver and csi.volumeHandle else None
        source = self.migrated_source
        return None if source is None else CsiVolume(_MIGRATED[source][1], f"volume {self.name}")

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels reaches the volume."""
        return self.node_affinity is None or self.node_affinity.selects(labels)


def read_volume(api: Volume) -> PersistentVolume:
    """Read a volume."""
    affinity = api.spec.nodeAffinity
    required = affinity.required if affinity is not None else None
    return PersistentVolume(
        api,
        class_of(api.metadata, api.spec.storageClassName),
        _bytes_of((api.spec.capacity or {}).get(STORAGE)) or Fraction(0),
        None if required is None else _node_affinity(required),
        None if required is None else _labels_of_terms(required),
        b"" if required is None else msgspec.json.encode(required),
    )


def _node_affinity(required: NodeSelector) -> Selector | None:
    """The affinity without its rules about the names of nodes, which kube-scheduler ignores for volumes."""
    terms = [msgspec.structs.replace(term, matchFields=None) for term in required.nodeSelectorTerms]
    if any(
        one.matchFields and not term.matchExpressions
        for one, term in zip(required.nodeSelectorTerms, terms, strict=True)
    ):
        return None
    return selector_from(NodeSelector(terms))


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """A claim that needs a volume.

    Attributes:
        api: the claim, perhaps as the scheduler assumes it.
        key: its name.
        class_name: the StorageClass; empty for none.
        requested: the bytes that the claim requests; None if it requests none.
        selector: selects volumes by their labels; None selects all.
        selected_node: the node for which the claim is already being provisioned, or None.
    """

    api: Claim
    key: ClaimKey
    class_name: str
    requested: Fraction | None
    selector: ParsedSelector | None
    selected_node: str | None

    @property
    def shape(self) -> bytes:
        """Equal for claims that differ in nothing but their name."""
        spec = msgspec.structs.replace(self.api.spec, storageClassName=self.class_name)
        return msgspec.json.encode(spec, order="sorted")


def read_unbound(api: Claim) -> UnboundClaim:
    """Read a claim that needs a volume."""
    meta, spec = api.metadata, api.spec
    return UnboundClaim(
        api,
        key_of(meta),
        class_of(meta, spec.storageClassName),
        _bytes_of((spec.resources.requests or {}).get(STORAGE)),
        None if spec.selector is None else parse_selector(spec.selector),
        (meta.annotations or {}).get(SELECTED_NODE),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FreeSpace:
    """Free space of a class in a topology, as a CSIStorageCapacity reports it.

    Attributes:
        class_name: the class.
        most_bytes: the largest volume that can be made; None if not known, so that none can.
        node_labels: see `NodeLabels`.
        nodes: selects the nodes of the topology. Without a topology, no node has the space.
    """

    class_name: str
    most_bytes: int | None
    node_labels: NodeLabels
    nodes: ParsedSelector


def read_capacity(capacity: StorageCapacity) -> FreeSpace:
    """Read a report of free space."""
    given = capacity.maximumVolumeSize if capacity.maximumVolumeSize is not None else capacity.capacity
    size, topology = _bytes_of(given), capacity.nodeTopology
    return FreeSpace(
        capacity.storageClassName,
        None if size is None else math.ceil(size),
        frozenset() if topology is None else _labels_of_selector(topology),
        parse_selector(topology),
    )


def is_bound(claim: Claim) -> bool:
    """Whether the controller has bound a claim for good."""
    return bool(claim.spec.volumeName) and BIND_COMPLETED in (claim.metadata.annotations or {})


def is_reserved(volume: Volume, claim: Claim) -> bool:
    """Whether a volume names this claim."""
    ref, meta = volume.spec.claimRef, claim.metadata
    if ref is None or (ref.namespace, ref.name) != (meta.namespace, meta.name):
        return False
    return ref.uid in ("", meta.uid)


def can_provision(storage_class: StorageClass, labels: Mapping[str, str]) -> bool:
    """Whether a class may make a volume for a node with these labels."""
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return False
    terms = storage_class.allowedTopologies or ()
    return not terms or any(
        term.matchLabelExpressions
        and all(labels.get(one.key) in one.values for one in term.matchLabelExpressions)
        for term in terms
    )


def key_of(meta: ObjectMeta) -> ClaimKey:
    """The key of a claim."""
    return ClaimKey(meta.namespace, meta.name)


def class_of(meta: ObjectMeta, named: str | None) -> str:
    """The class of a claim or a volume; empty for none."""
    return (meta.annotations or {}).get(BETA_CLASS, named or "")


def _bytes_of(quantity: str | float | None) -> Fraction | None:
    """A quantity; None if there is none, or it cannot be read."""
    try:
        return None if quantity is None else parse_exact(quantity, STORAGE)
    except InputError:
        return None


def _labels_of_terms(selector: NodeSelector) -> NodeLabels:
    found: set[Label] = set()
    for term in selector.nodeSelectorTerms:
        named = _labels_of(term.matchExpressions or [])
        if named is None:
            return None
        found |= named
    return frozenset(found)


def _labels_of_selector(selector: LabelSelector) -> NodeLabels:
    exact = [frozenset({label}) for label in (selector.matchLabels or {}).items()]
    hosts = [one for one in exact if next(iter(one))[0] == _HOSTNAME]
    return next(iter(hosts or exact), _labels_of(selector.matchExpressions or []))


def _labels_of(requirements: list[NodeSelectorRequirement]) -> NodeLabels:
    """The labels that one requirement lists; that of the host's name, where there is one, lists the fewest nodes."""
    listing = [one for one in requirements if one.operator == "In"]
    hosts = [one for one in listing if one.key == _HOSTNAME]
    for one in hosts or listing:
        return frozenset((one.key, value) for value in one.values or ())
    return None
