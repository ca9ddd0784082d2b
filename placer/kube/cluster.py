"""The cluster as a decision reads it: nodes, the load of each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
Node load and GPU ledger are freed here together. A decision books in the ledger, and is assumed here at once. Rules
about other pods (`domains`, `antiaffinity`) count assumed pods too.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from placer.core.booking import Booking
from placer.core.changes import Changes
from placer.core.fit import (
    UNKNOWN_NODE,
    Load,
    Needs,
    NodeRules,
    Offer,
    misfits,
    needs_of,
    offer_of,
    shortages,
)
from placer.core.ledger import Ledger
from placer.core.ranking import Ranking, Work
from placer.kube.antiaffinity import REASON as KEPT_OUT
from placer.kube.antiaffinity import Closed, Keepout, Keepouts, keepouts_of, readable_keepouts_of
from placer.kube.bookings import Bookings
from placer.kube.domains.gauge import Gauge
from placer.kube.domains.index import DomainIndex
from placer.kube.domains.rules import DomainRules, domain_rules_of
from placer.kube.domains.selectors import Member, member_of
from placer.kube.domains.wishes import DomainWishes
from placer.kube.hints import EVERYTHING, NOTHING, Cause, causes_lifted
from placer.kube.labels import LabelIndex
from placer.kube.nominations import Nomination, Nominations
from placer.kube.occupants import Occupant, Occupants, priority_of
from placer.kube.rule_check import Counted, RuleCheck
from placer.kube.volumes.index import Volumes
from placer.kube.volumes.users import Moves
from plimsoll.contract import OPT_OUT_LABEL
from plimsoll.events import NodeState
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Namespace, Node, Pod
from plimsoll.part.errors import InputError

T = TypeVar("T")

Listener = Callable[[NodeName | None, Cause], None]
RulesListener = Callable[[Collection[Hashable]], None]


@dataclass(frozen=True, slots=True)
class _Resident:
    node: NodeName
    needs: Needs
    member: Member
    assumed: bool
    keepouts: tuple[Keepout, ...] = ()

    def takes_as(self, other: "_Resident") -> bool:
        return (self.node, self.needs, self.keepouts) == (other.node, other.needs, other.keepouts)


@dataclass(slots=True)
class Supposed:
    """A node as it would be, without some of its pods.

    Attributes:
        load: the load of the others, and of `held`.
        held: the nominations that count.
        rules: the check by rules about other pods, without those pods; None for a node that does not exist.
        without: the pods that are supposed to be gone.
    """

    load: Load
    held: Sequence[Nomination]
    rules: RuleCheck | None
    without: dict[PodUid, Occupant] = field(default_factory=dict)


class Cluster:
    """Nodes and their pods. Not thread-safe: one event loop owns it.

    Attributes:
        bookings: the GPU bookings of bound pods.
        occupants: the bound pods.
        nominations: the room that is held for pods without a node.
        changes: the nodes for which `misfits` may have changed, apart from rules about other pods (`rules_state`) and
            from changes of many volumes (see `Volumes.state`).
        volumes: the persistent volumes, and the pods that use them.
    """

    def __init__(
        self,
        ledger: Ledger,
        on_doubt: Callable[[Booking], None] = lambda _: None,
        opt_out_label: str = OPT_OUT_LABEL,
    ) -> None:
        """An empty cluster; for `on_doubt` see `Bookings`, for `opt_out_label` see `offer_of`."""
        self._opt_out_label = opt_out_label
        self.bookings = Bookings(ledger, on_doubt)
        self._ledger = ledger
        self._offers: dict[NodeName, Offer] = {}
        self._loads: dict[NodeName, Load] = {}
        self._residents: dict[PodUid, _Resident] = {}
        self._listeners: list[Listener] = []
        self._filled: list[Callable[[NodeName], None]] = []
        self.occupants = Occupants()
        self.changes = Changes()
        self.nominations = Nominations(self._nomination_changed, self._nomination_ended)
        self._by_pods: Ranking[tuple[int, NodeName]] = Ranking(Work())
        self._labels = LabelIndex()
        self.volumes = Volumes(self.changes.note, self._announce, self._labels.having)
        self._domains = DomainIndex(self._offers, self._announce_rules)
        self._rules_listeners: list[RulesListener] = []
        self._has_rules = False
        self._keepouts = Keepouts(self._domains.labels_of)
        # The residents with anti-affinity rules; on a node that does not exist, they close no domain.
        self._keepers: defaultdict[NodeName, dict[PodUid, tuple[Keepout, ...]]] = defaultdict(dict)

    def on_gain(self, listener: Listener) -> None:
        """Call `listener` with each node where a pod may fit now, apart from its GPUs.

        The second argument is the causes that may be lifted there. The node is None where they may be lifted on any
        node. The listener must not change the cluster.
        """
        self._listeners.append(listener)

    def on_rules(self, listener: RulesListener) -> None:
        """Call `listener` when a node may have become fit for pods with rules about other pods, or other pods' rules.

        The argument has some of the `topics` of each such pod. The listener must not change the cluster.
        """
        self._rules_listeners.append(listener)

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
        selected, tied = self._labels.named(pod, most), self.volumes.tied(pod, needs.mounts, most)
        return min((nodes for nodes in (selected, tied) if nodes is not None), key=len, default=None)

    def closed_to(self, pod: Pod) -> Closed:
        """The domains that anti-affinity rules of other pods close to this pod now."""
        return self._keepouts.closed_to(pod)

    def prepare(self, rules: DomainRules | DomainWishes, most: int) -> bool:
        """Count the pods that a pod's rules or wishes are about; see `DomainIndex.prepare`."""
        return self._domains.prepare(rules, most)

    def gauge(self, wishes: DomainWishes) -> Gauge | None:
        """A pod's wishes about other pods with their counts; None while these are not complete, see `prepare`."""
        return self._domains.gauge(wishes)

    def promising(self, gauge: Gauge, most: int) -> list[NodeName]:
        """Some nodes that may meet wishes about other pods well, at most so many, by their number of pods."""
        return sorted(gauge.promising(self._labels.having, most), key=self._pods_on)

    def rules_state(self, pod: Pod, rules: DomainRules) -> tuple[Hashable, Hashable]:
        """The rules of other pods about this pod, and a value that changes whenever rules may answer otherwise.

        A rule of a nominated pod changes answers on the node of its nomination alone, which `changes` names.
        """
        closed = self.closed_to(pod)
        about = (closed.identity, self._rules_of_nominated(pod))
        return about, (self._domains.state(rules), closed.state)

    def _rules_of_nominated(self, pod: Pod) -> tuple[Keepout, ...]:
        """The anti-affinity rules of nominated pods that select this pod; nearly always none."""
        rules = self.nominations.keepouts
        if not rules:
            return ()
        member = member_of(pod)
        return tuple(rule for rule in rules if rule.selects(member, self._domains.labels_of))

    def topics(self, pod: Pod, rules: DomainRules) -> frozenset[Hashable]:
        """Names of the changes after which rules may let a pod in, see `on_rules`."""
        own = (rules.key,) if rules.key else ()
        return frozenset((*own, *self.closed_to(pod).rules))

    def rule_obstacle(self, pod: Pod, rules: DomainRules, name: NodeName) -> str | None:
        """The reason why rules of this pod, or of others about it, keep the pod from a node; None if they do not.

        Nothing changes. The cost grows with the number of rules.
        """
        labels = self._labels_of(name)
        reason = self._domains.obstacle(rules, labels)
        return KEPT_OUT if reason is None and self.closed_to(pod).closes(labels) else reason

    def rule_check(
        self,
        pod: Pod,
        rules: DomainRules,
        name: NodeName,
        beside: Collection[tuple[NodeName, Pod]] = (),
    ) -> RuleCheck:
        """The check of `rule_obstacle`, from which pods can be left out; good until a pod or a node changes.

        Args:
            pod: the pod.
            rules: its rules about other pods.
            name: a node that exists.
            beside: pods that may count as if they had these nodes.
        """
        labels = self._labels_of(name)
        return RuleCheck(
            labels,
            self._domains.standing(rules) if rules.key else None,
            self.closed_to(pod).closing(labels),
            [(node, member_of(one)) for node, one in beside],
            is_kept_out=self._is_kept_out(pod, labels, beside),
        )

    def counted(self, check: RuleCheck, uid: PodUid) -> Counted:
        """A pod as such a check leaves it out; a pod without a node counts nowhere."""
        found = check.known.get(uid)
        if found is None:
            found = check.known[uid] = self._counted(check, self._residents.get(uid))
        return found

    def _counted(self, check: RuleCheck, one: _Resident | None) -> Counted:
        if one is None:
            return Counted(NodeName(""))
        headcounts = self._domains.counting(check.standing, one.member) if check.standing is not None else ()
        return Counted(one.node, headcounts, check.closed_by(one.keepouts, self._labels_of(one.node)))

    def _is_kept_out(
        self, pod: Pod, labels: Mapping[str, str], beside: Collection[tuple[NodeName, Pod]]
    ) -> bool:
        """Whether a rule of one of these pods, on its node, closes nodes with these labels to the pod."""
        for node, one in beside:
            there = self._labels_of(node)
            for rule in readable_keepouts_of(one):
                key = rule.topology_key
                shares = key in labels and labels[key] == there.get(key)
                if shares and rule.selects(member_of(pod), self._domains.labels_of):
                    return True
        return False

    @property
    def has_rules(self) -> bool:
        """Whether a bound or nominated pod has or had an anti-affinity rule. Then answers may depend on labels."""
        return self._has_rules

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
            self._by_pods.add((self._pods_on(name), name))
        if old is None or _counting(old.node) != _counting(node):
            self._domains.put_node(name)
        self._relabel(name, {} if old is None else _labels(old.node), _labels(node))
        self._announce(name, EVERYTHING if old is None else causes_lifted(node, old.node))
        self._note_filled(name)
        self._note_cpu(name)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node. Its pods count until they are gone too, because the node may come back."""
        self.changes.note(name)
        offer = self._offers.pop(name, None)
        if offer is None:
            return
        self._by_pods.remove((self._pods_on(name), name))
        self._domains.put_node(name)
        self._relabel(name, _labels(offer.node), {})
        self._note_filled(name)
        self._note_cpu(name)

    def put_namespace(self, namespace: Namespace) -> None:
        """Take a namespace that was added or changed."""
        self._take_namespace(namespace.metadata.name, namespace.metadata.labels or {})

    def remove_namespace(self, name: str) -> None:
        """Forget the labels of a namespace that is gone."""
        self._take_namespace(name, {})

    def _take_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        before = self._domains.labels_of(name)
        self._domains.put_namespace(name, labels)
        self._announce_rules(self._keepouts.note_namespace(name, before, labels))

    def labels_of(self, name: NodeName) -> Mapping[str, str] | None:
        """The labels of a node; None for a node that does not exist."""
        offer = self._offers.get(name)
        return None if offer is None else _labels(offer.node)

    def offer(self, name: NodeName) -> Offer | None:
        """A node as pods are checked against it; None if it does not exist."""
        return self._offers.get(name)

    def has_node(self, name: NodeName) -> bool:
        """Whether the node exists."""
        return name in self._offers

    def observe(self, state: NodeState) -> None:
        """Learn the GPUs of a node from a report."""
        self.bookings.observe(state)

    def forget_report(self, node: NodeName) -> None:
        """Forget the GPUs of a node whose report was dropped."""
        self.bookings.forget_report(node)

    def free(self, name: NodeName, resource: str) -> int:
        """The amount of a resource of a node that no pod has, by their requests; 0 for a node that does not exist."""
        offer = self._offers.get(name)
        if offer is None:
            return 0
        return max(0, offer.allocatable.get(resource, 0) - self._load(name).amounts[resource])

    def load_on(self, name: NodeName) -> Load:
        """A copy of a node's load, without nominations."""
        return self._load(name).copy()

    def misfits(
        self,
        pod: Pod,
        rules: NodeRules,
        needs: Needs,
        name: NodeName,
        domains: DomainRules | None = None,
        supposed: Supposed | None = None,
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
        held = self.nominations.against_others(priority_of(pod), name) if supposed is None else supposed.held
        load = self._load_beside(held, name) if supposed is None else supposed.load
        without = {} if supposed is None else supposed.without
        reasons = misfits(rules, needs, offer, load)
        if not reasons and rules.uses_volume:
            reasons = self.volumes.lacks_driver(name)
        if not reasons and needs.mounts:
            moves = _moves(without.values(), held)
            reasons = self.volumes.misfits(pod, needs.mounts, name, _labels(offer.node), moves)
        if reasons:
            return reasons
        about_pods = domain_rules_of(pod, rules) if domains is None else domains
        check = None if supposed is None else supposed.rules
        reason = self.rule_obstacle(pod, about_pods, name) if check is None else check.obstacle()
        if reason is None and held:
            # As in kube-scheduler, the node must fit with the nominated pods too. They may come, or may not.
            check = check or self.rule_check(pod, about_pods, name, [(name, one.pod) for one in held])
            reason = check.obstacle_beside()
        return () if reason is None else (reason,)

    def shortages(self, pod: Pod, needs: Needs, name: NodeName) -> tuple[str, ...]:
        """The ports and resources that a node lacks for a pod, beside the room that is held for others.

        The kubelet would fail the pod for each of them that other pods have.
        """
        offer = self._offers.get(name)
        if offer is None:
            return (UNKNOWN_NODE,)
        return shortages(needs, offer, self._load_beside(self.nominations.against(pod, name), name))

    def assume(self, booking: Booking, needs: Needs, pod: Pod) -> None:
        """Count a pod on the node of its plan, before the pod is bound. The ledger has the booking already.

        Anti-affinity that cannot be read does not count. `domain_rules_of` refuses such a pod before; kube-scheduler,
        which chooses nodes for pods of the extender, does too.
        """
        assert self._ledger.booking(booking.pod) == booking, "a decision books before it is assumed"
        self.occupants.put(Occupant(pod, booking.node, needs, is_bound=False))
        keepouts = readable_keepouts_of(pod)
        resident = _Resident(booking.node, needs, member_of(pod), assumed=True, keepouts=keepouts)
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
        keepouts = _readable(lambda: keepouts_of(pod), problems) or ()
        self.occupants.put(Occupant(pod, name, needs))
        self._settle(uid, _Resident(name, needs, member_of(pod), assumed=False, keepouts=keepouts))
        self.bookings.confirm(pod, assumed=assumed)
        if problems:
            raise problems[0]

    def release(self, uid: PodUid) -> bool:
        """Free the room of a pod that ended, is gone, or was not bound; returns whether the pod had any."""
        self.bookings.release(uid)
        self.occupants.remove(uid)
        return self._unsettle(uid)

    def _settle(self, uid: PodUid, resident: _Resident) -> None:
        before = self._residents.get(uid)
        if before is not None and before.takes_as(resident):  # as for an assumed pod that is now bound
            self._residents[uid] = resident
            if before.member != resident.member:  # as for a pod that is being deleted
                self._domains.put(resident.node, before.member, resident.member)
            return
        self._unsettle(uid)
        self._residents[uid] = resident
        self._domains.put(resident.node, None, resident.member)
        self._count(resident.node, lambda load: load.add(resident.needs))
        self.volumes.mount(resident.node, resident.needs.mounts)
        if resident.keepouts:
            self._keepers[resident.node][uid] = resident.keepouts
            self._keepouts.add(resident.keepouts, self._labels_of(resident.node))
            self._heed_rules()
        self._note_filled(resident.node)

    def _heed_rules(self) -> None:
        if not self._has_rules:
            self._has_rules = True
            self._announce(None, EVERYTHING)  # pods that got one answer may differ by their labels now

    def _unsettle(self, uid: PodUid) -> bool:
        resident = self._residents.pop(uid, None)
        if resident is None:
            return False
        self._count(resident.node, lambda load: load.remove(resident.needs))
        self._domains.put(resident.node, resident.member, None)
        self.volumes.unmount(resident.node, resident.needs.mounts)
        if resident.keepouts:
            del self._keepers[resident.node][uid]
            if not self._keepers[resident.node]:
                del self._keepers[resident.node]
            self._announce_rules(self._keepouts.remove(resident.keepouts, self._labels_of(resident.node)))
        self._announce(resident.node, Cause.RESOURCES | (Cause.VOLUMES if resident.needs.mounts else NOTHING))
        return True

    def _relabel(self, name: NodeName, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Take a node's labels in place of those before; no labels for a node that was not there, or left."""
        if before == after:
            return
        self._labels.put(name, before, after)
        rules = [rule for rules in self._keepers.get(name, {}).values() for rule in rules]
        self._keepouts.add(rules, after)
        self._announce_rules(self._keepouts.remove(rules, before))

    def _announce(self, node: NodeName | None, lifted: Cause) -> None:
        for listener in self._listeners:
            listener(node, lifted)

    def _note_filled(self, node: NodeName) -> None:
        for listener in self._filled:
            listener(node)

    def _nomination_changed(self, node: NodeName) -> None:
        self.changes.note(node)
        if self.nominations.keepouts:
            self._heed_rules()

    def _nomination_ended(self, node: NodeName) -> None:
        if node in self._offers:
            self._announce(node, EVERYTHING)

    def _load_beside(self, held: Sequence[Nomination], name: NodeName) -> Load:
        """The load of a node with that of nominated pods."""
        if not held:
            return self._load(name)
        load = self.load_on(name)
        for one in held:
            load.add(one.needs)
        return load

    def _announce_rules(self, topics: Collection[Hashable]) -> None:
        if topics:
            for listener in self._rules_listeners:
                listener(topics)

    def _count(self, name: NodeName, change: Callable[[Load], None]) -> None:
        """Change the load of a node, and its place among the nodes."""
        load = self._loads.setdefault(name, Load())
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

    def _load(self, name: NodeName) -> Load:
        return self._loads.get(name) or Load()

    def _pods_on(self, name: NodeName) -> int:
        return self._load(name).pods

    def _labels_of(self, name: NodeName) -> Mapping[str, str]:
        """The labels of a node; none for a node that does not exist."""
        offer = self._offers.get(name)
        return {} if offer is None else _labels(offer.node)


def _labels(node: Node) -> Mapping[str, str]:
    return node.metadata.labels or {}


def _counting(node: Node) -> object:
    """All that decides for which rules the pods on a node count."""
    return _labels(node), node.spec.taints


def _moves(without: Iterable[Occupant], held: Iterable[Nomination]) -> Moves | None:
    """The volumes of pods that are left out of a node, or added; None if they have none."""
    less = [one.needs.mounts for one in without if one.needs.mounts]
    more = [one.needs.mounts for one in held if one.needs.mounts]
    return Moves(less, more) if less or more else None


def _readable(read: Callable[[], T], problems: list[InputError]) -> T | None:
    """The value read, or None with the problem noted: a bound pod counts as far as it can be read."""
    try:
        return read()
    except InputError as error:
        problems.append(error)
        return None
