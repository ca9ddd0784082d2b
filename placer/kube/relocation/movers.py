"""Tells which pods may be moved, and what their replacements will ask for.

What always holds: a pod is moved only if its own annotation allows it and a controller will replace it. No pod is
moved for a pod of lower priority.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.owners import owner_of
from placer.core.relocation.plan import Movable
from placer.kube.budgets import Budgets
from placer.kube.cluster import Cluster
from placer.kube.occupants import Occupant
from placer.kube.relocation.rules import RelocationRules
from plimsoll.contract import SCHEDULER_NAME, without_answers
from plimsoll.demand import relocation_cost_of
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import OwnerReference, Pod, PodStatus
from plimsoll.part.errors import InputError

HOUR_S: Final = 3600.0
NOT_REPLACED_ELSEWHERE: Final = frozenset({"DaemonSet", "Node"})
"""Kinds of controllers that make a pod anew on the same node: of daemons, and of static pods."""


@dataclass(frozen=True, slots=True)
class Mover:
    """A pod that may be moved: on its node, and for the search."""

    occupant: Occupant
    movable: Movable


@dataclass(slots=True)
class Movers:
    """The pods that may be moved.

    Attributes:
        cluster: the pods that have a node.
        ledger: their bookings.
        budgets: the disruption budgets.
        rules: see `RelocationRules`.
        refused: gives the pods whose eviction was refused not long ago.
        clock: the wall clock in UTC.
    """

    cluster: Cluster
    ledger: Ledger
    budgets: Budgets
    rules: RelocationRules
    refused: Callable[[], frozenset[PodUid]] = frozenset
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _moved: dict[str, deque[float]] = field(default_factory=dict)  # by owner, on the loop's clock

    def on(self, node: NodeName, priority: int) -> list[Mover]:
        """The pods of a node that may be moved for a pod of this priority, those of low cost first."""
        refused = self.refused()
        found = [
            mover
            for one in self.cluster.occupants.relocatable_on(node)
            if one.priority <= priority and one.uid not in refused
            if (mover := self._mover(one)) is not None
        ]
        return sorted(found, key=lambda one: (one.movable.cost, one.movable.pod))

    def note_moved(self, pod: Pod) -> None:
        """Count a move for the limit of its owner."""
        owner = owner_of(pod) or ""
        self._moved[owner] = deque([*self._times(owner), _now_s()])

    def are_too_many(self, pods: list[Occupant]) -> bool:
        """Whether all these pods must not move, though each of them alone may: for a budget, or an owner's limit."""
        by_owner = Counter(owner_of(one.pod) or "" for one in pods)
        is_past = any(
            len(self._times(owner)) + count > self.rules.per_hour for owner, count in by_owner.items()
        )
        return is_past or self.violates(pods)

    def violates(self, pods: list[Occupant]) -> bool:
        """Whether the end of all these pods would violate a disruption budget."""
        steps = self.budgets.split(pods)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value[0])

    def _mover(self, one: Occupant) -> Mover | None:
        booking = self.ledger.booking(one.uid)
        if booking is None or not self._may_move(one, booking):
            return None
        try:
            cost = relocation_cost_of(one.pod.metadata.annotations or {})
        except InputError:
            return None
        gpus = frozenset(grant.gpu for grant in booking.grants)
        return Mover(one, Movable(one.uid, one.node, gpus, cost)) if cost is not None and gpus else None

    def _may_move(self, one: Occupant, booking: Booking) -> bool:
        pod, controller = one.pod, controller_of(one.pod)
        is_ours = pod.spec.schedulerName == SCHEDULER_NAME and booking.doubt is None
        is_replaced = controller is not None and controller.kind not in NOT_REPLACED_ELSEWHERE
        # Pods that share a GPU by a name or a label would have to move together.
        is_free = booking.gpu_name is None and booking.locality.affinity is None
        return (
            is_ours
            and is_replaced
            and is_free
            and one.is_bound
            and not pod.metadata.deletionTimestamp
            and self._has_rested(pod)
            and len(self._times(owner_of(pod) or "")) < self.rules.per_hour
            and not self.violates([one])
        )

    def _has_rested(self, pod: Pod) -> bool:
        try:
            age_s = self.clock().timestamp() - datetime.fromisoformat(pod.status.startTime or "").timestamp()
        except ValueError:
            return False
        return age_s >= self.rules.rest_s

    def _times(self, owner: str) -> deque[float]:
        """The times at which pods of an owner were moved within the last hour."""
        times = self._moved.get(owner)
        if times is None:
            return deque()
        while times and times[0] < _now_s() - HOUR_S:
            times.popleft()
        if not times:
            del self._moved[owner]
        return times


def controller_of(pod: Pod) -> OwnerReference | None:
    """The controller that makes the pod anew when it ends, or None."""
    return next((one for one in pod.metadata.ownerReferences or () if one.controller), None)


def replacement_of(pod: Pod) -> Pod:
    """The pod that a controller makes in place of this one, as far as a decision reads it."""
    meta = msgspec.structs.replace(
        pod.metadata,
        uid=f"{pod.metadata.uid}/replacement",
        annotations=without_answers(pod.metadata.annotations or {}),
        deletionTimestamp=None,
    )
    spec = msgspec.structs.replace(pod.spec, nodeName=None)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
