"""The GPU bookings of bound pods: read once from the placer's decision, and changed by its own resizes alone.

What always holds: whatever else is written on a bound pod, its booking never shrinks. A decision that somebody else
changed counts as the larger of both on each GPU, because the node's broker may act on either. A pod without a
readable decision counts against every GPU of its node. Both are reported with a reason.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from placer.core.booking import Booking, Doubt, booking_of, grant_of, larger
from placer.core.ledger import Ledger
from placer.core.owners import owner_of
from placer.core.resize.change import ResizeChange
from placer.scheduler.pods.held import why_unheld
from placer.scheduler.pods.needs import needs_of
from plimsoll.contract import DECISION, SCHEDULER_NAME, asks_gpu
from plimsoll.demand import ContainerDemand, parse_pod
from plimsoll.events import NodeState
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

NO_DECISION: Final = (
    f"metadata.annotations[{DECISION}] is missing: somebody else bound the pod, or it is static"
)
CHANGED: Final = (
    f"metadata.annotations[{DECISION}] was changed by somebody else; the larger of the decided and the stated "
    "counts, and `plimsoll resize` writes the annotation anew"
)


@dataclass(frozen=True, slots=True)
class _Resize:
    """A resize whose annotation the watch has not shown yet.

    Attributes:
        version: the pod's resourceVersion before the write. Once the pod has a later one, the write cannot arrive.
        unclear: the write has ended without a clear answer.
        written: the API server has stored it. Whatever the pod states instead, somebody else wrote later.
    """

    old: Booking
    new: Booking
    version: str
    unclear: bool = False
    written: bool = False


class Bookings:
    """Keeps the ledger's bookings of bound pods. Not thread-safe: one event loop owns it.

    Attributes:
        decides: False while another placer decides. Then each decision is taken as it is read, because that placer
            may have resized the pod.
    """

    def __init__(self, ledger: Ledger, on_doubt: Callable[[Booking], None]) -> None:
        """Keep the bookings of this ledger.

        Args:
            ledger: the bookings of all pods.
            on_doubt: called with the booking of each pod that begins to count otherwise than its decision says.
        """
        self.decides = True
        self._ledger = ledger
        self._on_doubt = on_doubt
        self._usable_bytes: dict[NodeName, Mapping[GpuUuid, int]] = {}
        self._decided: dict[PodUid, Booking] = {}  # as booked, first read, or resized here
        self._foreign: dict[
            PodUid, tuple[Pod, str, str]
        ] = {}  # why it counts everywhere, and is held by nothing
        self._resizes: dict[PodUid, _Resize] = {}

    def observe(self, state: NodeState) -> None:
        """Count foreign pods against the GPUs of a report."""
        usable_bytes = {gpu.uuid: gpu.usable_bytes for gpu in state.gpus}
        if self._usable_bytes.get(state.node) == usable_bytes:
            return
        self._usable_bytes[state.node] = usable_bytes
        for pod, why, unheld in self._foreign.values():
            if pod.spec.nodeName == state.node:
                self._ledger.restore(foreign_booking(pod, usable_bytes, why, unheld))

    def forget_report(self, node: NodeName) -> None:
        """Forget the GPUs of a node whose report was dropped. Foreign pods that were counted there stay counted."""
        self._usable_bytes.pop(node, None)

    def confirm(self, pod: Pod, *, assumed: bool) -> None:
        """Count a pod that is bound.

        Args:
            pod: the pod as the watch shows it.
            assumed: the pod was placed here and was not shown bound before.
        """
        uid, node = PodUid(pod.metadata.uid), NodeName(pod.spec.nodeName or "")
        self._learn_kind(pod)
        stated, damage = _stated(pod)
        known = self._ledger.booking(uid)
        if assumed and known is not None and known.node == node and known.grants and stated is not None:
            self._decided[uid] = known
        decided = self._decided.get(uid)
        if self.decides and decided is not None and decided.node == node:
            self._read_again(pod, decided, stated)
        elif self.decides and uid in self._foreign:
            if known is None:
                first, why, unheld = self._foreign[uid]
                self._count(foreign_booking(first, self._usable_bytes.get(node, {}), why, unheld))
        elif stated is None and damage is None and not asks_gpu(pod):
            self.release(uid)
        else:
            self._read_first(pod, stated, damage)

    def release(self, uid: PodUid) -> None:
        """Free the GPUs of a pod that ended, is gone, or was not bound."""
        for known in (self._decided, self._foreign, self._resizes):
            known.pop(uid, None)
        self._ledger.forget(uid)

    def in_force(self, pod: Pod) -> Booking | None:
        """The booking of a pod that was read just now, without what somebody else wrote; None for a foreign pod."""
        uid = PodUid(pod.metadata.uid)
        resize = self._resizes.get(uid)
        if resize is None:
            return self._decided.get(uid)
        stated, _ = _stated(pod)
        return resize.new if resize.written or _same(stated, resize.new) else resize.old

    def is_settled(self, uid: PodUid) -> bool:
        """Whether the pod counts as its decision says: it is not in doubt, and no resize is under way."""
        known = self._ledger.booking(uid)
        return uid not in self._resizes and (known is None or known.doubt is None)

    def begin_resize(self, change: ResizeChange, version: str) -> None:
        """Count a bound pod by a resize, before the resize is written over this resourceVersion.

        The larger of both counts. The watch may still show the pod as it was.
        """
        self._ledger.restore(change.larger)
        self._resizes[change.new.pod] = _Resize(change.old, change.new, version)

    def end_resize(self, change: ResizeChange, *, written: bool) -> None:
        """Count a pod by its resize that was written, or as before a resize that surely was not."""
        uid = change.new.pod
        resize = self._resizes.pop(uid, None)
        if written and resize is not None:
            self._resizes[uid] = replace(resize, written=True)
        if uid in self._decided:
            self._decided[uid] = change.new if written else change.old
            self._ledger.restore(change.new if written else change.counted)

    def doubt_resize(self, change: ResizeChange) -> None:
        """Count the larger of both until the watch shows whether a write without a clear answer arrived."""
        resize = self._resizes.get(change.new.pod)
        if resize is not None:
            self._resizes[change.new.pod] = replace(resize, unclear=True)

    def _learn_kind(self, pod: Pod) -> None:
        """Count a pod among the typical pods: one that was placed before this placer began, or by another placer."""
        uid, workload = PodUid(pod.metadata.uid), self._ledger.workload
        if workload.knows(uid) or not (pod.spec.schedulerName == SCHEDULER_NAME or asks_gpu(pod)):
            return
        try:
            demand, needs = parse_pod(pod), needs_of(pod)
        except InputError:
            return  # such a pod is refused today, so later pods are not like it
        workload.see(uid, demand, needs.amounts.get("cpu", 0))

    def _read_first(self, pod: Pod, stated: Booking | None, damage: InputError | None) -> None:
        uid = PodUid(pod.metadata.uid)
        for before in (self._decided, self._foreign, self._resizes):
            before.pop(uid, None)
        if stated is not None:
            self._decided[uid] = stated
            self._count(stated)
        else:
            why, unheld = str(damage or NO_DECISION), why_unheld(pod)
            self._foreign[uid] = pod, why, unheld
            sizes = self._usable_bytes.get(NodeName(pod.spec.nodeName or ""), {})
            self._count(foreign_booking(pod, sizes, why, unheld))

    def _read_again(self, pod: Pod, decided: Booking, stated: Booking | None) -> None:
        uid, resize = decided.pod, self._resizes.get(decided.pod)
        if resize is not None and _same(stated, resize.new):
            del self._resizes[uid]
            decided = self._decided[uid] = resize.new
        elif resize is not None and _same(stated, resize.old):
            if not (resize.unclear and _is_later(pod.metadata.resourceVersion, resize.version)):
                return  # from before the resize
            del self._resizes[uid]
        elif resize is not None:
            decided = larger(resize.new, decided)
        if uid not in self._resizes and _same(stated, decided):
            self._count(decided)
            return
        doubt = Doubt(pod.metadata.namespace, pod.metadata.name, CHANGED, foreign=False)
        self._count(replace(decided if stated is None else larger(stated, decided), doubt=doubt))

    def _count(self, booking: Booking) -> None:
        known = self._ledger.booking(booking.pod)
        if known != booking:
            self._ledger.restore(booking)
        if booking.doubt is not None and (known is None or known.doubt != booking.doubt):
            self._on_doubt(booking)


def _stated(pod: Pod) -> tuple[Booking | None, InputError | None]:
    """The booking that a pod's decision states, and the damage that makes it unreadable."""
    try:
        return booking_of(pod), None
    except InputError as error:
        return None, error


def _same(one: Booking | None, other: Booking) -> bool:
    if one is None or one.node != other.node or one.locality != other.locality:
        return False
    return set(one.grants) == set(other.grants)


def _is_later(version: str, other: str) -> bool:
    """Whether a resourceVersion is later; both are whole numbers, which grow (Kubernetes 1.35, KEP-5504)."""
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


_EVERYTHING: Final = ContainerDemand(ContainerName(""), 1, None, 0, 100, whole=True)


def foreign_booking(pod: Pod, usable_bytes: Mapping[GpuUuid, int], why: str, unheld: str) -> Booking:
    """The booking of a bound pod whose GPUs nobody knows: bound by somebody else, static, or with a damaged decision.

    It counts against every GPU of its node by its resources alone, because its annotations are its owner's to edit.
    On each GPU it has what its containers request per GPU. A container that requests whole GPUs, or whose request
    cannot be read, takes every GPU whole.

    Args:
        pod: bound; requests one of our resources.
        usable_bytes: by GPU of the node, from its last report; empty before its first.
        why: the reason, for people, without an end.
        unheld: the reason why nothing holds the pod, likewise; empty where something does.
    """
    demands = _demands(pod)
    grants = tuple(
        grant_of(demand, gpu, size if demand.whole else 0)
        for gpu, size in usable_bytes.items()
        for demand in demands
    )
    node = NodeName(pod.spec.nodeName or "")
    reason = f"{why}; the pod counts against every GPU of {node}"
    if unheld:
        reason = f"held by nothing; {reason}. {unheld}"
    doubt = Doubt(pod.metadata.namespace, pod.metadata.name, reason, foreign=True, unheld=bool(unheld))
    return Booking(PodUid(pod.metadata.uid), node, grants, owner_of(pod), doubt)


def _demands(pod: Pod) -> tuple[ContainerDemand, ...]:
    bare = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=None))
    with suppress(InputError):
        return parse_pod(bare).containers
    return (_EVERYTHING,)
