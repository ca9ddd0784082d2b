"""The plugins for volumes in kube-scheduler's order: VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone.

What always holds: an answer for one node costs as much as the pod has claims and the node has labels and volumes,
however many volumes and nodes there are.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Final

from placer.core.mounts import Mounts
from placer.scheduler.plugins import node_volume_limits, volume_restrictions, volume_zone
from placer.scheduler.plugins.volume_binding.pod_volumes import (
    AssumedVolumes,
    PodClaims,
    assume,
    claims_of,
    find_volumes,
)
from placer.scheduler.plugins.volumes.objects import NO_PROVISIONER, Label, UnboundClaim
from placer.scheduler.plugins.volumes.store import PodChanges, VolumeStore
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod

CLAIMS_KEPT: Final = 1000
"""The pods whose claims are kept as they were read last."""


class VolumePlugins:
    """The plugins over the volumes of one cluster. Not thread-safe: one event loop owns it.

    Attributes:
        store: the objects.
    """

    def __init__(
        self,
        on_change: Callable[[NodeName], None],
        on_gain: Callable[[NodeName | None], None],
        nodes_with: Callable[[Label], Collection[NodeName]],
    ) -> None:
        """Without objects; see `VolumeStore`."""
        self.store = VolumeStore(on_change, on_gain, nodes_with)
        self._claims: dict[PodUid, tuple[int, PodClaims]] = {}

    def pre_filter(self, pod: Pod, mounts: Mounts) -> str | None:
        """The reason why a pod has to wait for its claims, whatever the nodes are; or None."""
        return self._claims_of(pod, mounts).problem if mounts else None

    def state(self, pod: Pod, mounts: Mounts) -> Hashable:
        """Equal for pods, and at times, for which the answers on all nodes are equal."""
        return self._claims_of(pod, mounts).state if mounts else None

    def filter(
        self,
        pod: Pod,
        mounts: Mounts,
        node: NodeName,
        labels: Mapping[str, str],
        changes: PodChanges | None = None,
    ) -> tuple[str, ...]:
        """The reasons of the first plugin for which a node is unfit for a pod; empty for a fit node.

        Args:
            pod: the pod.
            mounts: `mounts_of` the pod.
            node: the node.
            labels: the node's.
            changes: pods that are removed from the node, or added to it; None for none.
        """
        if not mounts:
            return ()
        claims = self._claims_of(pod, mounts)
        return next((one for one in self._reasons(claims, mounts, node, labels, changes) if one), ())

    def lacks_driver(self, node: NodeName) -> tuple[str, ...]:
        """The reason why a node is unfit for a pod with our inline volume; empty where the broker serves it."""
        return node_volume_limits.lacks_driver(self.store, node)

    def nodes_for(self, pod: Pod, mounts: Mounts, most: int) -> list[NodeName] | None:
        """The only nodes that a pod's claims allow, or the first of these; None if they are many, or not limited."""
        if not mounts.claims:
            return None
        claims = self._claims_of(pod, mounts)
        labels = [one.node_labels for one in claims.bound if one is not None]
        named = [self.store.nodes_of(one, most) for one in labels if one is not None]
        named += [self._nodes_for(one, most) for one in claims.unbound]
        return min((nodes for nodes in named if nodes is not None), key=len, default=None)

    def reserve(
        self, pod: Pod, mounts: Mounts, node: NodeName, labels: Mapping[str, str]
    ) -> AssumedVolumes | None:
        """Assume that the claims of a pod are bound for its node; None for a pod without unbound claims."""
        if not mounts.claims:
            return None
        found = find_volumes(self._claims_of(pod, mounts), self.store, node, labels)
        return assume(self.store, pod, found, node)

    def pod_assigned(self, node: NodeName, mounts: Mounts) -> None:
        """Count the mounts of a pod that has a node now; the caller notes the change of the node."""
        if mounts:
            self.store.pod_assigned(node, mounts)

    def pod_unassigned(self, node: NodeName, mounts: Mounts) -> None:
        """Stop counting the mounts of a pod; the caller announces the gain of the node."""
        if mounts:
            self.store.pod_unassigned(node, mounts)

    def _reasons(
        self,
        claims: PodClaims,
        mounts: Mounts,
        node: NodeName,
        labels: Mapping[str, str],
        changes: PodChanges | None,
    ) -> Iterator[tuple[str, ...]]:
        """The reasons of each plugin, empty where it has none."""
        if claims.problem is not None:
            yield (claims.problem,)
            return
        yield _one(volume_restrictions.filter_node(self.store, mounts, claims.exclusive, node, changes))
        yield _one(node_volume_limits.filter_node(self.store, mounts, node, changes))
        yield find_volumes(claims, self.store, node, labels).reasons
        bound = (one.api.metadata.labels or {} for one in claims.bound if one is not None)
        yield _one(volume_zone.filter_node(bound, labels))

    def _claims_of(self, pod: Pod, mounts: Mounts) -> PodClaims:
        uid = PodUid(pod.metadata.uid)
        known = self._claims.get(uid)
        if known is None or known[0] != self.store.serial:
            if len(self._claims) >= CLAIMS_KEPT:
                self._claims.clear()
            known = self._claims[uid] = (self.store.serial, claims_of(pod, mounts, self.store))
        return known[1]

    def _nodes_for(self, claim: UnboundClaim, most: int) -> list[NodeName] | None:
        """The nodes that can have an unbound claim, or this many of them; None if that is not known."""
        if claim.selected_node is not None:
            return [NodeName(claim.selected_node)]
        storage_class = self.store.classes.get(claim.class_name)
        is_made_by_hand = storage_class is not None and storage_class.provisioner in ("", NO_PROVISIONER)
        if not is_made_by_hand or self.store.free.reserved_for(claim.key):
            return None
        found: dict[NodeName, None] = {}
        for labels in self.store.free.node_labels(claim.class_name):
            nodes = None if labels is None else self.store.nodes_of(labels, most)
            if nodes is None:
                return None
            found.update(dict.fromkeys(nodes))
            if len(found) >= most:
                break  # this many unfit nodes make no refusal final, and then all nodes are read
        return list(found)[:most]


def _one(reason: str | None) -> tuple[str, ...]:
    return () if reason is None else (reason,)
