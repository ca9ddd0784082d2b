"""Tells which pods may be moved, and what their replacements will ask for.

What always holds: a pod is moved only if its own annotation allows it and a controller will replace it. No pod is
moved for a pod of lower priority.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.owners import owner_of
from placer.core.relocation.plan import EvictablePod
from placer.relocation.evictor import Evictor
from placer.relocation.rules import RelocationRules
from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.preemption.budgets import Budgets
from plimsoll.contract import RELOCATION_COST, SCHEDULER_NAME, without_answers
from plimsoll.demand import relocation_cost_of
from plimsoll.ids import NodeName
from plimsoll.kube.models import OwnerReference, Pod, PodStatus
from plimsoll.part.errors import InputError

HOUR_S: Final = 3600.0
NOT_REPLACED_ELSEWHERE: Final = frozenset({"DaemonSet", "Node"})
"""Kinds of controllers that make a pod anew on the same node: of daemons, and of static pods."""


@dataclass(slots=True)
class EvictablePods:
    """The pods that may be moved.

    Attributes:
        cache: the pods that have a node.
        ledger: their bookings.
        budgets: the disruption budgets.
        rules: see `RelocationRules`.
        evictor: knows the pods whose eviction was refused not long ago.
        clock: the wall clock in UTC.
    """

    cache: Cache
    ledger: Ledger
    budgets: Budgets
    rules: RelocationRules
    evictor: Evictor
    clock: Callable[[], datetime]
    _moved: dict[str, deque[float]] = field(default_factory=dict)  # by owner, in seconds since 1970

    def on(self, node: NodeName, priority: int) -> list[EvictablePod]:
        """The pods of a node that may be moved for a pod of this priority, those of low cost first."""
        found = [
            _evictable(one, self.ledger.booking(one.uid))
            for one in self.cache.assigned.relocatable_on(node)
            if self.obstacle(one, priority) is None
        ]
        return sorted(found, key=lambda one: (one.cost, one.pod))

    def obstacle(self, one: AssignedPod, priority: int) -> str | None:
        """The first reason why a pod is not moved for one of this priority, for people; None if it may be moved."""
        booking = self.ledger.booking(one.uid)
        if not one.is_relocatable:
            return f"no annotation {RELOCATION_COST}"
        if one.pod.spec.schedulerName != SCHEDULER_NAME or booking is None or booking.doubt is not None:
            return "not placed by Plimsoll, or in doubt"
        if not booking.grants or _cost_of(one.pod) is None:
            return "no GPU, or no readable cost"
        return _lasting_obstacle(one, booking, priority) or self._obstacle_now(one)

    def _obstacle_now(self, one: AssignedPod) -> str | None:
        """Likewise, of the reasons that may pass."""
        if not one.is_bound or one.pod.metadata.deletionTimestamp:
            return "it is being bound, or ends"
        if not self._has_rested(one.pod):
            return f"it started less than {self.rules.rest_s:g} s ago"
        if len(self._times(owner_of(one.pod) or "")) >= self.rules.per_hour:
            return f"{self.rules.per_hour} pods of its owner were moved within the hour"
        if one.uid in self.evictor.refused:
            return "its eviction was refused not long ago"
        if self.budgets.forbid([one]):
            return "a disruption budget"
        return None

    def note_moved(self, pod: Pod) -> None:
        """Count a move for the limit of its owner."""
        owner = owner_of(pod) or ""
        self._moved[owner] = deque([*self._times(owner), self.clock().timestamp()])

    def moves(self) -> dict[str, tuple[float, ...]]:
        """By owner, when its pods were moved within the last hour, in seconds since 1970, oldest first."""
        return {owner: times for owner in tuple(self._moved) if (times := tuple(self._times(owner)))}

    def restore(self, moves: Mapping[str, tuple[float, ...]]) -> None:
        """Count the moves of an earlier leader."""
        self._moved = {owner: deque(times) for owner, times in moves.items()}

    def are_too_many(self, pods: list[AssignedPod]) -> bool:
        """Whether a budget or an owner's limit forbids that all of these pods move, although each one alone may."""
        by_owner = Counter(owner_of(one.pod) or "" for one in pods)
        is_past = any(
            len(self._times(owner)) + count > self.rules.per_hour for owner, count in by_owner.items()
        )
        return is_past or self.budgets.forbid(pods)

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
        while times and times[0] < self.clock().timestamp() - HOUR_S:
            times.popleft()
        if not times:
            del self._moved[owner]
        return times


def _lasting_obstacle(one: AssignedPod, booking: Booking, priority: int) -> str | None:
    controller = controller_of(one.pod)
    if controller is None or controller.kind in NOT_REPLACED_ELSEWHERE:
        return "no controller that replaces it elsewhere"
    if one.priority > priority:
        return "its priority is higher"
    # Pods that share a GPU by a name or a label would have to move together.
    if booking.gpu_name is not None or booking.locality.affinity is not None:
        return "it shares a GPU by a name or a label"
    return None


def _cost_of(pod: Pod) -> float | None:
    """The cost that a pod's annotation states; None for a damaged one, too."""
    try:
        return relocation_cost_of(pod.metadata.annotations or {})
    except InputError:
        return None


def _evictable(one: AssignedPod, booking: Booking | None) -> EvictablePod:
    """A pod against which there is no obstacle, for the search."""
    cost = _cost_of(one.pod)
    assert booking is not None, "it was placed here"
    assert cost is not None, "its annotation can be read"
    gpus = frozenset(grant.gpu for grant in booking.grants)
    return EvictablePod(one.uid, one.node, gpus, cost, one.pod.full_name)


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
