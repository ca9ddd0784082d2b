"""The shortages of a node: all that must be freed there so that a waiting pod fits.

The check of fitness itself is `placer.core.room.misfit`; this file measures by how much it fails. A pod may need
several GPUs: the GPUs that lack least are chosen. Memory that a pod frees is counted as the ledger counts it. Until
the pod's processes are gone, the memory still shows as unattributed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.locality import gpu_labels
from placer.core.policies.policy import Policy, PolicyError
from placer.core.policy_context import Context, Request, Rooms
from placer.core.reasons import Reason
from placer.core.room import SHARERS_PER_GPU, WHOLE_TOLERANCE_BYTES, Room, misfit
from placer.core.view import NodeView
from plimsoll.demand import ContainerDemand, hardest_first
from plimsoll.ids import NodeName, PodUid
from plimsoll.locality import Locality
from plimsoll.placer_api.explain import HOLDERS_SHOWN, Holder, NodeShortage, Shortage
from plimsoll.quantity import format_bytes

_LABELS: Final[dict[Reason | None, str]] = {
    Reason.ANTI_AFFINITY: "has a pod with the same anti-affinity label",
    Reason.EXCLUSION: "is in use by pods without the pod's exclusion label",
    Reason.EXCLUDED: "is kept by an exclusion label for other pods",
}

_FAR: Final = 1000.0
"""The distance that a GPU on which the container can never fit has more than any other."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """A pod that holds a part of a GPU, for people.

    Attributes:
        namespace, name: the pod's.
        priority: `spec.priority`, 0 if absent.
    """

    namespace: str
    name: str
    priority: int = 0


Identify = Callable[[PodUid], PodIdentity | None]
"""Gives the pod of a booking; None for one that is not known."""


@dataclass(frozen=True, slots=True)
class _Held:
    identity: PodIdentity | None
    memory_bytes: int
    share_pct: int
    containers: int
    whole: bool
    is_lower: bool
    locality: Locality


@dataclass(frozen=True, slots=True)
class _Lacking:
    shortage: Shortage
    distance: float
    lower_suffices: bool


@dataclass(frozen=True, slots=True)
class Freeing:
    """Measures for one pod what nodes lack.

    Attributes:
        request: the pod.
        policy: its policy; a GPU to which it objects is none to free.
        priority: its priority.
        ledger: the bookings of all pods.
        identify: names the pods of bookings.
    """

    request: Request
    policy: Policy
    priority: int
    ledger: Ledger
    identify: Identify

    def on(self, view: NodeView, rooms: Rooms) -> tuple[float, NodeShortage] | None:
        """The shortages of the node, with a distance: the lower, the less must be freed.

        Args:
            view: a node that fits apart from its GPUs.
            rooms: the rooms of its GPUs.

        Returns:
            None where freeing cannot help: the node has too few GPUs that the pod may have.
        """
        demand, node = self.request.demand, view.node
        context = Context(self.request, view, rooms, self.ledger)
        usable = [room for room in rooms.values() if self._may_have(node, room)]
        for container in sorted(demand.containers, key=hardest_first):
            allowed = [room for room in usable if self._is_allowed(context, room, container)]
            if container.gpus > len(allowed):
                return None
            expected_bytes = self._expected_bytes(container)
            unfit = [room for room in allowed if misfit(room, container, expected_bytes, demand.locality)]
            missing = container.gpus - (len(allowed) - len(unfit))
            if missing > 0:
                lacking = sorted(
                    (self._lacking(node, room, container) for room in unfit),
                    key=lambda one: (one.distance, one.shortage.gpu),
                )[:missing]
                return sum(one.distance for one in lacking), _node_shortage(node, container, lacking)
        if not usable:
            return None
        text = f"{node}: each container fits alone, and all together do not"
        return 0.5, NodeShortage(node=node, text=text)

    def _may_have(self, node: NodeName, room: Room) -> bool:
        """Whether the pod may have a GPU, by its model and its name, however full the GPU is."""
        demand, gpu = self.request.demand, room.gpu
        return (
            (not demand.gpu_models or gpu.model in demand.gpu_models)
            and demand.gpu_id in (None, gpu.uuid)
            and (demand.gpu_name is None or self.ledger.names_on(node, gpu.uuid) <= {demand.gpu_name})
            and all((node, gpu.uuid) == tied for tied in self.ledger.fixed(demand))
        )

    def _is_allowed(self, context: Context, room: Room, container: ContainerDemand) -> bool:
        try:
            return self.policy.objection(context, room, container) is None
        except PolicyError:
            return False  # the next decision says so

    def _expected_bytes(self, container: ContainerDemand) -> int:
        return container.memory_bytes or self.ledger.best_effort_bytes(self.request.owner)

    def _lacking(self, node: NodeName, room: Room, container: ContainerDemand) -> _Lacking:
        held = [self._held(room, booking) for booking in self.ledger.on_gpu(node, room.gpu.uuid)]
        needed_bytes = 0 if container.whole else max(self._expected_bytes(container), 1)
        if container.whole:
            possible = room.unattributed_bytes <= WHOLE_TOLERANCE_BYTES
        else:
            possible = needed_bytes <= _most_bytes(room, container)
        shortage = Shortage(
            gpu=room.gpu.uuid,
            usable_bytes=room.gpu.usable_bytes,
            lacks_bytes=max(0, needed_bytes - room.open_to(container)) if not container.whole else 0,
            lacks_share_pct=max(0, container.share_pct - room.free_share_pct) if not container.whole else 0,
            must_be_empty=container.whole and not room.is_empty,
            taken_whole=room.taken_whole,
            too_many=room.sharers >= SHARERS_PER_GPU,
            label=_LABELS.get(room.labels.refuse(self.request.demand.locality), ""),
            unattributed_bytes=room.unattributed_bytes,
            possible=possible,
            holders=_holders(held),
        )
        return _Lacking(shortage, _distance(shortage, room), possible and self._suffices(shortage, held))

    def _suffices(self, shortage: Shortage, held: Collection[_Held]) -> bool:
        """Whether a container would fit on a GPU if the pods of lower priority there ended."""
        left = [one.locality for one in held if not one.is_lower]
        if gpu_labels(left).refuse(self.request.demand.locality) is not None:
            return False
        return _suffices(shortage, held, [one for one in held if one.is_lower])

    def _held(self, room: Room, booking: Booking) -> _Held:
        uuid = room.gpu.uuid
        grants = [grant for grant in booking.grants if grant.gpu == uuid]
        identity = self.identify(booking.pod)
        return _Held(
            identity=identity,
            memory_bytes=max(
                self.ledger.expected_bytes(booking, uuid), room.gpu.measured_bytes.get(booking.pod, 0)
            ),
            share_pct=sum(grant.share_pct for grant in grants),
            containers=len(grants),
            whole=any(grant.whole for grant in grants),
            is_lower=identity is not None and identity.priority < self.priority,
            locality=booking.locality,
        )


def _most_bytes(room: Room, container: ContainerDemand) -> int:
    """The most bytes that a container may be expected to need on a GPU without any pod."""
    ratio = room.gpu.overcommit_ratio
    if container.memory_bytes is None:
        ratio = min(ratio, 1.0)
    return min(int(room.gpu.usable_bytes * ratio) - room.unattributed_bytes, room.gpu.usable_bytes)


def _distance(shortage: Shortage, room: Room) -> float:
    distance = shortage.lacks_bytes / room.gpu.usable_bytes + shortage.lacks_share_pct / 100
    if shortage.must_be_empty:
        distance += 1 - room.free_ratio + room.sharers
    elif shortage.taken_whole or shortage.too_many or shortage.label:
        distance += 1
    return distance if shortage.possible else distance + _FAR


def _suffices(shortage: Shortage, held: Collection[_Held], lower: Collection[_Held]) -> bool:
    """Whether a GPU would have the room for a container if these pods of lower priority ended."""
    if shortage.must_be_empty:
        return len(lower) == len(held)
    if shortage.taken_whole and not any(one.whole for one in lower):
        return False
    left = sum(one.containers for one in held) - sum(one.containers for one in lower)
    return (
        left < SHARERS_PER_GPU
        and sum(one.memory_bytes for one in lower) >= shortage.lacks_bytes
        and sum(one.share_pct for one in lower) >= shortage.lacks_share_pct
    )


def _holders(held: Collection[_Held]) -> tuple[Holder, ...]:
    by_namespace: dict[str, list[_Held]] = {}
    for one in sorted(held, key=lambda one: -one.memory_bytes):
        by_namespace.setdefault(one.identity.namespace if one.identity else "", []).append(one)
    holders = (
        Holder(
            namespace=namespace,
            pods=len(pods),
            names=tuple(one.identity.name for one in pods[:HOLDERS_SHOWN] if one.identity),
            memory_bytes=sum(one.memory_bytes for one in pods),
            share_pct=sum(one.share_pct for one in pods),
            lower_priority=sum(one.is_lower for one in pods),
        )
        for namespace, pods in by_namespace.items()
    )
    return tuple(sorted(holders, key=lambda one: (-one.memory_bytes, one.namespace)))


def _node_shortage(node: NodeName, container: ContainerDemand, lacking: Collection[_Lacking]) -> NodeShortage:
    shortages = tuple(one.shortage for one in lacking)
    return NodeShortage(
        node=node,
        container=container.container,
        gpus=shortages,
        lower_priority_suffices=all(one.lower_suffices for one in lacking),
        text="; ".join(_text(node, one) for one in shortages),
    )


def _text(node: NodeName, shortage: Shortage) -> str:
    held = _held_text(shortage)
    where = f"{node} {shortage.gpu}"
    if not shortage.possible:
        size = format_bytes(shortage.usable_bytes)
        return f"{where} would not fit the container even if all pods there ended: it has {size}{held}"
    return f"{where} {' and '.join(_lacks(shortage))}{held}"


def _lacks(shortage: Shortage) -> list[str]:
    if shortage.must_be_empty:
        return ["is in use, and a whole GPU was asked for"]
    if shortage.taken_whole:
        return ["belongs to one container alone"]
    lacks = []
    if shortage.lacks_bytes:
        lacks.append(f"lacks {format_bytes(shortage.lacks_bytes)}")
    if shortage.lacks_share_pct:
        lacks.append(f"lacks {shortage.lacks_share_pct} % of compute time")
    if shortage.too_many:
        lacks.append("is shared by too many containers")
    if shortage.label:
        lacks.append(shortage.label)
    return lacks


def _held_text(shortage: Shortage) -> str:
    texts = [_holder_text(holder, shortage) for holder in shortage.holders]
    if shortage.unattributed_bytes:
        size = format_bytes(shortage.unattributed_bytes)
        texts.append(f"processes of no known pod hold {size}")
    return f"; {', '.join(texts)}" if texts else ""


def _holder_text(holder: Holder, shortage: Shortage) -> str:
    pods = "1 pod" if holder.pods == 1 else f"{holder.pods} pods"
    whose = f" of {holder.namespace}" if holder.namespace else ""
    verb = "holds" if holder.pods == 1 else "hold"
    held = []
    if holder.memory_bytes or not shortage.lacks_share_pct:
        held.append(format_bytes(holder.memory_bytes))
    if shortage.lacks_share_pct:
        held.append(f"{holder.share_pct} %")
    return f"{pods}{whose} {verb} {' and '.join(held)}"
