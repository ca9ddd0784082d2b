"""The volume, of those that exist already, that suits an unbound claim on a node: the smallest that is large enough.

Follows Kubernetes 1.36, `component-helpers/storage/volume.FindMatchingVolume`. Among equals the first name is taken.
Pure.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction

from placer.scheduler.plugins.volumes.shelf import KnownVolume, Shelf
from placer.scheduler.plugins.volumes.wanted_volume import FILESYSTEM, WantedVolume
from plimsoll.kube.storage_models import Claim, Volume


def match(
    wanted: WantedVolume, labels: Mapping[str, str], shelf: Shelf, taken: Collection[str]
) -> KnownVolume | None:
    """The volume for a claim, if its pod goes to a node with these labels; None if no volume suits.

    Args:
        wanted: the claim's.
        labels: the labels of the node.
        shelf: all volumes.
        taken: the names of volumes that other claims of the pod get.
    """
    for volume in shelf.reserved_for(wanted.key):
        if volume.name not in taken and is_reserved(volume.api, wanted.claim) and _suits(wanted, volume):
            return volume if volume.reaches(labels) else None
    best: KnownVolume | None = None
    for volumes in shelf.free(wanted.class_name, labels, wanted.requested or Fraction(0)):
        for volume in volumes:
            if volume.name not in taken and _suits(wanted, volume) and _is_asked_for(wanted, volume):
                if best is None or (volume.capacity, volume.name) < (best.capacity, best.name):
                    best = volume
                break
    return best


def is_reserved(volume: Volume, claim: Claim) -> bool:
    """Whether a volume names this claim."""
    ref, meta = volume.spec.claimRef, claim.metadata
    if ref is None or (ref.namespace, ref.name) != (meta.namespace, meta.name):
        return False
    return ref.uid in ("", meta.uid)


def _suits(wanted: WantedVolume, volume: KnownVolume) -> bool:
    asked, given = wanted.claim.spec, volume.api.spec
    return (
        volume.class_name == wanted.class_name
        and volume.capacity >= (wanted.requested or 0)
        and (asked.volumeMode or FILESYSTEM) == (given.volumeMode or FILESYSTEM)
        and (asked.volumeAttributesClassName or "") == (given.volumeAttributesClassName or "")
        and volume.api.metadata.deletionTimestamp is None
    )


def _is_asked_for(wanted: WantedVolume, volume: KnownVolume) -> bool:
    """Whether a claim that no volume names selects this volume, and may use it in each of its ways."""
    modes = volume.api.spec.accessModes or ()
    return wanted.selects(volume.api.metadata.labels or {}) and all(
        mode in modes for mode in wanted.claim.spec.accessModes or ()
    )
