"""The ledger of promises: the bytes and shares that each pod declared and was given.

The API server is the truth. The ledger is its image, plus the pods that are assumed to be bound while the write is
under way. A booking counts in full from the moment of placement on, before the pod's process exists and after the
process has loaded. What always holds: a pod is booked at most once, and `book` never lets the promised shares of a
GPU pass 100. The booking of a bound pod is read from the placer's own decision alone, see `plimsoll.decision`.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from placer.core.booking import Booking, Grant, learns, shares_a_whole_gpu
from placer.core.holders import GpuKey, Holders
from placer.core.locality import GpuLabels, gpu_labels
from placer.core.owner_models import OwnerModels
from placer.core.target_workload import TargetWorkload
from plimsoll.demand import PodDemand
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.lifespan import beside, peak
from plimsoll.locality import Locality
from plimsoll.part.errors import PlimsollError
from plimsoll.quantity import GIB


class SpareCpu:
    """The CPU that the pods of each node leave, as front ends note it. Not thread-safe: one event loop owns it.

    Policies weigh it, since a GPU without CPU beside it is of no use.
    """

    def __init__(self) -> None:
        self._milli: dict[NodeName, int] = {}
        self._listeners: list[Callable[[NodeName], None]] = []

    def on_change(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node whose spare CPU changed; it must not block or raise."""
        self._listeners.append(listener)

    def note(self, node: NodeName, milli: int | None) -> None:
        """Note the spare CPU of a node, in thousandths; None: not known any more."""
        if self._milli.get(node) == milli:
            return
        if milli is None:
            self._milli.pop(node, None)
        else:
            self._milli[node] = milli
        for listener in self._listeners:
            listener(node)

    def on(self, node: NodeName) -> int | None:
        """The spare CPU of a node, in thousandths; None: not known, so it counts as enough for every pod."""
        return self._milli.get(node)

    def suffices_for(self, milli: int) -> Callable[[NodeName], bool]:
        """Says whether a node has this much CPU to spare. A node whose CPU is not known counts as having it."""
        spare = self._milli
        return lambda node: spare.get(node, milli) >= milli


ASSUMED_BYTES: Final = GIB
"""The expected bytes of a best-effort pod whose owner has no learned peak: roughly a context and a small model.
Counting nothing would send a whole burst to the same GPU. Counting more would refuse small pods."""

REMEMBERED_PODS: Final = 20_000
"""Pods whose owners are known after they left, some 4 MiB: a task's exit may be reported after its pod is gone."""


class NotBookedError(PlimsollError):
    """The ledger no longer has the room that the plan took: plan again from a fresh view."""


class Promise(NamedTuple):
    """The most of one GPU that a pod's containers have at any time. Each number has its own maximum.

    Attributes:
        expected_bytes: the bytes that they are expected to need together.
        declared_bytes: the bytes that they declare together.
        share_pct: their shares together.
        sharers: the number of containers.
        whole: a container owns the GPU alone while it runs.
    """

    expected_bytes: int
    declared_bytes: int
    share_pct: int
    sharers: int
    whole: bool


Listener = Callable[[NodeName, GpuUuid], None]


class Ledger:
    """All bookings, indexed by pod and by GPU. Not thread-safe: one event loop owns it.

    Attributes:
        spare_cpu: the CPU of each node that its pods leave.
        owner_models: the models of the GPUs that each owner's pods have.
        workload: the typical pods.
    """

    def __init__(self, workload: TargetWorkload | None = None) -> None:
        """Begin without bookings. The target workload is learned where none is given."""
        self.spare_cpu = SpareCpu()
        self.owner_models = OwnerModels()
        self.workload = workload or TargetWorkload()
        self._bookings: dict[PodUid, Booking] = {}
        self._by_gpu: defaultdict[GpuKey, dict[PodUid, Booking]] = defaultdict(dict)
        self._by_node: defaultdict[NodeName, dict[GpuUuid, None]] = defaultdict(dict)  # GPUs with bookings
        self._by_owner: defaultdict[str, dict[PodUid, Booking]] = defaultdict(dict)  # only best-effort pods
        self._learned_bytes: dict[str, int] = {}  # by owner
        # Also of pods that left. The pod that was booked last comes last.
        self._owners: OrderedDict[PodUid, str] = OrderedDict()
        self._listeners: list[Listener] = []
        self._learners: list[Callable[[str], None]] = []
        self._names = Holders()
        self._affinities = Holders()
        self._whole: Ledger | None = None  # of which this ledger is a part

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with each GPU whose promises changed; it must not block, raise, or change the ledger."""
        self._listeners.append(listener)

    def on_less_expected(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each owner whose best-effort pods are expected to need less than before.

        It must not block, raise, or change the ledger.
        """
        self._learners.append(listener)

    def book(self, booking: Booking) -> None:
        """Count a pod from now on.

        Raises:
            NotBookedError: the pod is booked already, or a GPU's promised shares would pass 100, or a whole GPU
                would be shared, or a locality label would not hold. The ledger is unchanged then.
        """
        if booking.pod in self._bookings:
            raise NotBookedError(f"pod {booking.pod} is booked on {self._bookings[booking.pod].node} already")
        self._refuse_overbooking(booking)
        self._refuse_labels(booking)
        self.restore(booking)

    def restore(self, booking: Booking) -> None:
        """Count a pod that is bound already, even if its GPUs are overbooked then: the API server is the truth."""
        self.forget(booking.pod)
        self._bookings[booking.pod] = booking
        for grant in booking.grants:
            self._by_gpu[booking.node, grant.gpu][booking.pod] = booking
            self._by_node[booking.node][grant.gpu] = None
        if booking.owner is not None:
            self._remember(booking.pod, booking.owner)
            if self._whole is None:
                self.owner_models.add(booking.owner, booking.pod, (grant.gpu for grant in booking.grants))
        if booking.owner is not None and any(learns(grant) for grant in booking.grants):
            self._by_owner[booking.owner][booking.pod] = booking
        for holders, name in self._names_of(booking):
            holders.add(name, booking.pod, (booking.node, booking.grants[0].gpu))
        self._announce(booking)

    def forget(self, pod: PodUid) -> Booking | None:
        """Stop counting a pod that ended, was deleted, or could not be bound; returns its booking or None."""
        booking = self._bookings.pop(pod, None)
        if booking is not None:
            for grant in booking.grants:
                on_gpu = self._by_gpu[booking.node, grant.gpu]
                on_gpu.pop(pod, None)
                if not on_gpu:
                    del self._by_gpu[booking.node, grant.gpu]
                    self._by_node[booking.node].pop(grant.gpu, None)
            if not self._by_node[booking.node]:
                del self._by_node[booking.node]
            owner = booking.owner
            if owner is not None and self._whole is None:
                self.owner_models.remove(owner, pod)
            if owner is not None and owner in self._by_owner:
                self._by_owner[owner].pop(pod, None)
                if not self._by_owner[owner]:
                    del self._by_owner[owner]
            freed = [holders for holders, name in self._names_of(booking) if holders.remove(name, pod)]
            self._announce(booking)
            for holders in freed:
                holders.freed()
        return booking

    def _names_of(self, booking: Booking) -> list[tuple[Holders, str]]:
        """The names that a booking gives to its GPU."""
        both = ((self._names, booking.gpu_name), (self._affinities, booking.locality.affinity))
        return [(holders, name) for holders, name in both if name is not None] if booking.grants else []

    def on_name_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a name has no GPU any more; it must not block, raise, or change the ledger."""
        self._names.on_freed(listener)

    def on_affinity_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when an affinity label has no GPU any more, see `on_name_freed`."""
        self._affinities.on_freed(listener)

    def holder(self, name: str) -> GpuKey | None:
        """The node and GPU to which a name is given now; None if no GPU has it."""
        found = self._names.gpu(name)
        return self._whole.holder(name) if found is None and self._whole is not None else found

    def joined(self, locality: Locality) -> GpuKey | None:
        """The node and the GPU that have a pod's affinity label now; None for a new label, or for no label."""
        if locality.affinity is None:
            return None
        found = self._affinities.gpu(locality.affinity)
        return self._whole.joined(locality) if found is None and self._whole is not None else found

    def fixed(self, demand: PodDemand) -> tuple[GpuKey, ...]:
        """The nodes and GPUs to which the pods that are booked tie a pod, by name and affinity: one, if it can go."""
        found = (
            self.holder(demand.gpu_name) if demand.gpu_name is not None else None,
            self.joined(demand.locality),
        )
        return tuple(dict.fromkeys(one for one in found if one is not None))

    def names_on(self, node: NodeName, gpu: GpuUuid) -> frozenset[str]:
        """The names of one GPU: at most one, unless somebody else bound pods."""
        return frozenset(one.gpu_name for one in self.on_gpu(node, gpu) if one.gpu_name is not None)

    def labels_on(self, node: NodeName, gpu: GpuUuid) -> GpuLabels:
        """The locality labels of one GPU."""
        return gpu_labels([one.locality for one in self.on_gpu(node, gpu)])

    def _remember(self, pod: PodUid, owner: str) -> None:
        self._owners[pod] = owner
        self._owners.move_to_end(pod)
        if len(self._owners) > REMEMBERED_PODS:
            self._owners.popitem(last=False)

    def owner(self, pod: PodUid) -> str | None:
        """The owner of a pod that is booked, or was not long ago; None for any other."""
        return self._owners.get(pod)

    def expect(self, owner: str, peak_bytes: int | None) -> None:
        """Expect this much of each best-effort pod of an owner from now on; None: what is assumed of all."""
        before_bytes = self.best_effort_bytes(owner)
        if peak_bytes is None:
            self._learned_bytes.pop(owner, None)
        else:
            self._learned_bytes[owner] = peak_bytes
        if self.best_effort_bytes(owner) == before_bytes:
            return
        for booking in self._by_owner.get(owner, {}).values():
            self._announce(booking)
        if self.best_effort_bytes(owner) < before_bytes:
            for listener in self._learners:
                listener(owner)

    def _announce(self, booking: Booking) -> None:
        for listener in self._listeners:
            for grant in booking.grants:
                listener(booking.node, grant.gpu)

    def booking(self, pod: PodUid) -> Booking | None:
        """A pod's booking, or None."""
        return self._bookings.get(pod)

    def bookings(self) -> Iterable[Booking]:
        """All bookings."""
        return self._bookings.values()

    def on_gpu(self, node: NodeName, gpu: GpuUuid) -> tuple[Booking, ...]:
        """The bookings that have a grant on one GPU."""
        return tuple(self._by_gpu.get((node, gpu), {}).values())

    def gpus_on(self, node: NodeName) -> tuple[GpuUuid, ...]:
        """The GPUs of a node that have bookings, also those that no report names."""
        return tuple(self._by_node.get(node, ()))

    def part(self, node: NodeName, gpus: Iterable[GpuUuid]) -> "Ledger":
        """A copy of the bookings on some GPUs of a node, for a dry run. It reads this ledger's learned peaks."""
        part = Ledger()
        part._learned_bytes = self._learned_bytes
        part._whole = self
        part.spare_cpu, part.owner_models, part.workload = self.spare_cpu, self.owner_models, self.workload
        for gpu in gpus:
            for booking in self.on_gpu(node, gpu):
                part.restore(booking)
        return part

    def share_pct_beside(self, booking: Booking, grant: Grant) -> int:
        """The compute time of a grant's GPU, in percent, that others are promised while its container runs.

        Args:
            booking: a pod's booking, which the ledger need not have.
            grant: one of its grants.
        """
        others = sum(
            self.promise(other, grant.gpu).share_pct
            for other in self.on_gpu(booking.node, grant.gpu)
            if other.pod != booking.pod
        )
        own = (
            (one.lifespan, one.share_pct)
            for one in booking.grants
            if one.gpu == grant.gpu and one.container != grant.container
        )
        return others + beside(grant.lifespan, own)

    def expected_bytes_beside(self, booking: Booking, grant: Grant) -> int:
        """The bytes that a pod's other containers are expected to need on a grant's GPU while its own runs."""
        own = (
            (one.lifespan, self._expected_of(one, booking.owner))
            for one in booking.grants
            if one.gpu == grant.gpu and one.container != grant.container
        )
        return beside(grant.lifespan, own)

    def learned_bytes(self, owner: str | None) -> int | None:
        """The bytes that a pod of this owner is expected to need on one GPU; None if nothing was learned."""
        return self._learned_bytes.get(owner) if owner is not None else None

    def expected_bytes(self, booking: Booking, gpu: GpuUuid) -> int:
        """The most bytes that a pod is expected to need on one GPU: declared, learned, or assumed."""
        return self.promise(booking, gpu).expected_bytes

    def promise(self, booking: Booking, gpu: GpuUuid) -> Promise:
        """The part of one GPU that a pod is promised."""
        on = [grant for grant in booking.grants if grant.gpu == gpu]
        if len(on) == 1:  # as for nearly all pods
            (one,) = on
            expected_bytes = self._expected_of(one, booking.owner)
            return Promise(expected_bytes, one.memory_bytes or 0, one.share_pct, 1, one.whole)
        return Promise(
            expected_bytes=peak((one.lifespan, self._expected_of(one, booking.owner)) for one in on),
            declared_bytes=peak((one.lifespan, one.memory_bytes or 0) for one in on),
            share_pct=peak((one.lifespan, one.share_pct) for one in on),
            sharers=peak((one.lifespan, 1) for one in on),
            whole=any(one.whole for one in on),
        )

    def _expected_of(self, grant: Grant, owner: str | None) -> int:
        if grant.whole:
            return grant.line_bytes
        return grant.memory_bytes or self.best_effort_bytes(owner)

    def best_effort_bytes(self, owner: str | None) -> int:
        """The bytes that one best-effort container of this owner is expected to need on one GPU."""
        learned = self.learned_bytes(owner)
        return ASSUMED_BYTES if learned is None else learned

    def _refuse_overbooking(self, booking: Booking) -> None:
        for gpu in {grant.gpu for grant in booking.grants}:
            others = [self.promise(other, gpu) for other in self.on_gpu(booking.node, gpu)]
            promises = (*others, self.promise(booking, gpu))
            if sum(promise.share_pct for promise in promises) > 100:
                raise NotBookedError(f"promised shares of GPU {gpu} on {booking.node} would pass 100")
            is_shared = bool(others) or shares_a_whole_gpu(booking, gpu)
            if is_shared and any(promise.whole for promise in promises):
                raise NotBookedError(f"GPU {gpu} on {booking.node} is, or would be, one container's alone")

    def _refuse_labels(self, booking: Booking) -> None:
        own = {(booking.node, grant.gpu) for grant in booking.grants}
        for node, gpu in own:
            reason = self.labels_on(node, gpu).refuse(booking.locality)
            if reason is not None:
                raise NotBookedError(
                    f"a label keeps pod {booking.pod} from GPU {gpu} on {node}: {reason.value}"
                )
        joined = self.joined(booking.locality)
        if booking.locality.affinity is not None and own and own != {joined or next(iter(own))}:
            raise NotBookedError(
                f"pod {booking.pod} would give label {booking.locality.affinity} to a second GPU"
            )
