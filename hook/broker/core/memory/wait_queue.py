"""The waiting requests for memory, and the choice of those that go on now.

Only a container's oldest wait on each GPU takes part in the choice; its other waits there are behind it. So a
container with many threads weighs no more than one with a single thread, and the cost of a choice depends on the
number of containers alone.
"""

from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.holdings import Holdings
from hook.broker.core.memory.policies.policy import WaitingRequest, WaitPolicy, WaitTicket
from hook.broker.core.memory.safe_state import AllocationState
from plimsoll.ids import GpuUuid

GOING_MOST: Final = 64
"""The most waits that go on at one reading. The rest follow at the next, so that a thousand waiting threads do not
stop the broker."""


@dataclass(eq=False, slots=True)
class Wait:
    """A waiting request.

    Attributes:
        since_s: when the wait began.
        asked: its place in the order in which waits began.
        announced_s: when `AnnouncePaused` was last given for it; None for never.
        hopeless_s: the first of the latest readings that all showed the request as impossible; None if the last
            reading did not.
    """

    ticket: WaitTicket
    container: ContainerKey
    gpu: GpuUuid
    requested_bytes: int
    since_s: float
    asked: int
    announced_s: float | None = None
    hopeless_s: float | None = None


class WaitQueue:
    """Every wait on the node, and the policy that orders them."""

    def __init__(self, policy: WaitPolicy, holdings: Holdings) -> None:
        self._policy = policy
        self._holdings = holdings
        self._waits: dict[WaitTicket, Wait] = {}
        self._asked = 0

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Every wait, in the order in which the waits began."""
        return tuple(self._waits.values())

    def add(
        self, ticket: WaitTicket, container: ContainerKey, gpu: GpuUuid, requested_bytes: int, now_s: float
    ) -> None:
        """A request begins to wait."""
        assert ticket not in self._waits
        self._waits[ticket] = Wait(ticket, container, gpu, requested_bytes, now_s, self._asked)
        self._asked += 1

    def remove(self, ticket: WaitTicket) -> Wait | None:
        """Take out a wait; None for an unknown ticket."""
        return self._waits.pop(ticket, None)

    def going_on(self, state: AllocationState) -> list[tuple[Wait, int]]:
        """The waits that go on, in order, with the bytes that each container then holds, which `state` then has."""
        going: list[tuple[Wait, int]] = []
        left = list(self._waits.values())
        while len(going) < GOING_MOST and (wait := self._next(_oldest(left), state)):
            target_bytes = _target(wait, state)
            state.reach(wait.container, wait.gpu, target_bytes)
            going.append((wait, target_bytes))
            left.remove(wait)
        return going

    def break_circles(self, state: AllocationState) -> list[Wait]:
        """Take out the waits of the youngest containers until no containers wait for each other in a circle.

        Two sorts of containers do not count as waiting: those with a grant that is not used yet, though another
        thread may still wait, and those that are about to be refused.

        Returns:
            The waits that were taken out.
        """
        broken: list[Wait] = []
        while circle := state.in_circle(self._requests()):
            youngest = max(circle, key=self._holdings.enrolled)
            waits = [wait for wait in self.waits if wait.container == youngest]
            for wait in waits:
                del self._waits[wait.ticket]
            broken += waits
        return broken

    def _requests(self) -> dict[ContainerKey, list[tuple[GpuUuid, int]]]:
        requests: dict[ContainerKey, list[tuple[GpuUuid, int]]] = {}
        for wait in _oldest(list(self._waits.values())):
            if wait.hopeless_s is not None or self._holdings.has_promise(wait.container):
                continue
            requests.setdefault(wait.container, []).append((wait.gpu, wait.requested_bytes))
        return requests

    def _next(self, left: list[Wait], state: AllocationState) -> Wait | None:
        """The next wait that can go on: first the policy's choices, then holders of memory, longest waiting first."""
        able = {wait for wait in left if state.may_reach(wait.container, wait.gpu, _target(wait, state))}
        chosen = self._chosen(left, able, state)
        blocked = [wait for wait in chosen if wait not in able]
        holders = [wait for wait in left if state.holds(wait.container)]
        newcomers = [wait for wait in chosen if not self._is_kept_back(wait, blocked)]
        going = (wait for wait in [*newcomers, *holders] if wait in able)
        return next(going, None)

    def _chosen(self, left: list[Wait], able: set[Wait], state: AllocationState) -> list[Wait]:
        """The policy's choice on each GPU."""
        chosen = []
        for gpu in sorted({wait.gpu for wait in left}):
            here = {wait.ticket: wait for wait in left if wait.gpu == gpu}
            views = [self._view(wait, can_go_on=wait in able) for wait in here.values()]
            chosen.append(here[self._policy.choose(views, state.free_bytes(gpu)).ticket])
        return chosen

    def _is_kept_back(self, wait: Wait, blocked: list[Wait]) -> bool:
        """Whether the wait's container would overtake a blocked choice of the policy on one of its GPUs."""
        gpus = self._holdings.gpus(wait.container)
        return any(other.gpu in gpus and other.container != wait.container for other in blocked)

    def _view(self, wait: Wait, *, can_go_on: bool) -> WaitingRequest:
        holding = self._holdings.find(wait.container, wait.gpu)
        assert holding is not None
        return WaitingRequest(
            ticket=wait.ticket,
            container=wait.container,
            gpu=wait.gpu,
            requested_bytes=wait.requested_bytes,
            missing_bytes=holding.line_bytes - holding.floor_bytes,
            enrolled=self._holdings.enrolled(wait.container),
            asked=wait.asked,
            can_go_on=can_go_on,
        )


def _oldest(waits: list[Wait]) -> list[Wait]:
    firsts: dict[tuple[ContainerKey, GpuUuid], Wait] = {}
    for wait in waits:
        firsts.setdefault((wait.container, wait.gpu), wait)
    return list(firsts.values())


def _target(wait: Wait, state: AllocationState) -> int:
    return state.held_bytes(wait.container, wait.gpu) + wait.requested_bytes
