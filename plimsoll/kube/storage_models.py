"""The fields of Kubernetes' storage objects that the placer reads, and no others; see `plimsoll.kube.models`."""

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from plimsoll.kube.models import LabelSelector, NodeSelector, ObjectMeta, Quantities

BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""An annotation of claims and volumes that names the class, before the field that is used today."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""An annotation of a claim: the scheduler writes the node for which the provisioner makes the volume."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""An annotation of a claim: the controller has bound the claim to its volume."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""An annotation of a volume: no person bound it to its claim."""
STORAGE: Final = "storage"
"""The resource that claims request and volumes have."""


class Requests(Struct, frozen=True):
    """`spec.resources` of a claim."""

    requests: Quantities | None = None


class ClaimSpec(Struct, frozen=True):
    """`spec` of a claim."""

    accessModes: list[str] | None = None  # noqa: N815
    resources: Requests = Requests()
    selector: LabelSelector | None = None
    storageClassName: str | None = None  # noqa: N815
    volumeAttributesClassName: str | None = None  # noqa: N815
    volumeMode: str | None = None  # noqa: N815
    volumeName: str | None = None  # noqa: N815


class ClaimStatus(Struct, frozen=True):
    """`status` of a claim."""

    phase: str | None = None


class Claim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimRef(Struct, frozen=True):
    """`spec.claimRef` of a volume; without a uid a person reserved the volume for a claim of this name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Struct, frozen=True):
    """`spec.nodeAffinity` of a volume."""

    required: NodeSelector | None = None


class CsiSource(Struct, frozen=True):
    """`spec.csi` of a volume."""

    driver: str = ""
    volumeHandle: str = ""  # noqa: N815


class VolumeSpec(Struct, frozen=True):
    """`spec` of a volume. For sources that Kubernetes moved to CSI drivers, only their presence matters."""

    accessModes: list[str] | None = None  # noqa: N815
    capacity: Quantities | None = None
    claimRef: ClaimRef | None = None  # noqa: N815
    csi: CsiSource | None = None
    nodeAffinity: VolumeNodeAffinity | None = None  # noqa: N815
    storageClassName: str | None = None  # noqa: N815
    volumeAttributesClassName: str | None = None  # noqa: N815
    volumeMode: str | None = None  # noqa: N815
    awsElasticBlockStore: Raw | UnsetType = UNSET  # noqa: N815
    azureDisk: Raw | UnsetType = UNSET  # noqa: N815
    azureFile: Raw | UnsetType = UNSET  # noqa: N815
    cinder: Raw | UnsetType = UNSET
    gcePersistentDisk: Raw | UnsetType = UNSET  # noqa: N815
    portworxVolume: Raw | UnsetType = UNSET  # noqa: N815
    vsphereVolume: Raw | UnsetType = UNSET  # noqa: N815


class VolumeStatus(Struct, frozen=True):
    """`status` of a volume."""

    phase: str | None = None


class Volume(Struct, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(Struct, frozen=True):
    """A requirement of `allowedTopologies`: the label has one of the values."""

    key: str
    values: list[str] = []


class TopologyTerm(Struct, frozen=True):
    """A term of `allowedTopologies` holds if all of its requirements hold."""

    matchLabelExpressions: list[TopologyRequirement] | None = None  # noqa: N815


class StorageClass(Struct, frozen=True):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volumeBindingMode: str | None = None  # noqa: N815
    allowedTopologies: list[TopologyTerm] | None = None  # noqa: N815


class DriverLimit(Struct, frozen=True):
    """`allocatable` of a driver on a node; without a count there is no limit."""

    count: int | None = None


class NodeDriver(Struct, frozen=True):
    """An entry of `spec.drivers` of a CSINode."""

    name: str
    allocatable: DriverLimit | None = None


class CsiNodeSpec(Struct, frozen=True):
    """`spec` of a CSINode."""

    drivers: list[NodeDriver] | None = None


class CsiNode(Struct, frozen=True):
    """A CSINode: the drivers on the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(Struct, frozen=True):
    """`spec` of a CSIDriver."""

    storageCapacity: bool | None = None  # noqa: N815


class CsiDriver(Struct, frozen=True):
    """A CSIDriver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacity(Struct, frozen=True):
    """A CSIStorageCapacity: the free space of a class for the nodes of a topology."""

    metadata: ObjectMeta = ObjectMeta()
    storageClassName: str = ""  # noqa: N815
    capacity: str | int | float | None = None
    maximumVolumeSize: str | int | float | None = None  # noqa: N815
    nodeTopology: LabelSelector | None = None  # noqa: N815


class AttachmentSource(Struct, frozen=True):
    """`spec.source` of a VolumeAttachment."""

    persistentVolumeName: str | None = None  # noqa: N815


class AttachmentSpec(Struct, frozen=True):
    """`spec` of a VolumeAttachment."""

    attacher: str = ""
    nodeName: str = ""  # noqa: N815
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Struct, frozen=True):
    """A VolumeAttachment: a volume that is attached to a node, or is being attached or detached."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AttachmentSpec = AttachmentSpec()
