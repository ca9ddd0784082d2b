"""The cluster as a decision reads it: nodes, the pods on each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
A pod's requests and its GPUs in the ledger are freed here together. A decision books in the ledger, and is assumed
here at once. Plugins that keep counts of their own observe the cache.
"""

from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from placer.core.booking import Booking
from placer.core.changes import Changes
from placer.core.ledger import Ledger
from placer.core.ranking import Ranking, ReadCount
from placer.scheduler.cache.bookings import Bookings
from placer.scheduler.cache.labels import LabelIndex
from placer.scheduler.node_info import NodeInfo, Requested, node_info_of
from placer.scheduler.pods.assigned_pods import AssignedPod, AssignedPods
from placer.scheduler.pods.constraints import (
    existing_anti_affinity_of,
    readable_anti_affinity_of,
)
from placer.scheduler.pods.needs import Needs, needs_of
from placer.scheduler.pods.nominator import Nomination, Nominator
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause
from plimsoll import cordons
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError

T = TypeVar("T")

Listener = Callable[[NodeName | None, Cause], None]

PAUSED: Final = f"node(s) take no pods while placing is paused by {cordons.PAUSED} of the placer's namespace"


class Observer(Protocol):
    """Keeps counts of the nodes and pods of a cache."""

    def node_changed(self, name: NodeName, old: NodeInfo | None, now: NodeInfo | None) -> None:
        """A node came, changed or left; the cache has it already as it is now."""

    def pod_changed(self, old: AssignedPod | None, now: AssignedPod | None) -> None:
        """A pod got a node, changed there, or is gone."""

    def nomination_changed(self) -> None:
        """A pod was nominated for a node, or is so no longer."""


class Cache:
    """Nodes and their pods. Not thread-safe: one event loop owns it.

    Attributes:
        bookings: the GPU bookings of bound pods.
        assigned: the pods with a node, the assumed ones too.
        nominator: the room that is held for pods without a node.
        changes: the nodes for which filters may answer otherwise than before, but for their own state.
        labels: the nodes by their labels.
        observers: are told of each change of nodes and pods, in this order.
        paused: the reason why no pod is placed anywhere, as the text of a refusal; None while pods are placed.
    """

    def __init__(
        self,
        ledger: Ledger,
        gains: Callable[[Node, Node], Cause],
        on_doubt: Callable[[Booking], None] = lambda _: None,
    ) -> None:
        """An empty cluster.

        Args:
            ledger: the bookings of all pods.
            gains: the causes that a change of a node's object may have lifted, see `Framework.gains`.
            on_doubt: see `Bookings`.
        """
        self._gains = gains
        self.paused: str | None = None
        self.bookings = Bookings(ledger, on_doubt)
        self.observers: list[Observer] = []
        self._ledger = ledger
        self._nodes: dict[NodeName, NodeInfo] = {}
        self._requested: dict[NodeName, Requested] = {}
        self._listeners: list[Listener] = []
        self._filled: list[Callable[[NodeName], None]] = []
        self.assigned = AssignedPods()
        self.changes = Changes()
        self.nominator = Nominator(self._nomination_changed, self._nomination_ended)
        self._by_pods: Ranking[tuple[int, NodeName]] = Ranking(ReadCount())
        self.labels = LabelIndex()

    def on_gain(self, listener: Listener) -> None:
        """Call `listener` with each node where a pod may fit now, apart from its GPUs.

        The second argument is the causes that may be lifted there; without a node, on any. It must change nothing.
        """
        self._listeners.append(listener)

    def on_filled(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node that may have less room than before, or has left. It must change nothing."""
        self._filled.append(listener)

    def announce(self, node: NodeName | None, lifted: Cause) -> None:
        """Tell that pods may fit on a node now, see `on_gain`; the plugins tell what they alone know."""
        for listener in self._listeners:
            listener(node, lifted)

    @property
    def nodes(self) -> KeysView[NodeName]:
        """All nodes that exist, in no particular order."""
        return self._nodes.keys()

    @property
    def infos(self) -> Mapping[NodeName, NodeInfo]:
        """All nodes that exist, by name; the cache changes them."""
        return self._nodes

    def by_pods(self) -> Iterator[NodeName]:
        """All nodes that exist, by their number of pods, then by name. Change nothing while you iterate."""
        return (name for _, name in self._by_pods)

    def put_node(self, node: Node) -> None:
        """Take a node that was added or changed.

        Raises:
            InputError: the node's allocatable cannot be read; the node is not used then.
        """
        name = NodeName(node.metadata.name)
        try:
            info = node_info_of(node)
        except InputError:
            self.remove_node(name)
            raise
        self.changes.note(name)
        old = self._nodes.get(name)
        requested = self._requested.setdefault(name, Requested()) if old is None else old.requested
        self._nodes[name] = replace(info, requested=requested)
        if old is None:
            self._by_pods.add((requested.pods, name))
        self._note_node(name, old)
        self.announce(name, EVERYTHING if old is None else self._gains(node, old.node))
        self._note_filled(name)
        self._note_cpu(name)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node. Its pods count until they are gone too, because the node may come back."""
        self.changes.note(name)
        old = self._nodes.pop(name, None)
        if old is None:
            return
        self._by_pods.remove((old.requested.pods, name))
        self._drop_empty(name)
        self._note_node(name, old)
        self._note_filled(name)
        self._note_cpu(name)

    def pause(self, reason: str | None) -> None:
        """Place no pod anywhere until this is called with None; an empty reason pauses too. Placed pods stay."""
        paused = None if reason is None else f"{PAUSED}{f' ({reason})' if reason else ''}"
        if paused == self.paused:
            return
        self.paused = paused
        for name in self._nodes:
            self.changes.note(name)
            self._note_filled(name)
        if paused is None:
            self.announce(None, EVERYTHING)

    def labels_of(self, name: NodeName) -> Mapping[str, str] | None:
        """The labels of a node; None for a node that does not exist."""
        info = self._nodes.get(name)
        return None if info is None else info.labels

    def node(self, name: NodeName) -> NodeInfo | None:
        """A node as it is; None if it does not exist. What its pods request changes with them."""
        return self._nodes.get(name)

    def node_beside(self, name: NodeName, held: Sequence[Nomination]) -> NodeInfo | None:
        """A node as it would be with these nominated pods; None if it does not exist."""
        info = self._nodes.get(name)
        if info is None or not held:
            return info
        requested = info.requested.copy()
        for one in held:
            requested.add(one.needs)
        return replace(info, requested=requested, nominated=held)

    def has_node(self, name: NodeName) -> bool:
        """Whether the node exists."""
        return name in self._nodes

    def free(self, name: NodeName, resource: str) -> int:
        """The amount of a resource of a node that no pod has, by their requests; 0 for a node that does not exist."""
        info = self._nodes.get(name)
        if info is None:
            return 0
        return max(0, info.allocatable.get(resource, 0) - info.requested.amounts[resource])

    def assume(self, booking: Booking, needs: Needs, pod: Pod) -> None:
        """Count a pod on the node of its plan, before the pod is bound. The ledger has the booking already.

        Anti-affinity that cannot be read does not count. The pod's rules were read before; kube-scheduler, which
        chooses nodes for pods of the extender, refuses such a pod too.
        """
        assert self._ledger.booking(booking.pod) == booking, "a decision books before it is assumed"
        self._put(
            AssignedPod(
                pod, booking.node, needs, is_bound=False, anti_affinity=readable_anti_affinity_of(pod)
            )
        )

    def is_assumed(self, uid: PodUid) -> bool:
        """Whether the pod was placed here and the watch has not shown it bound yet."""
        known = self.assigned.find(uid)
        return known is not None and not known.is_bound

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
        self._put(AssignedPod(pod, name, needs, anti_affinity=anti_affinity))
        self.bookings.confirm(pod, assumed=assumed)
        if problems:
            raise problems[0]

    def forget(self, uid: PodUid) -> bool:
        """Free the room of a pod that ended, is gone, or was not bound; returns whether the pod had any."""
        self.bookings.release(uid)
        known = self.assigned.find(uid)
        if known is None:
            return False
        self.assigned.remove(uid)
        self._take_off(known)
        return True

    def _put(self, now: AssignedPod) -> None:
        old = self.assigned.find(now.uid)
        if old is not None and old.takes_as(now):  # as for an assumed pod that is now bound
            self.assigned.put(now)
            for one in self.observers:
                one.pod_changed(old, now)
            return
        if old is not None:
            self.assigned.remove(old.uid)
            self._take_off(old)
        self.assigned.put(now)
        self._count(now.node, lambda requested: requested.add(now.needs))
        for one in self.observers:
            one.pod_changed(None, now)
        self._note_filled(now.node)

    def _take_off(self, old: AssignedPod) -> None:
        self._count(old.node, lambda requested: requested.remove(old.needs))
        for one in self.observers:
            one.pod_changed(old, None)
        self.announce(old.node, Cause.RESOURCES | (Cause.VOLUMES if old.needs.mounts else NOTHING))

    def _note_node(self, name: NodeName, old: NodeInfo | None) -> None:
        now = self._nodes.get(name)
        before, after = {} if old is None else old.labels, {} if now is None else now.labels
        if before != after:
            self.labels.put(name, before, after)
        for one in self.observers:
            one.node_changed(name, old, now)

    def _note_filled(self, node: NodeName) -> None:
        for listener in self._filled:
            listener(node)

    def _nomination_changed(self, node: NodeName) -> None:
        self.changes.note(node)
        for one in self.observers:
            one.nomination_changed()

    def _nomination_ended(self, node: NodeName) -> None:
        if node in self._nodes:
            self.announce(node, EVERYTHING)

    def _count(self, name: NodeName, change: Callable[[Requested], None]) -> None:
        """Change what the pods of a node request, and its place among the nodes."""
        requested = self._requested.setdefault(name, Requested())
        before = requested.pods
        change(requested)
        self.changes.note(name)
        if name in self._nodes:
            self._by_pods.remove((before, name))
            self._by_pods.add((requested.pods, name))
        self._drop_empty(name)
        self._note_cpu(name)

    def _drop_empty(self, name: NodeName) -> None:
        """Keep no count of a node that neither exists nor has pods."""
        if name not in self._nodes and name in self._requested and not self._requested[name].pods:
            del self._requested[name]

    def _note_cpu(self, name: NodeName) -> None:
        """Tell the policies the spare CPU of a node."""
        self._ledger.spare_cpu.note(name, self.free(name, "cpu") if name in self._nodes else None)


def _readable(read: Callable[[], T], problems: list[InputError]) -> T | None:
    """The value read, or None with the problem noted: a bound pod counts as far as it can be read."""
    try:
        return read()
    except InputError as error:
        problems.append(error)
        return None
