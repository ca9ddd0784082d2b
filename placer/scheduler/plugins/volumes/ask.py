"""The demands of a pod's claims on every node, or the reason why the pod has to wait for its claims first.

Follows Kubernetes 1.36: the `PreFilter` of the plugins `volumerestrictions`, `volumebinding` and `volumezone`, in
this order, with their texts. Pure.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from placer.core.mounts import ClaimKey, ClaimUse, Mounts
from placer.scheduler.plugins.volumes.provisioning import WAITS
from placer.scheduler.plugins.volumes.shelf import KnownVolume
from placer.scheduler.plugins.volumes.storage import MOVED_PROVISIONERS, Storage, moved_source
from placer.scheduler.plugins.volumes.users import Users
from placer.scheduler.plugins.volumes.wanted_volume import WantedVolume, class_of, wanted_volume
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import BIND_COMPLETED, Claim

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
ONE_POD: Final = "ReadWriteOncePod"
"""The access mode of a claim that one pod at a time may use."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The demands of a pod's claims on every node.

    Attributes:
        problem: the reason why the pod has to wait, whatever the nodes are; or None.
        bound: the volumes of bound claims; None for a volume that does not exist.
        wanted: the unbound claims, those that ask for least first.
        exclusive: the claims that one pod at a time may use.
        state: equal for pods, and at times, for which the same volumes are on offer.
    """

    problem: str | None = None
    bound: tuple[KnownVolume | None, ...] = ()
    wanted: tuple[WantedVolume, ...] = ()
    exclusive: tuple[ClaimKey, ...] = ()
    state: Hashable = None


def ask_of(pod: Pod, mounts: Mounts, storage: Storage, users: Users, serial_of: Callable[[str], int]) -> Ask:
    """Read a pod's claims.

    Args:
        pod: the pod.
        mounts: `mounts_of` the pod.
        storage: all storage objects.
        users: the pods with a node.
        serial_of: grows when the volumes on offer in a class change.
    """
    problem = next(_problems(pod, mounts, storage), None)
    if problem is not None:
        return Ask(problem, state=(problem, mounts.claims))
    bound: list[KnownVolume | None] = []
    wanted: list[WantedVolume] = []
    state: list[Hashable] = [mounts.disks]
    exclusive: list[ClaimKey] = []
    for use in mounts.claims:
        claim = storage.claims[use.claim]
        if ONE_POD in (claim.spec.accessModes or ()) and not use.ephemeral:
            exclusive.append(use.claim)
        if is_bound(claim):
            volume = storage.shelf.volumes.get(claim.spec.volumeName or "")
            bound.append(volume)
            meta = volume.api.metadata if volume is not None else None
            state.append((use.claim, meta and (meta.uid, meta.name, meta.resourceVersion)))
        else:
            one = wanted_volume(claim)
            wanted.append(one)
            state.append((_own_state(one, storage, users), one.shape, serial_of(one.class_name)))
    wanted.sort(key=lambda one: one.requested or 0)
    state.append(any(users.has_pod(claim) for claim in exclusive))
    return Ask(None, tuple(bound), tuple(wanted), tuple(exclusive), tuple(state))


def is_bound(claim: Claim) -> bool:
    """Whether the controller has bound a claim for good."""
    return bool(claim.spec.volumeName) and BIND_COMPLETED in (claim.metadata.annotations or {})


def _own_state(wanted: WantedVolume, storage: Storage, users: Users) -> Hashable:
    """The traits that set an unbound claim apart from others of its shape; None if it has none, as most."""
    reserved = tuple(
        (one.name, one.api.metadata.resourceVersion) for one in storage.shelf.reserved_for(wanted.key)
    )
    is_like_others = wanted.selected_node is None and not reserved and not any(users.nodes_of(wanted.key))
    return None if is_like_others else (wanted.key, wanted.claim.metadata.uid, wanted.selected_node, reserved)


def _problems(pod: Pod, mounts: Mounts, storage: Storage) -> Iterator[str]:
    """The reasons why the pod has to wait; kube-scheduler gives the first of them."""
    for use in mounts.claims:
        if not use.ephemeral and use.claim not in storage.claims:
            yield f'persistentvolumeclaim "{use.claim.name}" not found'
    for use in mounts.claims:
        yield from _unusable(pod, use, storage.claims.get(use.claim))
    for use in mounts.claims:
        claim = storage.claims[use.claim]
        if not is_bound(claim):
            storage_class = storage.class_of(claim)
            if storage_class is None or storage_class.volumeBindingMode != WAITS or claim.spec.volumeName:
                yield UNBOUND
    for use in mounts.claims:
        claim = storage.claims[use.claim]
        name = claim.spec.volumeName
        if name and not use.ephemeral and name not in storage.shelf.volumes:
            yield f'persistentvolume "{name}" not found'
    for use in mounts.claims:
        yield from _moved(storage.claims[use.claim], storage)


def _unusable(pod: Pod, use: ClaimUse, claim: Claim | None) -> Iterator[str]:
    name = use.claim.name
    if claim is None:
        yield f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return
    if claim.status.phase == "Lost":
        yield (
            f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
            f'"{claim.spec.volumeName or ""}"'
        )
    if claim.metadata.deletionTimestamp is not None:
        yield f'persistentvolumeclaim "{name}" is being deleted'
    if use.ephemeral and not _is_owned(claim, pod):
        where = f"{use.claim.namespace}/{name}"
        owner = pod.full_name
        yield f"PVC {where} was not created for pod {owner} (pod is not owner)"


def _is_owned(claim: Claim, pod: Pod) -> bool:
    owners = claim.metadata.ownerReferences or ()
    return next((one.uid for one in owners if one.controller), None) == pod.metadata.uid


def _moved(claim: Claim, storage: Storage) -> Iterator[str]:
    """Volumes of kinds that are not handled here; kube-scheduler translates them into those of their CSI drivers."""
    volume = storage.shelf.volumes.get(claim.spec.volumeName or "")
    source = moved_source(volume.api) if volume is not None else None
    if source is not None and volume is not None:
        yield (
            f'persistentvolume "{volume.name}" has the source {source}, which the plimsoll scheduler does not '
            "handle; make the volume anew for its CSI driver, or let kube-scheduler place the pod"
        )
    storage_class = storage.class_of(claim)
    if not is_bound(claim) and storage_class is not None and storage_class.provisioner in MOVED_PROVISIONERS:
        name = class_of(claim.metadata, claim.spec.storageClassName)
        yield (
            f'storageclass "{name}" has the provisioner {storage_class.provisioner}, which the plimsoll '
            f"scheduler does not handle; name its CSI driver {MOVED_PROVISIONERS[storage_class.provisioner]}"
        )
