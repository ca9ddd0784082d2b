"""The plugins for volumes in kube-scheduler's order: VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone.

What always holds: an answer for one node costs as much as the pod has claims and the node has labels and volumes,
however many volumes and nodes there are.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

from placer.core.mounts import Mounts
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from placer.scheduler.plugins.volume_binding import (
    AssumedVolumes,
    PodClaims,
    assume,
    claims_of,
    find_volumes,
)
from placer.scheduler.plugins.volumes.objects import NO_PROVISIONER, UnboundClaim
from placer.scheduler.plugins.volumes.store import PodChanges, VolumeStore
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod

CLAIMS_KEPT: Final = 1000
"""The pods whose claims are kept as they were read last."""


class VolumePlugins(Plugin[PodInfo]):
    """The plugins over the volumes of one cluster.

    Attributes:
        store: the objects.
    """

    name: ClassVar = "VolumeBinding"
    causes: ClassVar = dict.fromkeys(
        (
            *(volume_restrictions.DISK_CONFLICT, volume_restrictions.IN_USE, node_volume_limits.TOO_MANY),
            *(
                volume_binding.NODE_AFFINITY,
                volume_binding.NO_VOLUME,
                volume_binding.NO_SPACE,
                volume_binding.VOLUME_GONE,
            ),
            volume_zone.ZONE_CONFLICT,
        ),
        Cause.VOLUMES,
    )
    resolvable: ClassVar = frozenset(
        {volume_restrictions.DISK_CONFLICT, volume_restrictions.IN_USE, node_volume_limits.TOO_MANY}
    )

    def __init__(self, store: VolumeStore) -> None:
        """Filter by these objects; the cache tells of its pods (`Cache.observers`)."""
        self.store = store
        self._claims: dict[PodUid, tuple[int, PodClaims]] = {}

    def pre_filter(self, info: PodInfo) -> PodInfo | None:
        """None for a pod without such volumes."""
        return info if info.needs.mounts else None

    def sign(self, info: PodInfo) -> object:  # noqa: ARG002 - see there
        """Nothing: the answers depend on objects that change, see `state`."""
        return None

    def filter(self, wanted: PodInfo, node: NodeInfo) -> tuple[str, ...]:
        """The reasons of the first plugin that has any."""
        changes = _pod_changes(node.removed.values(), node.nominated)
        name = NodeName(node.node.metadata.name)
        return self.reasons(wanted.pod, wanted.needs.mounts, name, node.labels, changes)

    def gains(self, node: Node, old: Node) -> Cause:
        """With other labels, the node may reach a volume."""
        return Cause.VOLUMES if node.metadata.labels != old.metadata.labels else NOTHING

    def pod_changed(self, old: AssignedPod | None, now: AssignedPod | None) -> None:
        """Count the volumes of a pod with a node."""
        if old is not None and now is not None and (old.node, old.needs) == (now.node, now.needs):
            return
        if old is not None and old.needs.mounts:
            self.store.pod_unassigned(old.node, old.needs.mounts)
        if now is not None and now.needs.mounts:
            self.store.pod_assigned(now.node, now.needs.mounts)

    def node_changed(self, name: NodeName, old: NodeInfo | None, now: NodeInfo | None) -> None:
        """A node's labels are read when they are asked for."""

    def nomination_changed(self) -> None:
        """Nominated pods are read when they are asked for."""

    def problem(self, pod: Pod, mounts: Mounts) -> str | None:
        """The reason why a pod has to wait for its claims, whatever the nodes are; or None."""
        return self._claims_of(pod, mounts).problem if mounts else None

    def state(self, pod: Pod, mounts: Mounts) -> Hashable:
        """Equal for pods, and at times, for which the answers on all nodes are equal."""
        return self._claims_of(pod, mounts).state if mounts else None

    def reasons(
        self,
        pod: Pod,
        mounts: Mounts,
        node: NodeName,
        labels: Mapping[str, str],
        changes: PodChanges | None = None,
    ) -> tuple[str, ...]:
        """The reasons of the first plugin for which a node with these labels is unfit; empty for a fit node.

        `changes` are pods that are removed from the node, or added to it.
        """
        claims = self._claims_of(pod, mounts)
        return next((one for one in self._reasons(claims, mounts, node, labels, changes) if one), ())

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


def _pod_changes(removed: Iterable[AssignedPod], nominated: Iterable[Nomination]) -> PodChanges | None:
    """The volumes of pods that are removed from a node, or added; None if they have none."""
    less = [one.needs.mounts for one in removed if one.needs.mounts]
    more = [one.needs.mounts for one in nominated if one.needs.mounts]
    return PodChanges(less, more) if less or more else None
