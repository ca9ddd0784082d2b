"""Storage objects as the watches show them, and pods that use claims."""

from typing import Any

import msgspec

from placer.scheduler.plugins.volume_plugins import VolumePlugins
from placer.scheduler.plugins.volumes.store import VolumeStore
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import Claim, StorageClass, Volume

Document = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def no_volumes() -> VolumePlugins:
    """The plugins over a cluster without volumes and nodes."""
    return VolumePlugins(VolumeStore(lambda _: None, lambda _: None, lambda _: ()))


def claim_of(
    name: str = "c", meta: Document | None = None, status: Document | None = None, **spec: object
) -> Claim:
    """A claim of class `k` for 2 GiB."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **(meta or {})}
    resources = {"requests": {"storage": "2Gi"}}
    full = {"storageClassName": "k", "accessModes": ["RWO"], "resources": resources, **spec}
    return msgspec.convert({"metadata": metadata, "spec": full, "status": status or {}}, Claim)


def bound_claim(name: str, volume: str, mode: str = "RWO") -> Claim:
    """A claim that is bound to a volume."""
    return claim_of(name, {"annotations": BOUND}, volumeName=volume, accessModes=[mode])


def volume_of(
    name: str, size: str = "2Gi", phase: str = "Available", meta: Document | None = None, **spec: object
) -> Volume:
    """A volume of class `k`."""
    metadata = {"name": name, "uid": name, "resourceVersion": "1", **(meta or {})}
    full = {"capacity": {"storage": size}, "storageClassName": "k", "accessModes": ["RWO", "RWX"], **spec}
    document = {"metadata": metadata, "spec": full, "status": {"phase": phase}}
    return msgspec.json.decode(msgspec.json.encode(document), type=Volume)


def class_of(
    name: str = "k", provisioner: str = "d", mode: str = "WaitForFirstConsumer", **more: object
) -> StorageClass:
    """A class."""
    document = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}
    return msgspec.convert(document, StorageClass)


def on_nodes_with(key: str, value: str) -> Document:
    """The affinity of a volume that the nodes with a label reach."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def using(*claims: str) -> list[Document]:
    """The volumes of a pod with these claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def user_of(name: str, *claims: str) -> Pod:
    """A pod that uses claims."""
    return msgspec.convert(
        {"metadata": {"name": name, "uid": name}, "spec": {"volumes": using(*claims)}}, Pod
    )
