"""The cluster as a decision reads it: nodes, the load of each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
Node load and GPU ledger are freed here together. A decision books in the ledger, and is assumed here at once. Rules
about other pods (`topology`) count assumed pods too.
"""

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from placer.core.booking import Booking
from placer.core.changes import Changes
from placer.core.fit import (
    PAUSED,
    UNKNOWN_NODE,
    Needs,
    NodeLoad,
    NodeRules,
    Offer,
    misfits,
    needs_of,
    offer_of,
    shortages,
)
from placer.core.ledger import Ledger
from placer.core.ranking import Ranking, ReadCount
from placer.scheduler.cache.assigned_pods import AssignedPod, AssignedPods, priority_of
from placer.scheduler.cache.bookings import Bookings
from placer.scheduler.cache.labels import LabelIndex
from placer.scheduler.cache.nominator import Nomination, Nominator
from placer.scheduler.plugins.pod_counts.constraints import (
    PodConstraints,
    existing_anti_affinity_of,
    readable_anti_affinity_of,
    required_of,
)
from placer.scheduler.plugins.topology import Resident, TopologyDryRun, TopologyPlugins
from placer.scheduler.plugins.volumes.plugins import VolumePlugins
from placer.scheduler.plugins.volumes.store import PodChanges
from placer.scheduler.queue.hints import EVERYTHING, NOTHING, Cause, causes_lifted
from plimsoll.contract import OPT_OUT_LABEL
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError

T = TypeVar("T")

Listener = Callable[[NodeName | None, Cause], None]


@dataclass(slots=True)
class WhatIf:
    """A node as it would be, without some of its pods.

    Attributes:
        load: the load of the others, and of `held`.
        held: the nominations that count.
        topology: the check by constraints on other pods, without those pods; None where none is left out, or no node.
        without: the pods that are supposed to be gone.
    """

    load: NodeLoad
    held: Sequence[Nomination]
    topology: TopologyDryRun | None
    without: dict[PodUid, AssignedPod] = field(default_factory=dict)


class Cache:
    """Nodes and their pods. Not thread-safe: one event loop owns it.

    Attributes:
        bookings: the GPU bookings of bound pods.
        assigned: the bound pods.
        nominator: the room that is held for pods without a node.
        changes: the nodes whose `misfits` may have changed, apart from the `state` of `topology` and `volumes`.
        volumes: the plugins for volumes.
        topology: the plugins with constraints on other pods.
        paused: the reason why no pod is placed anywhere, as the text of a refusal; None while pods are placed.
    """

    def __init__(
        self,
        ledger: Ledger,
        on_doubt: Callable[[Booking], None] = lambda _: None,
        opt_out_label: str = OPT_OUT_LABEL,
    ) -> None:
        """An empty cluster; for `on_doubt` see `Bookings`, for `opt_out_label` see `offer_of`."""
        self._opt_out_label = opt_out_label
        self.paused: str | None = None
        self.bookings = Bookings(ledger, on_doubt)
        self._ledger = ledger
        self._offers: dict[NodeName, Offer] = {}
        self._loads: dict[NodeName, NodeLoad] = {}
        self._residents: dict[PodUid, Resident] = {}
        self._listeners: list[Listener] = []
        self._filled: list[Callable[[NodeName], None]] = []
        self.assigned = AssignedPods()
        self.changes = Changes()
        self.nominator = Nominator(self._nomination_changed, self._nomination_ended)
        self._by_pods: Ranking[tuple[int, NodeName]] = Ranking(ReadCount())
        self._labels = LabelIndex()
        gained = partial(self._announce, lifted=Cause.VOLUMES)
        self.volumes = VolumePlugins(self.changes.note, gained, self._labels.having)
        first_came = partial(
            self._announce, None, EVERYTHING
        )  # pods with one answer may differ by labels now
        self.topology = TopologyPlugins(self._offers, self._residents, self.nominator, first_came)

    def on_gain(self, listener: Listener) -> None:
        """Call `listener` with each node where a pod may fit now, apart from its GPUs.

        The second argument is the causes that may be lifted there; without a node, on any. It must change nothing.
        """
        self._listeners.append(listener)

    def on_filled(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node that may have less room than before, or has left. It must change nothing."""
        self._filled.append(listener)

    @property
    def nodes(self) -> KeysView[NodeName]:
        """All nodes that exist, in no particular order."""
        return self._offers.keys()

    def by_pods(self) -> Iterator[NodeName]:
        """All nodes that exist, by their number of pods, then by name. Change nothing while you iterate."""
        return (name for _, name in self._by_pods)

    def named(self, pod: Pod, needs: Needs, most: int) -> list[NodeName] | None:
        """The nodes that a pod's selectors and volumes may allow; None if they are more than `most`, or all."""
        selected, tied = self._labels.named(pod, most), self.volumes.nodes_for(pod, needs.mounts, most)
        return min((nodes for nodes in (selected, tied) if nodes is not None), key=len, default=None)

    def promising(self, constraints: PodConstraints, most: int) -> list[NodeName]:
        """Some nodes that may meet preferred constraints well, at most this many, by their number of pods."""
        found = self.topology.promising(constraints, self._labels.having, most)
        return sorted(found, key=lambda name: self._load(name).pods)

    def put_node(self, node: Node) -> None:
        """Take a node that was added or changed.

        Raises:
            InputError: the node's allocatable cannot be read; the node is not used then.
        """
        name = NodeName(node.metadata.name)
        try:
            offer = offer_of(node, self._opt_out_label)
        except InputError:
            self.remove_node(name)
            raise
        self.changes.note(name)
        old = self._offers.get(name)
        self._offers[name] = offer
        if old is None:
            self._by_pods.add((self._load(name).pods, name))
        self._labels.put(name, {} if old is None else node_labels(old.node), node_labels(node))
        self.topology.node_changed(name, None if old is None else old.node, node)
        self._announce(name, EVERYTHING if old is None else causes_lifted(node, old.node))
        self._note_filled(name)
        self._note_cpu(name)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node. Its pods count until they are gone too, because the node may come back."""
        self.changes.note(name)
        offer = self._offers.pop(name, None)
        if offer is None:
            return
        self._by_pods.remove((self._load(name).pods, name))
        self._labels.put(name, node_labels(offer.node), {})
        self.topology.node_changed(name, offer.node, None)
        self._note_filled(name)
        self._note_cpu(name)

    def pause(self, reason: str | None) -> None:
        """Place no pod anywhere until this is called with None; an empty reason pauses too. Placed pods stay."""
        paused = None if reason is None else f"{PAUSED}{f' ({reason})' if reason else ''}"
        if paused == self.paused:
            return
        self.paused = paused
        for name in self._offers:
            self.changes.note(name)
            self._note_filled(name)
        if paused is None:
            self._announce(None, EVERYTHING)

    def labels_of(self, name: NodeName) -> Mapping[str, str] | None:
        """The labels of a node; None for a node that does not exist."""
        offer = self._offers.get(name)
        return None if offer is None else node_labels(offer.node)

    def offer(self, name: NodeName) -> Offer | None:
        """A node as pods are checked against it; None if it does not exist."""
        return self._offers.get(name)

    def has_node(self, name: NodeName) -> bool:
        """Whether the node exists."""
        return name in self._offers

    def free(self, name: NodeName, resource: str) -> int:
        """The amount of a resource of a node that no pod has, by their requests; 0 for a node that does not exist."""
        offer = self._offers.get(name)
        if offer is None:
            return 0
        return max(0, offer.allocatable.get(resource, 0) - self._load(name).amounts[resource])

    def load_on(self, name: NodeName, held: Iterable[Nomination] = ()) -> NodeLoad:
        """A copy of a node's load, with that of these nominations."""
        load = self._load(name).copy()
        for one in held:
            load.add(one.needs)
        return load

    def misfits(
        self,
        pod: Pod,
        rules: NodeRules,
        needs: Needs,
        name: NodeName,
        domains: PodConstraints | None = None,
        supposed: WhatIf | None = None,
    ) -> tuple[str, ...]:
        """The reasons why a node is unfit for a pod, apart from its GPUs; empty for a fit node.

        Args:
            pod: the pod.
            rules: `rules_of` it.
            needs: `needs_of` it.
            name: the node.
            domains: its rules about other pods; None reads them from the pod, which takes longer.
            supposed: the node as it would be. None: as it is, for any pod that is not nominated for it.
        """
        offer = self._offers.get(name)
        if offer is None:
            return (UNKNOWN_NODE,)
        if self.paused is not None:
            return (self.paused,)
        if supposed is None:
            held = self.nominator.against_others(priority_of(pod), name)
            supposed = WhatIf(self._load_beside(held, name), held, None)
        reasons = misfits(rules, needs, offer, supposed.load)
        if not reasons and rules.uses_volume:
            reasons = self.volumes.lacks_driver(name)
        if not reasons and needs.mounts:
            changes = _pod_changes(supposed.without.values(), supposed.held)
            reasons = self.volumes.filter(pod, needs.mounts, name, node_labels(offer.node), changes)
        if reasons:
            return reasons
        about_pods = required_of(pod, rules) if domains is None else domains
        reason = self._kept_out(pod, about_pods, name, supposed)
        return () if reason is None else (reason,)

    def _kept_out(self, pod: Pod, rules: PodConstraints, name: NodeName, supposed: WhatIf) -> str | None:
        """The reason by rules about other pods why a node is unfit for a pod, or None."""
        check, held = supposed.topology, supposed.held
        reason = self.topology.filter(pod, rules, name) if check is None else check.filter()
        if reason is None and held:
            # As in kube-scheduler, the node must fit with the nominated pods too. They may come, or may not.
            check = check or self.topology.dry_run(pod, rules, name, [(name, one.pod) for one in held])
            reason = check.filter_with_nominated()
        return reason

    def shortages(self, pod: Pod, needs: Needs, name: NodeName) -> tuple[str, ...]:
        """The ports and resources that a node lacks for a pod, beside the room that is held for others.

        The kubelet would fail the pod for each port that other pods have.
        """
        offer = self._offers.get(name)
        if offer is None:
            return (UNKNOWN_NODE,)
        return shortages(needs, offer, self._load_beside(self.nominator.against(pod, name), name))

    def assume(self, booking: Booking, needs: Needs, pod: Pod) -> None:
        """Count a pod on the node of its plan, before the pod is bound. The ledger has the booking already.

        Anti-affinity that cannot be read does not count. `required_of` refuses such a pod before; kube-scheduler,
        which chooses nodes for pods of the extender, does too.
        """
        assert self._ledger.booking(booking.pod) == booking, "a decision books before it is assumed"
        self.assigned.put(AssignedPod(pod, booking.node, needs, is_bound=False))
        anti_affinity = readable_anti_affinity_of(pod)
        resident = Resident(booking.node, needs, pod, assumed=True, anti_affinity=anti_affinity)
        self._settle(booking.pod, resident)

    def is_assumed(self, uid: PodUid) -> bool:
        """Whether the pod was placed here and the watch has not shown it bound yet."""
        resident = self._residents.get(uid)
        return resident is not None and resident.assumed

    def confirm(self, pod: Pod) -> None:
        """Count a pod that the watch shows bound, in place of its assumption.

        Raises:
            InputError: the pod's requests cannot be read. The pod still counts, as far as it could be read.
        """
        uid, name = PodUid(pod.metadata.uid), NodeName(pod.spec.nodeName or "")
        assumed = self.is_assumed(uid)
        problems: list[InputError] = []
        needs = _readable(lambda: needs_of(pod), problems) or Needs({}, frozenset())
        anti_affinity = _readable(lambda: existing_anti_affinity_of(pod), problems) or ()
        self.assigned.put(AssignedPod(pod, name, needs))
        self._settle(uid, Resident(name, needs, pod, assumed=False, anti_affinity=anti_affinity))
        self.bookings.confirm(pod, assumed=assumed)
        if problems:
            raise problems[0]

    def release(self, uid: PodUid) -> bool:
        """Free the room of a pod that ended, is gone, or was not bound; returns whether the pod had any."""
        self.bookings.release(uid)
        self.assigned.remove(uid)
        return self._unsettle(uid)

    def _settle(self, uid: PodUid, resident: Resident) -> None:
        before = self._residents.get(uid)
        if before is not None and before.takes_as(resident):  # as for an assumed pod that is now bound
            self._residents[uid] = resident
            self.topology.counts.pod_changed(resident.node, before.pod, resident.pod)
            return
        self._unsettle(uid)
        self._residents[uid] = resident
        self.topology.pod_assigned(uid, resident)
        self._count(resident.node, lambda load: load.add(resident.needs))
        self.volumes.pod_assigned(resident.node, resident.needs.mounts)
        self._note_filled(resident.node)

    def _unsettle(self, uid: PodUid) -> bool:
        resident = self._residents.pop(uid, None)
        if resident is None:
            return False
        self._count(resident.node, lambda load: load.remove(resident.needs))
        self.topology.pod_unassigned(uid, resident)
        self.volumes.pod_unassigned(resident.node, resident.needs.mounts)
        self._announce(resident.node, Cause.RESOURCES | (Cause.VOLUMES if resident.needs.mounts else NOTHING))
        return True

    def _announce(self, node: NodeName | None, lifted: Cause) -> None:
        for listener in self._listeners:
            listener(node, lifted)

    def _note_filled(self, node: NodeName) -> None:
        for listener in self._filled:
            listener(node)

    def _nomination_changed(self, node: NodeName) -> None:
        self.changes.note(node)
        if self.nominator.anti_affinity:
            self.topology.note_terms()

    def _nomination_ended(self, node: NodeName) -> None:
        if node in self._offers:
            self._announce(node, EVERYTHING)

    def _load_beside(self, held: Sequence[Nomination], name: NodeName) -> NodeLoad:
        return self.load_on(name, held) if held else self._load(name)

    def _count(self, name: NodeName, change: Callable[[NodeLoad], None]) -> None:
        """Change the load of a node, and its place among the nodes."""
        load = self._loads.setdefault(name, NodeLoad())
        before = load.pods
        change(load)
        self.changes.note(name)
        if name in self._offers:
            self._by_pods.remove((before, name))
            self._by_pods.add((load.pods, name))
        if not load.pods:
            del self._loads[name]
        self._note_cpu(name)

    def _note_cpu(self, name: NodeName) -> None:
        """Tell the policies the spare CPU of a node."""
        self._ledger.spare_cpu.note(name, self.free(name, "cpu") if name in self._offers else None)

    def _load(self, name: NodeName) -> NodeLoad:
        return self._loads.get(name) or NodeLoad()


def _pod_changes(without: Iterable[AssignedPod], held: Iterable[Nomination]) -> PodChanges | None:
    """The volumes of pods that are left out of a node, or added; None if they have none."""
    removed = [one.needs.mounts for one in without if one.needs.mounts]
    added = [one.needs.mounts for one in held if one.needs.mounts]
    return PodChanges(removed, added) if removed or added else None


def _readable(read: Callable[[], T], problems: list[InputError]) -> T | None:
    """The value read, or None with the problem noted: a bound pod counts as far as it can be read."""
    try:
        return read()
    except InputError as error:
        problems.append(error)
        return None


def node_labels(node: Node) -> Mapping[str, str]:
    """The labels of a node."""
    return node.metadata.labels or {}
