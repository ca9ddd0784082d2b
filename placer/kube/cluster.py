"""The cluster as a decision reads it: nodes, the load of each, and the ledger, booked and freed together.

What always holds: every pod that has a node and has not ended counts, whichever scheduler placed it, and counts once.
A pod is *assumed* from the decision on, before the API server knows. A pod's room is free the moment the pod is gone.
Node load and GPU ledger are freed here together. A decision books in the ledger, and is assumed here at once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from placer.core.fit import Amounts, Load, Needs, amounts_of, misfits, needs_of
from placer.core.ledger import Booking, Ledger, booking_of
from placer.kube.antiaffinity import REASON as KEPT_OUT
from placer.kube.antiaffinity import Keepout, forbidden_domains, keepouts_of
from plimsoll.contract import ASSIGNED_PREFIX, LINES, SHARES
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError
from plimsoll.resizes import Resized, readable_resizes, resized_of

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
    """Nodes and their pods. Not thread-safe: one event loop owns it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._offers: dict[NodeName, _Offer] = {}
        self._loads: dict[NodeName, Load] = {}
        self._residents: dict[PodUid, _Resident] = {}
        self._usable_bytes: dict[NodeName, Mapping[GpuUuid, int]] = {}
        self._keepers: dict[PodUid, _Resident] = {}  # the residents with anti-affinity rules
        self._awaited: dict[PodUid, Resized] = {}  # resizes that the watch has not shown yet

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """All nodes that exist, those with the fewest pods first."""
        return tuple(sorted(self._offers, key=lambda name: (self._load(name).pods, name)))

    @property
    def has_rules(self) -> bool:
        """Whether a pod with a node has an anti-affinity rule."""
        return bool(self._keepers)

    def has_rule(self, uid: PodUid) -> bool:
        """Whether this pod has a node and an anti-affinity rule."""
        return uid in self._keepers

    def node_of(self, uid: PodUid) -> NodeName | None:
        """The node where the pod counts, or None."""
        resident = self._residents.get(uid)
        return None if resident is None else resident.node

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

    def observe(self, state: NodeState) -> None:
        """Learn peaks and the sizes of GPUs from a report."""
        self._usable_bytes[state.node] = {gpu.uuid: gpu.usable_bytes for gpu in state.gpus}
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
            InputError: the pod's demands cannot be read. The pod still counts, as far as it could be read.
        """
        uid, name = PodUid(pod.metadata.uid), NodeName(pod.spec.nodeName or "")
        problems: list[InputError] = []
        needs = _readable(lambda: needs_of(pod), problems) or Needs({}, frozenset())
        keepouts = _readable(lambda: keepouts_of(pod), problems) or ()
        self._settle(uid, _Resident(name, needs, assumed=False, keepouts=keepouts))
        sizes = self._usable_bytes.get(name, {})
        try:
            booking = booking_of(pod, sizes)
        except InputError as error:
            problems.append(error)
            spoiled = _readable(lambda: booking_of(_without_wishes(pod), sizes), problems)
            booking = spoiled or self._ledger.booking(uid)
        if not self._is_from_before_resize(pod):
            self._restore(uid, booking)
        if problems:
            raise problems[0]

    def assume_resize(self, booking: Booking, resized: Resized) -> None:
        """Count a bound pod by a resize, before the resize is written.

        The watch may still show the pod as it was. Once the watch shows the resize, its pods count as shown again.

        Args:
            booking: the pod's booking, resized.
            resized: the resizes as they will stand in the pod's annotations.
        """
        self._ledger.restore(booking)
        self._awaited[booking.pod] = resized

    def settle_resize(self, booking: Booking, *, written: bool) -> None:
        """Count a pod by this booking after its resize ended, if the pod still exists.

        Args:
            booking: the pod's booking in force.
            written: False if the resize may be missing from the annotations; the pod then counts as the watch shows.
        """
        if not written:
            self._awaited.pop(booking.pod, None)
        if self._ledger.booking(booking.pod) is not None:
            self._ledger.restore(booking)

    def release(self, uid: PodUid) -> bool:
        """Free the room of a pod that ended, is gone, or was not bound; returns whether the pod had any."""
        self._awaited.pop(uid, None)
        resident = self._residents.pop(uid, None)
        self._keepers.pop(uid, None)
        self._ledger.forget(uid)
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

    def _restore(self, uid: PodUid, booking: Booking | None) -> None:
        known = self._ledger.booking(uid)
        if booking is None:
            self._ledger.forget(uid)
        elif known is None or _promised(known) != _promised(booking):
            # An equal booking stays: it holds the decided lines of containers that declare no memory.
            self._ledger.restore(booking)

    def _is_from_before_resize(self, pod: Pod) -> bool:
        uid = PodUid(pod.metadata.uid)
        awaited = self._awaited.get(uid)
        if awaited is None or self._ledger.booking(uid) is None:
            return False
        if _readable(lambda: resized_of(pod), []) != awaited:
            return True
        del self._awaited[uid]
        return False

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


def _promised(booking: Booking) -> tuple[NodeName, set[tuple[str, str, int | None, int, int]]]:
    return booking.node, {
        (grant.container, grant.gpu, grant.memory_bytes, grant.share_pct, grant.limit_pct)
        for grant in booking.grants
    }


def _without_wishes(pod: Pod) -> Pod:
    """The pod with only the placer's own annotations, which with its resources suffice for its booking."""
    answers: Iterable[tuple[str, str]] = (pod.metadata.annotations or {}).items()
    resized = readable_resizes(pod)
    readable = {LINES: resized.lines, SHARES: resized.shares}
    kept = {name: value for name, value in answers if name.startswith(ASSIGNED_PREFIX) or readable.get(name)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=kept)
    return msgspec.structs.replace(pod, metadata=metadata)
