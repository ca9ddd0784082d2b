"""The cluster as a decision reads it: nodes, the load of each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
Node load and GPU ledger are freed here together. A decision books in the ledger, and is assumed here at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import TypeVar

from placer.core.changes import Changes
from placer.core.fit import UNKNOWN_NODE, Load, Needs, NodeRules, Offer, misfits, needs_of, offer_of
from placer.core.ledger import Booking, Ledger
from placer.core.ranking import Ranking, Work
from placer.kube.antiaffinity import REASON as KEPT_OUT
from placer.kube.antiaffinity import Closed, Keepout, Keepouts, keepouts_of
from placer.kube.bookings import Bookings
from placer.kube.hints import EVERYTHING, Cause, causes_lifted
from placer.kube.labels import LabelIndex
from plimsoll.events import NodeState
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError

T = TypeVar("T")

Listener = Callable[[NodeName | None, Cause], None]


@dataclass(frozen=True, slots=True)
class _Resident:
    node: NodeName
    needs: Needs
    assumed: bool
    keepouts: tuple[Keepout, ...] = ()

    def counts_as(self, other: "_Resident") -> bool:
        return (self.node, self.needs, self.keepouts) == (other.node, other.needs, other.keepouts)


class Cluster:
    """Nodes and their pods. Not thread-safe: one event loop owns it.

    Attributes:
        bookings: the GPU bookings of bound pods.
        changes: the nodes for which `misfits` may have changed, apart from anti-affinity (see `closed_to`).
    """

    def __init__(self, ledger: Ledger, on_doubt: Callable[[Booking], None] = lambda _: None) -> None:
        """An empty cluster; for `on_doubt` see `Bookings`."""
        self.bookings = Bookings(ledger, on_doubt)
        self._ledger = ledger
        self._offers: dict[NodeName, Offer] = {}
        self._loads: dict[NodeName, Load] = {}
        self._residents: dict[PodUid, _Resident] = {}
        self.changes = Changes()
        self._listeners: list[Listener] = []
        self._by_pods: Ranking[tuple[int, NodeName]] = Ranking(Work())
        self._labels = LabelIndex()
        self._keepouts = Keepouts()
        # The residents with anti-affinity rules; on a node that does not exist, they close no domain.
        self._keepers: defaultdict[NodeName, dict[PodUid, tuple[Keepout, ...]]] = defaultdict(dict)

    def on_gain(self, listener: Listener) -> None:
        """Call `listener` with each node where a pod may fit now, apart from its GPUs.

        The second argument is the causes that may be lifted there. The node is None where they may be lifted on any
        node. The listener must not change the cluster.
        """
        self._listeners.append(listener)

    @property
    def nodes(self) -> KeysView[NodeName]:
        """All nodes that exist, in no particular order."""
        return self._offers.keys()

    def by_pods(self) -> Iterator[NodeName]:
        """All nodes that exist, by their number of pods, then by name. Change nothing while you iterate."""
        return (name for _, name in self._by_pods)

    def named(self, pod: Pod, most: int) -> list[NodeName] | None:
        """The nodes that a pod's selectors may select; None if they are more than `most`, or not limited."""
        return self._labels.named(pod, most)

    def closed_to(self, pod: Pod) -> Closed:
        """The domains that anti-affinity rules of other pods close to this pod now."""
        return self._keepouts.closed_to(pod)

    @property
    def has_rules(self) -> bool:
        """Whether a pod with a node has an anti-affinity rule."""
        return bool(self._keepers)

    def put_node(self, node: Node) -> None:
        """Take a node that was added or changed.

        Raises:
            InputError: the node's allocatable cannot be read; the node is not used then.
        """
        name = NodeName(node.metadata.name)
        try:
            offer = offer_of(node)
        except InputError:
            self.remove_node(name)
            raise
        self.changes.note(name)
        old = self._offers.get(name)
        self._offers[name] = offer
        if old is None:
            self._by_pods.add((self._pods_on(name), name))
        self._relabel(name, {} if old is None else _labels(old.node), _labels(node))
        self._announce(name, EVERYTHING if old is None else causes_lifted(node, old.node))

    def remove_node(self, name: NodeName) -> None:
        """Remove a node. Its pods count until they are gone too, because the node may come back."""
        self.changes.note(name)
        offer = self._offers.pop(name, None)
        if offer is None:
            return
        self._by_pods.remove((self._pods_on(name), name))
        self._relabel(name, _labels(offer.node), {})

    def offer(self, name: NodeName) -> Offer | None:
        """A node as pods are checked against it; None if it does not exist."""
        return self._offers.get(name)

    def has_node(self, name: NodeName) -> bool:
        """Whether the node exists."""
        return name in self._offers

    def observe(self, state: NodeState) -> None:
        """Learn peaks and the GPUs of a node from a report."""
        self.bookings.observe(state)
        self._ledger.observe(state)

    def forget_report(self, node: NodeName) -> None:
        """Forget the GPUs of a node whose report was dropped."""
        self.bookings.forget_report(node)

    def misfits(self, pod: Pod, rules: NodeRules, needs: Needs, name: NodeName) -> tuple[str, ...]:
        """The reasons why a node is unfit for a pod, apart from its GPUs; empty for a fit node."""
        offer = self._offers.get(name)
        if offer is None:
            return (UNKNOWN_NODE,)
        reasons = misfits(rules, needs, offer, self._load(name))
        if not reasons and self.closed_to(pod).closes(_labels(offer.node)):
            return (KEPT_OUT,)
        return reasons

    def assume(self, booking: Booking, needs: Needs) -> None:
        """Count a pod on the node of its plan, before the pod is bound. The ledger has the booking already."""
        assert self._ledger.booking(booking.pod) == booking, "a decision books before it is assumed"
        self._settle(booking.pod, _Resident(booking.node, needs, assumed=True))

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
        self._settle(uid, _Resident(name, needs, assumed=False, keepouts=keepouts))
        self.bookings.confirm(pod, assumed=assumed)
        if problems:
            raise problems[0]

    def release(self, uid: PodUid) -> bool:
        """Free the room of a pod that ended, is gone, or was not bound; returns whether the pod had any."""
        self.bookings.release(uid)
        return self._unsettle(uid)

    def _settle(self, uid: PodUid, resident: _Resident) -> None:
        before = self._residents.get(uid)
        if before is not None and before.counts_as(resident):  # as for an assumed pod that is now bound
            self._residents[uid] = resident
            return
        self._unsettle(uid)
        self._residents[uid] = resident
        self._count(resident.node, lambda load: load.add(resident.needs))
        if resident.keepouts:
            had_rules = self.has_rules
            self._keepers[resident.node][uid] = resident.keepouts
            self._keepouts.add(resident.keepouts, self._labels_of(resident.node))
            if not had_rules:
                self._announce(None, EVERYTHING)  # pods that got one answer may differ by their labels now

    def _unsettle(self, uid: PodUid) -> bool:
        resident = self._residents.pop(uid, None)
        if resident is None:
            return False
        self._count(resident.node, lambda load: load.remove(resident.needs))
        if resident.keepouts:
            del self._keepers[resident.node][uid]
            if not self._keepers[resident.node]:
                del self._keepers[resident.node]
            if self._keepouts.remove(resident.keepouts, self._labels_of(resident.node)):
                self._announce(None, Cause.RULES)
        self._announce(resident.node, Cause.RESOURCES)
        return True

    def _relabel(self, name: NodeName, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Take a node's labels in place of those before; no labels for a node that was not there, or left."""
        if before == after:
            return
        self._labels.put(name, before, after)
        rules = [rule for rules in self._keepers.get(name, {}).values() for rule in rules]
        self._keepouts.add(rules, after)
        if self._keepouts.remove(rules, before):
            self._announce(None, Cause.RULES)

    def _announce(self, node: NodeName | None, lifted: Cause) -> None:
        for listener in self._listeners:
            listener(node, lifted)

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


def _readable(read: Callable[[], T], problems: list[InputError]) -> T | None:
    """The value read, or None with the problem noted: a bound pod counts as far as it can be read."""
    try:
        return read()
    except InputError as error:
        problems.append(error)
        return None
