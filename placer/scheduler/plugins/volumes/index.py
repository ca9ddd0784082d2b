"""The answers of the cluster's volumes: which nodes a pod's claims allow, and what its placement binds.

What always holds: an answer for one node costs as much as the pod has claims and the node has labels and volumes,
however many volumes and nodes there are. A change of an object takes back the verdicts that depend on it, and wakes
the pods that it may help: on a few nodes by their names, else on all.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final

from placer.core.mounts import ClaimKey, Mounts
from placer.scheduler.plugins.volumes.ask import Ask, ask_of
from placer.scheduler.plugins.volumes.limits import Attachable, Attached, attached, exceeds, limits_of
from placer.scheduler.plugins.volumes.offers import Offered, offered
from placer.scheduler.plugins.volumes.pinned import Pair, Pairs
from placer.scheduler.plugins.volumes.provisioning import NO_PROVISIONER, FreeSpace, free_space
from placer.scheduler.plugins.volumes.reasons import DISK, IN_USE, LIMIT, NO_DRIVER, ZONE
from placer.scheduler.plugins.volumes.shelf import KnownVolume
from placer.scheduler.plugins.volumes.storage import Storage, key_of
from placer.scheduler.plugins.volumes.users import Moves, Users
from placer.scheduler.plugins.volumes.wanted_volume import WantedVolume
from placer.scheduler.plugins.volumes.zones import is_elsewhere
from plimsoll.broker.volume import DRIVER
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import (
    Claim,
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)

FEW_NODES: Final = 16
"""A change that concerns this many nodes at most is noted for each; else it is noted for a whole class."""
ASKS: Final = 1000
"""The pods whose claims are kept as they were read last."""


class Volumes:
    """All volumes of one cluster, and the pods that use them. Not thread-safe: one event loop owns it.

    Attributes:
        storage: the objects.
        users: the pods with a node.
    """

    def __init__(
        self,
        on_change: Callable[[NodeName], None],
        on_gain: Callable[[NodeName | None], None],
        nodes_with: Callable[[Pair], Collection[NodeName]],
    ) -> None:
        """Make it without objects.

        Args:
            on_change: takes a node for which an answer may have changed.
            on_gain: takes a node that may have become fit for a pod's volumes; None: any node may have.
            nodes_with: gives the nodes with a label.
        """
        self.storage = Storage()
        self.users = Users()
        self._on_change = on_change
        self._on_gain = on_gain
        self._nodes_with = nodes_with
        self._on_claim: list[Callable[[ClaimKey], None]] = []
        self._on_any: list[Callable[[], None]] = []
        self._serial = 0
        self._serials: defaultdict[str, int] = defaultdict(int)
        self._asks: dict[PodUid, tuple[int, Ask]] = {}
        self._attached: dict[NodeName, Attached] = {}

    def on_claim(self, listener: Callable[[ClaimKey], None]) -> None:
        """Call `listener` with each claim that changed, or whose volume or pods did."""
        self._on_claim.append(listener)

    def on_any_claim(self, listener: Callable[[], None]) -> None:
        """Call `listener` when any claim may have changed, because a class did."""
        self._on_any.append(listener)

    def problem(self, pod: Pod, mounts: Mounts) -> str | None:
        """The reason why a pod has to wait for its claims, whatever the nodes are; or None."""
        return self._ask(pod, mounts).problem if mounts else None

    def state(self, pod: Pod, mounts: Mounts) -> Hashable:
        """Equal for pods, and at times, for which the answers on all nodes are equal."""
        return self._ask(pod, mounts).state if mounts else None

    def misfits(
        self,
        pod: Pod,
        mounts: Mounts,
        node: NodeName,
        labels: Mapping[str, str],
        moves: Moves | None = None,
    ) -> tuple[str, ...]:
        """The reasons why a node is unfit for a pod's volumes; of several kinds the first, as in kube-scheduler.

        Args:
            pod: the pod.
            mounts: `mounts_of` the pod.
            node: the node.
            labels: the node's.
            moves: pods that are left out on the node, or added to it; None for none.
        """
        if not mounts:
            return ()
        return next(self._obstacles(self._ask(pod, mounts), mounts, node, labels, moves), ())

    def lacks_driver(self, node: NodeName) -> tuple[str, ...]:
        """The reason why a node is unfit for a pod with our inline volume; empty where the broker serves it."""
        return () if node in self.storage.serving else (NO_DRIVER,)

    def tied(self, pod: Pod, mounts: Mounts, most: int) -> list[NodeName] | None:
        """The only nodes that a pod's claims allow, or the first of these; None if they are many, or not limited."""
        if not mounts.claims:
            return None
        ask = self._ask(pod, mounts)
        pairs = [one.pairs for one in ask.bound if one is not None]
        named = [self._nodes_of(one, most) for one in pairs if one is not None]
        named += [self._nodes_for(one, most) for one in ask.wanted]
        return min((nodes for nodes in named if nodes is not None), key=len, default=None)

    def offered(self, pod: Pod, mounts: Mounts, node: NodeName, labels: Mapping[str, str]) -> Offered:
        """The volumes for the unbound claims of a pod on a node."""
        return offered(self._ask(pod, mounts), self.storage, node, labels) if mounts.claims else Offered()

    def mount(self, node: NodeName, mounts: Mounts) -> None:
        """Count the mounts of a pod that has a node now; the caller notes the change of the node."""
        if mounts:
            self.users.add(node, mounts)
            self._serial += 1
            self._attached.pop(node, None)

    def unmount(self, node: NodeName, mounts: Mounts) -> None:
        """Stop counting the mounts of a pod; the caller announces the gain of the node."""
        if mounts:
            self.users.remove(node, mounts)
            self._serial += 1
            self._attached.pop(node, None)
            for use in mounts.claims:
                if not self.users.has_pod(use.claim):
                    self._tell(use.claim)

    def put_claim(self, claim: Claim) -> None:
        """Take a claim as a watch shows it."""
        self.storage.put_claim(claim)
        self.claim_changed(key_of(claim.metadata))

    def remove_claim(self, claim: Claim) -> None:
        """Remove a claim that is gone."""
        self.storage.remove_claim(key_of(claim.metadata))
        self.claim_changed(key_of(claim.metadata))

    def put_volume(self, volume: Volume) -> None:
        """Take a volume as a watch shows it."""
        self.volume_changed(*self.storage.put_volume(volume))

    def remove_volume(self, volume: Volume) -> None:
        """Remove a volume that is gone."""
        self.volume_changed(self.storage.remove_volume(volume.metadata.name), None)

    def put_class(self, storage_class: StorageClass) -> None:
        """Take a class that was added or changed."""
        self.storage.classes[storage_class.metadata.name] = storage_class
        self._class_changed()

    def remove_class(self, storage_class: StorageClass) -> None:
        """Remove a class that is gone."""
        self.storage.classes.pop(storage_class.metadata.name, None)
        self._class_changed()

    def put_node(self, node: CsiNode) -> None:
        """Take the drivers of a node."""
        name = NodeName(node.metadata.name)
        self.storage.limits[name] = limits_of(node)
        has_driver = any(driver.name == DRIVER for driver in node.spec.drivers or ())
        (self.storage.serving.add if has_driver else self.storage.serving.discard)(name)
        self._node_changed(name)

    def remove_node(self, node: CsiNode) -> None:
        """Forget the drivers of a node."""
        self.storage.limits.pop(NodeName(node.metadata.name), None)
        self.storage.serving.discard(NodeName(node.metadata.name))
        self._node_changed(NodeName(node.metadata.name))

    def put_driver(self, driver: CsiDriver) -> None:
        """Take a driver that was added or changed."""
        name, is_measured = driver.metadata.name, bool(driver.spec.storageCapacity)
        if is_measured == (name in self.storage.measured):
            return
        (self.storage.measured.add if is_measured else self.storage.measured.discard)(name)
        self._class_changed()

    def remove_driver(self, driver: CsiDriver) -> None:
        """Remove a driver that is gone; its free space does not count any more."""
        if driver.metadata.name in self.storage.measured:
            self.storage.measured.discard(driver.metadata.name)
            self._class_changed()

    def put_capacity(self, capacity: StorageCapacity) -> None:
        """Take a report of free space."""
        space = free_space(capacity)
        before = self.storage.spaces.put(key_of(capacity.metadata), space)
        self._space_changed(before, space)

    def remove_capacity(self, capacity: StorageCapacity) -> None:
        """Remove a report of free space."""
        self._space_changed(self.storage.spaces.remove(key_of(capacity.metadata)), None)

    def put_attachment(self, attachment: VolumeAttachment) -> None:
        """Take an attachment of a volume to a node."""
        self.storage.put_attachment(attachment)
        self._node_changed(NodeName(attachment.spec.nodeName))

    def remove_attachment(self, attachment: VolumeAttachment) -> None:
        """Remove an attachment."""
        self.storage.remove_attachment(attachment)
        self._node_changed(NodeName(attachment.spec.nodeName))

    def claim_changed(self, key: ClaimKey) -> None:
        """Take in that a claim changed, or what is assumed of it."""
        self._serial += 1
        for node in tuple(self.users.nodes_of(key)):
            self._node_changed(node)
        self._tell(key)

    def volume_changed(self, before: KnownVolume | None, now: KnownVolume | None) -> None:
        """Take in that a volume changed, or what is assumed of it."""
        self._serial += 1
        some = now or before
        if some is None:
            return
        for volume in (before, now):
            if volume is not None and volume.is_free:
                self._offer_changed(volume.class_name, volume.pairs, is_gain=volume is now)
        for node in self.storage.nodes_attaching(some.name):
            self._node_changed(node)
        refs = [one.api.spec.claimRef for one in (before, now) if one is not None]
        keys = {ClaimKey(ref.namespace, ref.name) for ref in refs if ref is not None}
        for key in sorted(keys | self.storage.named_by.get(some.name, set())):
            self.claim_changed(key)

    def _obstacles(
        self, ask: Ask, mounts: Mounts, node: NodeName, labels: Mapping[str, str], moves: Moves | None
    ) -> Iterator[tuple[str, ...]]:
        """The reasons of each kind that applies, in kube-scheduler's order."""
        if ask.problem is not None:
            yield (ask.problem,)
            return
        taken = self.users.disks_on(node, moves)
        if taken is not None and taken.clash(mounts.disks):
            yield (DISK,)
        if any(self.users.has_pod(claim, moves) for claim in ask.exclusive):
            yield (IN_USE,)
        if self._is_full(mounts, node, moves):
            yield (LIMIT,)
        offer = offered(ask, self.storage, node, labels)
        if offer.reasons:
            yield offer.reasons
        if is_elsewhere((one.zones for one in ask.bound if one is not None), labels):
            yield (ZONE,)

    def _ask(self, pod: Pod, mounts: Mounts) -> Ask:
        uid = PodUid(pod.metadata.uid)
        known = self._asks.get(uid)
        if known is None or known[0] != self._serial:
            if len(self._asks) >= ASKS:
                self._asks.clear()
            ask = ask_of(pod, mounts, self.storage, self.users, self._serials.__getitem__)
            known = self._asks[uid] = (self._serial, ask)
        return known[1]

    def _is_full(self, mounts: Mounts, node: NodeName, moves: Moves | None) -> bool:
        most = self.storage.limits.get(node)
        if not most or not mounts.claims:
            return False
        wanted = self._attachable(use.claim for use in mounts.claims)
        if not any(one.driver in most for one in wanted):
            return False
        known = self._attached.get(node) if moves is None else None
        if known is None:
            used = self._attachable(self.users.claims_on(node, moves))
            known = attached(used, self.storage.attached_to(node))
            if moves is None:
                self._attached[node] = known
        return exceeds(wanted, known, most)

    def _attachable(self, claims: Iterable[ClaimKey]) -> list[Attachable]:
        return [one for one in map(self.storage.attachable, claims) if one is not None]

    def _nodes_for(self, wanted: WantedVolume, most: int) -> list[NodeName] | None:
        """The nodes that can have an unbound claim, or this many of them; None if that is not known."""
        if wanted.selected_node is not None:
            return [NodeName(wanted.selected_node)]
        storage_class = self.storage.classes.get(wanted.class_name)
        is_made_by_hand = storage_class is not None and storage_class.provisioner in ("", NO_PROVISIONER)
        if not is_made_by_hand or self.storage.shelf.reserved_for(wanted.key):
            return None
        found: dict[NodeName, None] = {}
        for pairs in self.storage.shelf.pairs_in(wanted.class_name):
            nodes = None if pairs is None else self._nodes_of(pairs, most)
            if nodes is None:
                return None
            found.update(dict.fromkeys(nodes))
            if len(found) >= most:
                break  # this many unfit nodes make no refusal final, and then all nodes are read
        return list(found)[:most]

    def _nodes_of(self, pairs: frozenset[Pair], most: int) -> list[NodeName] | None:
        """The nodes that have one of these labels, sorted; None if they are more than `most`."""
        if sum(len(self._nodes_with(pair)) for pair in pairs) > most:
            return None
        return sorted({node for pair in pairs for node in self._nodes_with(pair)})

    def _tell(self, claim: ClaimKey) -> None:
        for listener in self._on_claim:
            listener(claim)

    def _node_changed(self, node: NodeName) -> None:
        self._attached.pop(node, None)
        self._on_change(node)
        self._on_gain(node)

    def _class_changed(self) -> None:
        self._serial += 1
        for name in (*self._serials, *self.storage.classes):
            self._serials[name] += 1
        for node in tuple(self._attached):
            self._attached.pop(node)
            self._on_change(node)
        self._on_gain(None)
        for listener in self._on_any:
            listener()

    def _space_changed(self, before: FreeSpace | None, now: FreeSpace | None) -> None:
        for space in (before, now):
            if space is not None:
                self._offer_changed(space.class_name, space.pairs, is_gain=space is now)

    def _offer_changed(self, class_name: str, pairs: Pairs, *, is_gain: bool) -> None:
        """Take back the verdicts on the nodes that one of these labels names."""
        nodes = None if pairs is None else self._nodes_of(pairs, FEW_NODES)
        if nodes is None:
            self._serial += 1
            self._serials[class_name] += 1
        for node in nodes or ():
            self._on_change(node)
        if is_gain:
            for one in (None,) if nodes is None else nodes:
                self._on_gain(one)
