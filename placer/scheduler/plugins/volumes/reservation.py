"""The volumes that a placed pod binds: assumed at once, so that no later decision gives them away.

What always holds: an assumption is dropped when its write did not happen. After the write the watch replaces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from placer.core.mounts import ClaimKey, Mounts
from placer.scheduler.plugins.volumes.index import Volumes
from placer.scheduler.plugins.volumes.matching import is_reserved
from placer.scheduler.plugins.volumes.storage import key_of
from plimsoll.ids import NodeName
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.kube.storage_models import SELECTED_NODE, Claim, Volume


@dataclass(slots=True)
class VolumeStep:
    """A claim that gets a volume which exists.

    Attributes:
        volume: the volume as assumed, in the version in which it is written.
        claim: the claim.
        is_open: the volume has yet to be written.
        version: the resourceVersion that the write gave; empty before.
    """

    volume: Volume
    claim: ClaimKey
    is_open: bool
    version: str = ""


@dataclass(slots=True)
class ClaimStep:
    """A claim for which a volume is made; see `VolumeStep`."""

    assumed: Claim
    is_open: bool
    version: str = ""

    @property
    def claim(self) -> ClaimKey:
        """The claim."""
        return key_of(self.assumed.metadata)


@dataclass(slots=True)
class VolumeReservation:
    """The volumes of one pod on its node.

    Attributes:
        pod: the pod's metadata.
        node: its node.
        volumes, claims: the claims to bind.
        problem: the reason why the node no longer offers the volumes; empty if it does.
    """

    pod: ObjectMeta
    node: NodeName
    volumes: list[VolumeStep] = field(default_factory=list)
    claims: list[ClaimStep] = field(default_factory=list)
    problem: str = ""


def reserve(
    volumes: Volumes, pod: Pod, mounts: Mounts, node: NodeName, labels: Mapping[str, str]
) -> VolumeReservation | None:
    """Assume that the unbound claims of a pod are bound for its node; None for a pod without such claims."""
    offered = volumes.offered(pod, mounts, node, labels)
    if offered.reasons:
        return VolumeReservation(pod.metadata, node, problem=", ".join(offered.reasons))
    if not (offered.matches or offered.provisions):
        return None
    made = VolumeReservation(pod.metadata, node)
    for one in offered.matches:
        ref = one.volume.api.spec.claimRef
        if is_reserved(one.volume.api, one.claim) and ref is not None and ref.uid:
            made.volumes.append(VolumeStep(one.volume.api, key_of(one.claim.metadata), is_open=False))
            continue
        assumed = volumes.storage.assume_volume(one.volume.name, one.claim)
        made.volumes.append(VolumeStep(assumed, key_of(one.claim.metadata), is_open=True))
        volumes.volume_changed(one.volume, volumes.storage.shelf.volumes[one.volume.name])
    for claim in offered.provisions:
        key = key_of(claim.metadata)
        if SELECTED_NODE in (claim.metadata.annotations or {}):
            made.claims.append(ClaimStep(claim, is_open=False))
            continue
        made.claims.append(ClaimStep(volumes.storage.assume_claim(key, node), is_open=True))
        volumes.claim_changed(key)
    return made


def give_up(volumes: Volumes, reservation: VolumeReservation) -> None:
    """Drop the assumptions that were not written; what was written stays, as in kube-scheduler."""
    for step in reservation.volumes:
        if step.is_open:
            assumed = volumes.storage.shelf.volumes.get(step.volume.metadata.name)
            if volumes.storage.restore_volume(step.volume):
                name = step.volume.metadata.name
                volumes.volume_changed(assumed, volumes.storage.shelf.volumes.get(name))
    for one in reservation.claims:
        if one.is_open and volumes.storage.restore_claim(one.assumed):
            volumes.claim_changed(one.claim)
