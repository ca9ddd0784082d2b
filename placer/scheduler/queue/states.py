"""The states of a pod in the queue: which event leads from which state to which.

The words are those of kube-scheduler's queue. Pods with scheduling gates are not in the queue here. What always
holds: an event that has no entry for a pod's state is out of date, and changes nothing.
"""

import enum
from collections.abc import Mapping
from typing import Final


class QueueState(enum.Enum):
    """The state of a pod in the queue, and what happens as the pod enters it."""

    NEVER_TRIED = "fresh"
    """In the active queue, before its first attempt."""
    TRIED = "retry"
    """In the active queue again, behind the pods that are there."""
    IN_FLIGHT = "deciding"
    """Its attempt, which is counted, or the search for the reasons of its refusal is under way."""
    CHANGED_IN_FLIGHT = "deciding, changed"
    """The same, and the pod has changed since its attempt began: a refusal does not hold any more."""
    BINDING = "binding"
    """It is assumed on a node, and is being bound."""
    BACKOFF = "backoff"
    """It waits for its backoff, which begins now."""
    UNSCHEDULABLE = "parked"
    """It fits nowhere, and waits with the pods of its signature until a change could help them."""
    REJECTED = "given_up"
    """Only a change of the pod itself can help: it is malformed, or asks for the impossible."""

    @property
    def label(self) -> str:
        """The state for people, and in metrics."""
        return self.value.partition(",")[0]


class QueueEvent(enum.Enum):
    """Something that happens to a pod in the queue."""

    POPPED = enum.auto()
    """Its attempt begins."""
    ASSUMED = enum.auto()
    """It has a place."""
    REFUSED = enum.auto()
    """It fits nowhere."""
    FAILED = enum.auto()
    """Its attempt, or its bind, failed for a reason that may pass by itself."""
    OVERTAKEN = enum.auto()
    """A change overtook its attempt or its bind."""
    FAULTED = enum.auto()
    """It cannot be read, or asks for what this scheduler does not have."""
    ACTIVATED = enum.auto()
    """The pod changed, or something that it alone waits for."""
    CLAIM_CHANGED = enum.auto()
    """A claim of the pod changed. A failed bind changes claims too, so this ends no backoff."""
    TRIED_ELSEWHERE = enum.auto()
    """Another placer, which leads or did so, has tried it."""
    BACKED_OFF = enum.auto()
    """Its backoff is over."""
    CHOSEN = enum.auto()
    """It is the first of its signature, and is tried for all."""


_S, _E = QueueState, QueueEvent

# fmt: off
NEXT: Final[Mapping[QueueState, Mapping[QueueEvent, QueueState]]] = {
    _S.NEVER_TRIED: {_E.POPPED: _S.IN_FLIGHT, _E.ACTIVATED: _S.NEVER_TRIED, _E.TRIED_ELSEWHERE: _S.TRIED},
    _S.TRIED: {_E.POPPED: _S.IN_FLIGHT, _E.ACTIVATED: _S.TRIED},
    _S.IN_FLIGHT: {
        _E.ASSUMED: _S.BINDING, _E.REFUSED: _S.UNSCHEDULABLE, _E.FAILED: _S.BACKOFF, _E.OVERTAKEN: _S.TRIED,
        _E.FAULTED: _S.REJECTED, _E.ACTIVATED: _S.CHANGED_IN_FLIGHT,
    },
    _S.CHANGED_IN_FLIGHT: {
        _E.ASSUMED: _S.BINDING, _E.REFUSED: _S.BACKOFF, _E.FAILED: _S.BACKOFF, _E.OVERTAKEN: _S.TRIED,
        _E.FAULTED: _S.TRIED,
    },
    _S.BINDING: {_E.FAILED: _S.BACKOFF, _E.OVERTAKEN: _S.TRIED},
    _S.BACKOFF: {_E.BACKED_OFF: _S.TRIED, _E.ACTIVATED: _S.TRIED},
    _S.UNSCHEDULABLE: {_E.CHOSEN: _S.TRIED, _E.CLAIM_CHANGED: _S.TRIED, _E.ACTIVATED: _S.TRIED},
    _S.REJECTED: {_E.ACTIVATED: _S.TRIED},
}
# fmt: on
"""The next state, by state and event."""

LEAVES_SIGNATURE: Final = frozenset(
    {QueueEvent.ASSUMED, QueueEvent.FAULTED, QueueEvent.ACTIVATED, QueueEvent.CLAIM_CHANGED}
)
"""The events after which a pod waits no more with the pods of its signature, and is not tried for them. If it was to
be, the next of them is tried."""
