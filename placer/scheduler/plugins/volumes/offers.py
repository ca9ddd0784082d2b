"""The volumes that a node offers to a pod's unbound claims: those that exist, and those that a class would make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from placer.scheduler.plugins.volumes.ask import Ask
from placer.scheduler.plugins.volumes.matching import match
from placer.scheduler.plugins.volumes.provisioning import allows
from placer.scheduler.plugins.volumes.reasons import NO_SPACE, NO_VOLUME, NODE_AFFINITY, VOLUME_GONE
from placer.scheduler.plugins.volumes.shelf import KnownVolume, known_volume
from placer.scheduler.plugins.volumes.storage import Storage
from placer.scheduler.plugins.volumes.wanted_volume import WantedVolume
from plimsoll.ids import NodeName
from plimsoll.kube.storage_models import Claim, Volume

_NO_VOLUME: Final = known_volume(Volume())
"""Stands for none of a pod's volumes."""


@dataclass(frozen=True, slots=True)
class Match:
    """A volume that exists, for a claim; both as they were before the decision."""

    volume: KnownVolume
    claim: Claim


@dataclass(frozen=True, slots=True)
class Offered:
    """The volumes that a node offers to a pod's unbound claims.

    Attributes:
        reasons: the reasons why the node is unfit; else empty.
        matches: the claims that get a volume which exists.
        provisions: the claims for which a volume is made.
    """

    reasons: tuple[str, ...] = ()
    matches: tuple[Match, ...] = ()
    provisions: tuple[Claim, ...] = ()


def offered(ask: Ask, storage: Storage, node: NodeName, labels: Mapping[str, str]) -> Offered:
    """The volumes that a node offers to a pod's unbound claims, or the reasons why it is unfit for its claims.

    Args:
        ask: the pod's claims.
        storage: the cluster's volumes.
        node: the node.
        labels: the node's.
    """
    failed = next((one for one in ask.bound if one is None or not one.reaches(labels)), _NO_VOLUME)
    new = _for_unbound(ask.wanted, storage, node, labels)
    if failed is _NO_VOLUME:
        return new
    if failed is None:
        return Offered((*new.reasons, VOLUME_GONE))
    return Offered((NODE_AFFINITY, *new.reasons))


def _for_unbound(
    wanted: tuple[WantedVolume, ...], storage: Storage, node: NodeName, labels: Mapping[str, str]
) -> Offered:
    if any(one.selected_node not in (None, node) for one in wanted):
        return Offered((NO_VOLUME,))
    matches: dict[str, Match] = {}
    provisions = [one for one in wanted if one.selected_node is not None]
    for one in wanted:
        if one.selected_node is None:
            volume = match(one, labels, storage.shelf, matches.keys())
            if volume is None:
                provisions.append(one)
            else:
                matches[volume.name] = Match(volume, one.claim)
    for one in provisions:
        storage_class = storage.classes.get(one.class_name)
        if storage_class is None or not allows(storage_class, labels):
            return Offered((NO_VOLUME,))
        is_measured = storage_class.provisioner in storage.measured
        if is_measured and not storage.spaces.suffice(one, labels):
            return Offered((NO_SPACE,))
    return Offered((), tuple(matches.values()), tuple(one.claim for one in provisions))
