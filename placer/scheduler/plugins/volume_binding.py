"""VolumeBinding: the volumes of a pod's claims, those that exist (static) and those that are made (dynamic).

Here: the claims of a pod, the volumes for them on one node, and what is assumed once the pod has this node. Not here:
the writes that bind claims before their pod (`placer.scheduler.binding.volumes`).

Follows Kubernetes 1.36: the `PreFilter` of the plugins `volumerestrictions`, `volumebinding` and `volumezone`, in
this order; `FindPodVolumes` and `AssumePodVolumes` of `volumebinding`; and
`component-helpers/storage/volume.FindMatchingVolume`, but that among equal volumes the first name is taken. Pure.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import msgspec

from placer.core.mounts import ClaimKey, ClaimUse, Mounts
from placer.scheduler.plugins.volume_restrictions import is_exclusive
from placer.scheduler.plugins.volumes.objects import (
    MIGRATED_PROVISIONERS,
    PersistentVolume,
    UnboundClaim,
    can_provision,
    class_of,
    is_bound,
    is_reserved,
    key_of,
    read_unbound,
    read_volume,
)
from placer.scheduler.plugins.volumes.store import VolumeStore
from plimsoll.ids import NodeName
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.kube.storage_models import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, ClaimRef, Volume

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
NODE_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_WAIT: Final = "WaitForFirstConsumer"
"""The mode of a class whose claims are bound once a pod has a node."""
_FILESYSTEM: Final = "Filesystem"
"""The mode of claims and volumes that name none."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod.

    Attributes:
        problem: the reason why the pod has to wait, whatever the nodes are; or None.
        bound: the volumes of bound claims; None for a volume that does not exist.
        unbound: the unbound claims, those that ask for least first.
        exclusive: the claims that one pod at a time may use.
        state: equal for pods, and at times, for which the same volumes are available.
    """

    problem: str | None = None
    bound: tuple[PersistentVolume | None, ...] = ()
    unbound: tuple[UnboundClaim, ...] = ()
    exclusive: tuple[ClaimKey, ...] = ()
    state: Hashable = None


def claims_of(pod: Pod, mounts: Mounts, store: VolumeStore) -> PodClaims:
    """Read the claims of a pod; `mounts` are its."""
    problem = next(_problems(pod, mounts, store), None)
    if problem is not None:
        return PodClaims(problem, state=(problem, mounts.claims))
    bound: list[PersistentVolume | None] = []
    unbound: list[UnboundClaim] = []
    state: list[Hashable] = [mounts.disks]
    exclusive: list[ClaimKey] = []
    for use in mounts.claims:
        claim = store.claims.get(use.claim)
        assert claim is not None, "a missing claim is a problem"
        if is_exclusive(claim) and not use.ephemeral:
            exclusive.append(use.claim)
        if is_bound(claim):
            volume = store.volumes.get(claim.spec.volumeName)
            bound.append(volume)
            meta = volume.api.metadata if volume is not None else None
            state.append((use.claim, meta and (meta.uid, meta.name, meta.resourceVersion)))
        else:
            one = read_unbound(claim)
            unbound.append(one)
            state.append((_own_state(one, store), one.shape, store.class_serials[one.class_name]))
    unbound.sort(key=lambda one: one.requested or 0)
    state.append(any(store.has_pod(claim) for claim in exclusive))
    return PodClaims(None, tuple(bound), tuple(unbound), tuple(exclusive), tuple(state))


def _own_state(claim: UnboundClaim, store: VolumeStore) -> Hashable:
    """The traits that set an unbound claim apart from others of its shape; None if it has none, as most."""
    reserved = tuple(
        (one.name, one.api.metadata.resourceVersion) for one in store.free.reserved_for(claim.key)
    )
    if claim.selected_node is None and not reserved and not store.is_used(claim.key):
        return None
    return claim.key, claim.api.metadata.uid, claim.selected_node, reserved


def _problems(pod: Pod, mounts: Mounts, store: VolumeStore) -> Iterator[str]:
    """The reasons why the pod has to wait; kube-scheduler gives the first of them."""
    claims = [(use, store.claims.get(use.claim)) for use in mounts.claims]
    for use, claim in claims:
        if claim is None and not use.ephemeral:
            yield f'persistentvolumeclaim "{use.claim.name}" not found'
    for use, claim in claims:
        yield from _unusable(pod, use, claim)
    there = [(use, claim) for use, claim in claims if claim is not None]
    for _, claim in there:
        if not is_bound(claim):
            storage_class = store.class_of(claim)
            if storage_class is None or storage_class.volumeBindingMode != _WAIT or claim.spec.volumeName:
                yield UNBOUND
    for use, claim in there:
        name = claim.spec.volumeName
        if name and not use.ephemeral and name not in store.volumes:
            yield f'persistentvolume "{name}" not found'
    for _, claim in there:
        yield from _migrated(claim, store)


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
    owners = claim.metadata.ownerReferences or ()
    owner = next((one.uid for one in owners if one.controller), None)
    if use.ephemeral and owner != pod.metadata.uid:
        where = f"{use.claim.namespace}/{name}"
        yield f"PVC {where} was not created for pod {pod.full_name} (pod is not owner)"


def _migrated(claim: Claim, store: VolumeStore) -> Iterator[str]:
    """Volumes of kinds that are not handled here; kube-scheduler translates them into those of their CSI drivers."""
    volume = store.volumes.get(claim.spec.volumeName)
    if volume is not None and volume.migrated_source is not None:
        yield (
            f'persistentvolume "{volume.name}" has the source {volume.migrated_source}, which the plimsoll '
            "scheduler does not handle; make the volume anew for its CSI driver, or let kube-scheduler place the pod"
        )
    storage_class = store.class_of(claim)
    if (
        not is_bound(claim)
        and storage_class is not None
        and storage_class.provisioner in MIGRATED_PROVISIONERS
    ):
        name = class_of(claim.metadata, claim.spec.storageClassName)
        yield (
            f'storageclass "{name}" has the provisioner {storage_class.provisioner}, which the plimsoll '
            f"scheduler does not handle; name its CSI driver {MIGRATED_PROVISIONERS[storage_class.provisioner]}"
        )


@dataclass(slots=True)
class StaticBinding:
    """A claim that gets a volume which exists.

    Attributes:
        claim: the claim.
        volume: the volume; once `needs_write`, as assumed, in the version in which it is written.
        needs_write: the volume does not name the claim yet.
        version: the resourceVersion that the write gave; empty before.
    """

    claim: Claim
    volume: PersistentVolume
    needs_write: bool = False
    version: str = ""


@dataclass(slots=True)
class DynamicProvision:
    """A claim for which a volume is made; see `StaticBinding`."""

    claim: Claim
    needs_write: bool = False
    version: str = ""


@dataclass(slots=True)
class PodVolumes:
    """The volumes for a pod's unbound claims on one node.

    Attributes:
        reasons: the reasons why the node is unfit; else empty.
        static: the claims that get a volume which exists.
        dynamic: the claims for which a volume is made.
    """

    reasons: tuple[str, ...] = ()
    static: list[StaticBinding] = field(default_factory=list)
    dynamic: list[DynamicProvision] = field(default_factory=list)


def find_volumes(
    claims: PodClaims, store: VolumeStore, node: NodeName, labels: Mapping[str, str]
) -> PodVolumes:
    """The volumes for a pod's claims on a node with these labels, or the reasons why it is unfit for them."""
    unreached = [one for one in claims.bound if one is None or not one.reaches(labels)]
    found = _for_unbound(claims.unbound, store, node, labels)
    if not unreached:
        return found
    if unreached[0] is None:
        return PodVolumes((*found.reasons, VOLUME_GONE))
    return PodVolumes((NODE_AFFINITY, *found.reasons))


def _for_unbound(
    claims: Collection[UnboundClaim], store: VolumeStore, node: NodeName, labels: Mapping[str, str]
) -> PodVolumes:
    if any(one.selected_node not in (None, node) for one in claims):
        return PodVolumes((NO_VOLUME,))
    static: dict[str, StaticBinding] = {}
    provisioned = [one for one in claims if one.selected_node is not None]
    for one in claims:
        if one.selected_node is None:
            volume = find_matching_volume(one, labels, store, static.keys())
            if volume is None:
                provisioned.append(one)
            else:
                static[volume.name] = StaticBinding(one.api, volume)
    for one in provisioned:
        storage_class = store.classes.get(one.class_name)
        if storage_class is None or not can_provision(storage_class, labels):
            return PodVolumes((NO_VOLUME,))
        if storage_class.provisioner in store.measured and not store.has_space(one, labels):
            return PodVolumes((NO_SPACE,))
    return PodVolumes((), list(static.values()), [DynamicProvision(one.api) for one in provisioned])


def find_matching_volume(
    claim: UnboundClaim, labels: Mapping[str, str], store: VolumeStore, taken: Collection[str]
) -> PersistentVolume | None:
    """The smallest volume that suits a claim, if its pod goes to a node with these labels; None if no volume suits.

    A volume that names the claim comes first. `taken` are the names of volumes that other claims of the pod get.
    """
    for volume in store.free.reserved_for(claim.key):
        if volume.name not in taken and is_reserved(volume.api, claim.api) and _suits(claim, volume):
            return volume if volume.reaches(labels) else None
    best: PersistentVolume | None = None
    for volumes in store.free.on(claim.class_name, labels, claim.requested or Fraction(0)):
        for volume in volumes:
            if volume.name not in taken and _suits(claim, volume) and _is_selected(claim, volume):
                if best is None or (volume.capacity, volume.name) < (best.capacity, best.name):
                    best = volume
                break
    return best


def _suits(claim: UnboundClaim, volume: PersistentVolume) -> bool:
    wanted, given = claim.api.spec, volume.api.spec
    return (
        volume.class_name == claim.class_name
        and volume.capacity >= (claim.requested or 0)
        and (wanted.volumeMode or _FILESYSTEM) == (given.volumeMode or _FILESYSTEM)
        and (wanted.volumeAttributesClassName or "") == (given.volumeAttributesClassName or "")
        and volume.api.metadata.deletionTimestamp is None
    )


def _is_selected(claim: UnboundClaim, volume: PersistentVolume) -> bool:
    """Whether a claim that no volume names selects this volume, and may use it in each of its ways."""
    labels, modes = volume.api.metadata.labels or {}, volume.api.spec.accessModes or ()
    return (claim.selector is None or claim.selector.matches(labels)) and all(
        mode in modes for mode in claim.api.spec.accessModes or ()
    )


@dataclass(slots=True)
class AssumedVolumes:
    """The volumes of one pod on its node, as they were assumed.

    Attributes:
        pod: the pod's metadata.
        node: its node.
        volumes: the claims to bind.
    """

    pod: ObjectMeta
    node: NodeName
    volumes: PodVolumes


def assume(store: VolumeStore, pod: Pod, found: PodVolumes, node: NodeName) -> AssumedVolumes | None:
    """Assume that the unbound claims of a pod are bound for its node; None for a pod without such claims.

    After the write, the watch replaces the assumption.
    """
    if not (found.reasons or found.static or found.dynamic):
        return None
    for one in found.static:
        ref = one.volume.api.spec.claimRef
        if not (is_reserved(one.volume.api, one.claim) and ref is not None and ref.uid):
            one.volume, one.needs_write = read_volume(_bound_to(one.volume.api, one.claim)), True
            store.volumes.assume(one.volume.name, one.volume)
    for claim in found.dynamic:
        meta = claim.claim.metadata
        annotations = meta.annotations or {}
        if SELECTED_NODE not in annotations:
            meta = msgspec.structs.replace(meta, annotations={**annotations, SELECTED_NODE: node})
            claim.claim, claim.needs_write = msgspec.structs.replace(claim.claim, metadata=meta), True
            store.claims.assume(key_of(meta), claim.claim)
    return AssumedVolumes(pod.metadata, node, found)


def revert(store: VolumeStore, assumed: AssumedVolumes) -> None:
    """Drop the assumptions that were not written; what was written stays, as in kube-scheduler."""
    for one in assumed.volumes.static:
        if one.needs_write and not one.version:
            store.volumes.restore(one.volume.name, one.volume)
    for claim in assumed.volumes.dynamic:
        if claim.needs_write and not claim.version:
            store.claims.restore(key_of(claim.claim.metadata), claim.claim)


def _bound_to(volume: Volume, claim: Claim) -> Volume:
    meta = claim.metadata
    annotations = volume.metadata.annotations or {}
    if volume.spec.claimRef is None:  # else a person bound it
        annotations = {BOUND_BY_CONTROLLER: "yes", **annotations}
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
        spec=msgspec.structs.replace(volume.spec, claimRef=ClaimRef(meta.namespace, meta.name, meta.uid)),
    )
