"""The cluster as a decision reads it: nodes, the load of each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
Node load and GPU ledger are freed here together. A decision books in the ledger, and is assumed here at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from placer.core.fit import Amounts, Load, Needs, amounts_of, misfits, needs_of
from placer.core.ledger import Booking, Ledger
from placer.kube.antiaffinity import REASON as KEPT_OUT
from placer.kube.antiaffinity import Keepout, forbidden_domains, keepouts_of
from placer.kube.bookings import Bookings
from plimsoll.events import NodeState
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError

T = TypeVar("T")

UNKNOWN_NODE: Final = "node(s) were not known to the API server"


@dataclass(frozen=True, slots=True)
class _Offer:
    node: Node
    allocatable: Amounts


@dataclass(frozen=True, slots=True)
class _Resident:
    node: NodeName
    needs: Needs
    assumed: bool
    keepouts: tuple[Keepout, ...] = ()


class Cluster:
    """Nodes and their pods. Not thread-safe: one event loop owns it.

    Attributes:
        bookings: the GPU bookings of bound pods.
    """

    def __init__(self, ledger: Ledger, on_doubt: Callable[[Booking], None] = lambda _: None) -> None:
        """An empty cluster; for `on_doubt` see `Bookings`."""
        self.bookings = Bookings(ledger, on_doubt)
        self._ledger = ledger
        self._offers: dict[NodeName, _Offer] = {}
        self._loads: dict[NodeName, Load] = {}
        self._residents: dict[PodUid, _Resident] = {}
        self._keepers: dict[PodUid, _Resident] = {}  # the residents with anti-affinity rules

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """All nodes that exist, those with the fewest pods first."""
        return tuple(sorted(self._offers, key=lambda name: (self._load(name).pods, name)))

    def put_node(self, node: Node) -> None:
        """Take a node that was added or changed.

        Raises:
            InputError: the node's allocatable cannot be read; the node is not used then.
        """
        name = NodeName(node.metadata.name)
        self._offers.pop(name, None)
        allocatable = amounts_of(node.status.allocatable, f"nodes/{name}: status.allocatable")
        self._offers[name] = _Offer(node, allocatable)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node. Its pods count until they are gone too, because the node may come back."""
        self._offers.pop(name, None)

    def has_node(self, name: NodeName) -> bool:
        """Whether the node exists."""
        return name in self._offers

    def observe(self, state: NodeState) -> None:
        """Learn peaks and the GPUs of a node from a report."""
        self.bookings.observe(state)
        self._ledger.observe(state)

    def misfits(self, pod: Pod, needs: Needs, name: NodeName) -> tuple[str, ...]:
        """The reasons why a node is unfit for a pod, apart from its GPUs; empty for a fit node."""
        offer = self._offers.get(name)
        if offer is None:
            return (UNKNOWN_NODE,)
        reasons = misfits(pod, needs, offer.node, offer.allocatable, self._load(name))
        if not reasons and self._keepers and self._is_kept_out(pod, offer.node):
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
        resident = self._residents.pop(uid, None)
        self._keepers.pop(uid, None)
        if resident is None:
            return False
        self._load(resident.node).remove(resident.needs)
        return True

    def _settle(self, uid: PodUid, resident: _Resident) -> None:
        before = self._residents.get(uid)
        if before is not None:
            self._load(before.node).remove(before.needs)
        self._residents[uid] = resident
        if resident.keepouts:
            self._keepers[uid] = resident
        self._load(resident.node).add(resident.needs)

    def _is_kept_out(self, pod: Pod, node: Node) -> bool:
        rules = (
            (rule, self._offers[keeper.node].node.metadata.labels or {})
            for keeper in self._keepers.values()
            if keeper.node in self._offers
            for rule in keeper.keepouts
        )
        labels = node.metadata.labels or {}
        return any(labels.get(key) == value for key, value in forbidden_domains(pod, rules))

    def _load(self, name: NodeName) -> Load:
        return self._loads.setdefault(name, Load())


def _readable(read: Callable[[], T], problems: list[InputError]) -> T | None:
    """The value read, or None with the problem noted: a bound pod counts as far as it can be read."""
    try:
        return read()
    except InputError as error:
        problems.append(error)
        return None
