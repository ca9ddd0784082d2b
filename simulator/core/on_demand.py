"""Plimsoll's rule: memory is given when a program asks for it, by the broker's own `MemoryArbiter`.

This module also plays the two parts that stand between a program and the arbiter on a node. Both take no time here.
The library takes memory within the granted bytes without asking. Past the granted bytes it asks and waits. The broker
writes grants onto pages, reads the used bytes when the arbiter asks for a reading, and removes containers that ended.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.arbiter import (
    Allow,
    AnnouncePaused,
    MemoryArbiter,
    ReadUsed,
    Refuse,
    SetGranted,
    SetWanted,
    Step,
)
from hook.broker.core.memory.policies.policy import WaitTicket
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from simulator.core.replay import Container, Effects

GPU: Final = GpuUuid("GPU-0")


@dataclass(slots=True)
class _Guest:
    """A container with its page and its only program."""

    name: str
    key: ContainerKey
    asks_bytes: deque[int]
    granted_bytes: int = 0
    used_bytes: int = 0


@dataclass(slots=True)
class _Turn:
    """An event and everything that follows from it."""

    now_s: float
    steps: deque[Step] = field(default_factory=deque)
    started: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class OnDemand:
    """A `Giver` that follows this rule."""

    def __init__(self, usable_bytes: int, arbiter: MemoryArbiter) -> None:
        """Give out the memory of a card of `usable_bytes` by a fresh `arbiter`."""
        self._arbiter: Final = arbiter
        self._guests: dict[ContainerKey, _Guest] = {}
        self._waiting: dict[WaitTicket, _Guest] = {}
        self._tickets = 0
        self._carry_out(_Turn(0.0), arbiter.capacity(GPU, usable_bytes))

    def arrive(self, container: Container, now_s: float) -> Effects:
        """Register the container's line, then let its program ask."""
        key = _key(container.name)
        guest = self._guests[key] = _Guest(container.name, key, deque(container.asks_bytes))
        turn = _Turn(now_s)
        self._carry_out(turn, self._arbiter.enrol(key, {GPU: container.line_bytes}))
        self._run(turn, guest)
        return Effects(tuple(turn.started), tuple(turn.refused))

    def end(self, name: str, now_s: float) -> Effects:
        """The program has ended: remove its container."""
        key = _key(name)
        del self._guests[key]
        turn = _Turn(now_s)
        self._carry_out(turn, self._arbiter.leave(key))
        return Effects(tuple(turn.started), tuple(turn.refused))

    def _run(self, turn: _Turn, guest: _Guest) -> None:
        """The library's side: make the allocations that the page allows, and ask for the first one past it."""
        while guest.asks_bytes and guest.used_bytes + guest.asks_bytes[0] <= guest.granted_bytes:
            guest.used_bytes += guest.asks_bytes.popleft()
        if not guest.asks_bytes:
            turn.started.append(guest.name)
            return
        self._tickets += 1
        ticket = WaitTicket(self._tickets)
        self._waiting[ticket] = guest
        asked = self._arbiter.ask(ticket, guest.key, GPU, guest.asks_bytes[0], turn.now_s)
        self._carry_out(turn, asked)

    def _carry_out(self, turn: _Turn, steps: Iterable[Step]) -> None:
        """The broker's side: carry out one step after the other. Steps that follow from a reading come last."""
        turn.steps.extend(steps)
        while turn.steps:
            self._carry_out_one(turn, turn.steps.popleft())

    def _carry_out_one(self, turn: _Turn, step: Step) -> None:
        match step:
            case ReadUsed() if step in turn.steps:
                pass  # The same reading is still to come, before anything else is decided.
            case ReadUsed():
                used = {key: guest.used_bytes for key, guest in self._guests.items()}
                turn.steps.extend(self._arbiter.take_used(step.gpu, used, turn.now_s))
            case SetGranted():
                self._guests[step.container].granted_bytes = step.granted_bytes
            case Allow():
                guest = self._waiting.pop(step.ticket)
                self._run(turn, guest)
                turn.steps.extend(self._arbiter.withdraw(step.ticket, turn.now_s))
            case Refuse():
                turn.refused.append(self._waiting.pop(step.ticket).name)
            case SetWanted() | AnnouncePaused():
                pass
            case _:
                assert_never(step)


def _key(name: str) -> ContainerKey:
    return ContainerKey(PodUid(name), ContainerName("main"))
