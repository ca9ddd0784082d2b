"""The volumes of a pod that tie it to nodes: claims, and disks that the pod names itself.

What always holds: an ephemeral volume is a claim too. Its claim has the names of pod and volume, and belongs to the
pod. Follows Kubernetes 1.36, `component-helpers/storage/ephemeral` and `plugins/volumerestrictions`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from plimsoll.kube.models import Pod


class ClaimKey(NamedTuple):
    """A PersistentVolumeClaim by its name."""

    namespace: str
    name: str


class ClaimUse(NamedTuple):
    """A claim that a pod uses.

    Attributes:
        claim: the claim.
        ephemeral: whether the claim is made for this pod alone.
    """

    claim: ClaimKey
    ephemeral: bool


class Disk(NamedTuple):
    """A disk that a pod names in its own spec, without a claim.

    Attributes:
        names: names of the disk; two disks with a common name are the same.
        writes: whether the pod mounts the disk for writing.
    """

    names: frozenset[tuple[str, ...]]
    writes: bool


@dataclass(frozen=True, slots=True)
class Mounts:
    """The volumes of a pod that tie it to nodes, each claim once, in the order of the pod's spec."""

    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.disks)


NO_MOUNTS: Final = Mounts()


def mounts_of(pod: Pod) -> Mounts:
    """The volumes of a pod that tie it to nodes; nearly all pods have none."""
    if not pod.spec.volumes:
        return NO_MOUNTS
    claims = dict.fromkeys(_claims(pod))
    disks = tuple(_disks(pod))
    return Mounts(tuple(claims), disks) if claims or disks else NO_MOUNTS


def _claims(pod: Pod) -> Iterator[ClaimUse]:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes or ():
        source = volume.get("persistentVolumeClaim")
        if source is not None:
            yield ClaimUse(ClaimKey(namespace, str(source.get("claimName", ""))), ephemeral=False)
        elif volume.get("ephemeral") is not None:
            yield ClaimUse(
                ClaimKey(namespace, f"{pod.metadata.name}-{volume.get('name', '')}"), ephemeral=True
            )


def _disks(pod: Pod) -> Iterator[Disk]:
    for volume in pod.spec.volumes or ():
        for kind, names_of in (("iscsi", _iscsi_names), ("rbd", _rbd_names)):
            source: Mapping[str, Any] | None = volume.get(kind)
            if source is not None:
                yield Disk(frozenset(names_of(source)), writes=not source.get("readOnly"))


def _iscsi_names(source: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "iscsi", str(source.get("iqn", ""))


def _rbd_names(source: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The names of a Ceph image: two pods see the same image if they share a monitor, the pool and the name."""
    for monitor in source.get("monitors") or ():
        yield "rbd", str(monitor), str(source.get("pool", "rbd")), str(source.get("image", ""))
