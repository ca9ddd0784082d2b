"""Decides how much memory each container may hold and which process waits, on a node that overcommits (ConVGPU,
section III.D): its lines promise more than its GPUs have.

There is one state machine per node. Only `take_used` makes decisions. Every other method notes a change and asks for
a reading of the words (`ReadUsed`). Only words that are read after the last grant was written show what a container
may still reserve without asking.

What always holds:

* On a GPU whose lines fit into its memory, no process waits: every container is granted its whole line.
* All grants on a GPU together never exceed what the GPU has for containers, unless the *used* bytes exceed that
  already. Then no container there is granted more than it uses, until others end.
* Grants are soft. Bytes that are granted, and neither used nor promised, are taken back when that lets a waiting
  process go on. The rest is spread again, so that no process has to ask while memory is plentiful.
* A grant keeps the state safe (see `safe_state`), so containers do not wait for each other in a circle. If memory
  vanishes for good under a safe state and a circle follows, the youngest container in the circle is refused.
* Every ticket gets exactly one answer, `Allow` or `Refuse`, unless the ticket was withdrawn before.

A wait may last for ever: it ends when other containers end or give memory back, and a server that runs for weeks does
neither. So a wait is announced at once (`AnnouncePaused`) and again every `remind_s`, and ends by `Refuse` after
`longest_wait_s` where that is set. By default there is no such bound: overcommit is meant for training jobs that wait
through a night, and only the operator knows which wait is too long.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.holdings import PROMISE_S, Capacities, Holding, Holdings
from hook.broker.core.memory.policies.policy import WaitPolicy, WaitTicket
from hook.broker.core.memory.safe_state import AllocationState
from hook.broker.core.memory.wait_queue import GOING_MOST, Wait, WaitQueue
from plimsoll.ids import GpuUuid

HOPELESS_S: Final = 0.1
"""Seconds for which a request must have been impossible beside its container's own memory before it is refused. A
process reserves bytes in its word before it asks the driver. A reservation in vain stays there for less than a
millisecond, unless the thread is stopped just then."""


@dataclass(frozen=True, slots=True)
class ReadUsed:
    """Read what each container on this GPU holds, after every earlier step is written. Answer by `take_used`."""

    gpu: GpuUuid


@dataclass(frozen=True, slots=True)
class SetGranted:
    """Write these granted bytes onto a container's page."""

    container: ContainerKey
    gpu: GpuUuid
    granted_bytes: int


@dataclass(frozen=True, slots=True)
class SetWanted:
    """Write onto all pages of this GPU whether processes are to report memory that they give back."""

    gpu: GpuUuid
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class AnnouncePaused:
    """A process waits, since `waited_s` seconds. Given at the start of a wait and then every `remind_s`."""

    ticket: WaitTicket
    reason: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class Allow:
    """Answer to a ticket: try again, the page allows the request now."""

    ticket: WaitTicket
    waited_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer to a ticket: the request would wait for ever, or has waited for too long.

    Attributes:
        reason: at most 63 ASCII characters, so that it fits a datagram.
    """

    ticket: WaitTicket
    reason: str
    waited_s: float


Step = ReadUsed | SetGranted | SetWanted | AnnouncePaused | Allow | Refuse

REMIND_S: Final = 300.0
"""Seconds between two announcements of the same wait."""


class MemoryArbiter:
    """The pure state machine. All times are seconds of the same clock, which never goes back."""

    def __init__(
        self,
        policy: WaitPolicy,
        *,
        remind_s: float = REMIND_S,
        longest_wait_s: float | None = None,
        block_bytes: int = 0,
    ) -> None:
        """Begin with no GPU and no container.

        Args:
            policy: chooses the next waiting process.
            remind_s: seconds between two `AnnouncePaused` of the same wait.
            longest_wait_s: seconds after which a wait is refused; None for no bound.
            block_bytes: the driver's block. The last allocation under a line is rounded up to it, and may exceed the
                line by as much.
        """
        self._block_bytes = block_bytes
        self._remind_s = remind_s
        self._longest_wait_s = longest_wait_s
        self._capacities = Capacities()
        self._holdings = Holdings()
        self._queue = WaitQueue(policy, self._holdings)
        self._wanted: frozenset[GpuUuid] = frozenset()

    def capacity(self, gpu: GpuUuid, usable_bytes: int) -> tuple[Step, ...]:
        """Set the bytes that all containers on a GPU may hold together; nothing is granted before the first call."""
        self._capacities.measure(gpu, usable_bytes)
        return (ReadUsed(gpu),)

    def enrol(
        self,
        container: ContainerKey,
        lines: Mapping[GpuUuid, int],
        granted: Mapping[GpuUuid, int] | None = None,
    ) -> tuple[Step, ...]:
        """Take in a container with its lines, or its changed lines.

        Args:
            container: the order of first calls is the order of age.
            lines: bytes by GPU; a container's GPUs never change.
            granted: bytes by GPU that an earlier broker granted on its page; None for a new page.
        """
        self._holdings.enrol(container, lines, granted or {})
        past_line = [
            _set_granted(container, gpu, holding, line_bytes)
            for gpu, line_bytes in lines.items()
            if (holding := self._holdings.find(container, gpu)) and holding.granted_bytes > line_bytes
        ]
        return (*past_line, *map(ReadUsed, lines))

    def leave(self, container: ContainerKey) -> tuple[Step, ...]:
        """Forget a container that was removed; its waiting requests are refused."""
        gpus = self._holdings.gpus(container)
        waits = [wait for wait in self._queue.waits if wait.container == container]
        self._holdings.leave(container)
        for wait in waits:
            self._queue.remove(wait.ticket)
        gone = tuple(Refuse(wait.ticket, "its container is not registered any more", 0.0) for wait in waits)
        return (*gone, *self._set_wanted(), *map(ReadUsed, gpus))

    def ask(
        self, ticket: WaitTicket, container: ContainerKey, gpu: GpuUuid, requested_bytes: int, now_s: float
    ) -> tuple[Step, ...]:
        """Take in the request of a process for `requested_bytes` more.

        Args:
            ticket: a number that was not used before.
            container: enrolled, with a line on `gpu`; any other is refused.
            gpu: the GPU of the request.
            requested_bytes: at least 1.
            now_s: the time of the request.
        """
        if self._holdings.find(container, gpu) is None:
            return (Refuse(ticket, "its container has no line on this GPU", 0.0),)
        self._queue.add(ticket, container, gpu, requested_bytes, now_s)
        return (ReadUsed(gpu),)

    def withdraw(self, ticket: WaitTicket, now_s: float) -> tuple[Step, ...]:  # noqa: ARG002 - the event's time
        """Forget a ticket: its process died, gave up, or has used its grant. An unknown ticket is ignored."""
        wait = self._queue.remove(ticket)
        if wait is not None:
            return (*self._set_wanted(), ReadUsed(wait.gpu))
        broken = [gpu for _, gpu, holding in self._holdings.items() if holding.promises.pop(ticket, None)]
        return tuple(map(ReadUsed, broken))

    def take_used(self, gpu: GpuUuid, used: Mapping[ContainerKey, int], now_s: float) -> tuple[Step, ...]:
        """Take in a reading of the words, made after all earlier steps were carried out, and decide.

        Args:
            gpu: the GPU of the reading.
            used: bytes by container, words and excess together. A missing container uses what it used before.
            now_s: the time of the reading.
        """
        self._capacities.pass_time(now_s)
        on = self._holdings.on(gpu)
        for container, holding in on.items():
            holding.read(used.get(container, holding.used_bytes), now_s)
        if sum(holding.floor_bytes for holding in on.values()) > self._capacities.latest.get(gpu, 0):
            # The promised memory is gone. A process that did not take its bytes in time asks again.
            for holding in on.values():
                holding.promises.clear()
        return (*self._refuse_hopeless(now_s), *self._decide(now_s))

    def granted(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The granted bytes for a container's page; 0 for a container that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.granted_bytes if holding else 0

    def used(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The bytes that a container used at the last reading; 0 for a container that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.used_bytes if holding else 0

    def ceiling(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The most bytes that a container may have reserved by now; 0 for a container that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.ceiling_bytes if holding else 0

    def line(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The line of a container in bytes; 0 for a container that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.line_bytes if holding else 0

    def is_wanted(self, gpu: GpuUuid) -> bool:
        """Whether processes on this GPU are to report memory that they give back."""
        return gpu in self._wanted

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Every wait, in the order in which the waits began."""
        return self._queue.waits

    def _refuse_hopeless(self, now_s: float) -> Iterable[Step]:
        for wait in self._queue.waits:
            reason = self._never(wait) or self._not_now(wait, now_s) or self._too_long(wait, now_s)
            if reason:
                self._queue.remove(wait.ticket)
                yield Refuse(wait.ticket, reason, now_s - wait.since_s)
        for wait in self._queue.break_circles(
            AllocationState(self._capacities.lasting, self._holdings.floors())
        ):
            yield Refuse(wait.ticket, "containers wait for each other here", now_s - wait.since_s)

    def _never(self, wait: Wait) -> str:
        """The reason why a request cannot be met even if its container held nothing; empty if it can."""
        return self._past_all(wait, wait.requested_bytes)

    def _not_now(self, wait: Wait, now_s: float) -> str:
        """The reason why a request cannot be met beside its own container's memory; empty if it can.

        For an instant, a word also shows a reservation in vain. So a single reading is no reason to refuse.
        """
        holding = self._holdings.find(wait.container, wait.gpu)
        assert holding is not None
        reason = self._past_all(wait, holding.used_bytes + wait.requested_bytes)
        if not reason:
            wait.hopeless_s = None
        elif wait.hopeless_s is None:
            wait.hopeless_s = now_s
        elif now_s - wait.hopeless_s >= HOPELESS_S:
            return reason
        return ""

    def _past_all(self, wait: Wait, needed_bytes: int) -> str:
        holding = self._holdings.find(wait.container, wait.gpu)
        assert holding is not None
        if needed_bytes > holding.line_bytes + self._block_bytes:
            return "it passes the container's line"
        if needed_bytes > self._capacities.lasting.get(wait.gpu, needed_bytes):
            return "it is more than this GPU has for containers"
        return ""

    def _too_long(self, wait: Wait, now_s: float) -> str:
        if self._longest_wait_s is not None and now_s - wait.since_s >= self._longest_wait_s:
            return f"it has waited for {self._longest_wait_s:.0f} s"
        return ""

    def _decide(self, now_s: float) -> Iterable[Step]:
        going = self._queue.going_on(AllocationState(self._capacities.latest, self._holdings.floors()))
        state = AllocationState(self._capacities.latest, self._holdings.ceilings())
        overdrawn = self._overdrawn()
        is_there = _take_all(state, going)
        if overdrawn or not is_there:
            wanted = frozenset() if is_there else self._holdings.connected(wait.gpu for wait, _ in going)
            lowered = self._take_back(overdrawn | wanted)
            yield from lowered
            yield from map(ReadUsed, sorted({step.gpu for step in lowered}))
            # Otherwise a reading is under way already: memory was taken back on more than one GPU.
            if lowered or not is_there:
                return
        yield from self._grant(going, now_s)
        yield from self._spread(state)
        yield from self._announce_paused(now_s)
        yield from self._set_wanted()
        if len(going) == GOING_MOST:
            yield ReadUsed(going[0][0].gpu)

    def _overdrawn(self) -> frozenset[GpuUuid]:
        """The GPUs where containers may hold more than there is. Memory given back there must not be taken again."""
        return frozenset(
            gpu
            for gpu, usable_bytes in self._capacities.latest.items()
            if sum(holding.ceiling_bytes for holding in self._holdings.on(gpu).values()) > usable_bytes
        )

    def _take_back(self, gpus: frozenset[GpuUuid]) -> list[SetGranted]:
        """Lower every grant on these GPUs to what is used or promised."""
        return [
            _set_granted(container, gpu, holding, holding.floor_bytes)
            for container, gpu, holding in self._holdings.items()
            if gpu in gpus and holding.granted_bytes > holding.floor_bytes
        ]

    def _grant(self, going: list[tuple[Wait, int]], now_s: float) -> Iterable[Step]:
        for wait, _ in going:
            holding = self._holdings.find(wait.container, wait.gpu)
            assert holding is not None
            self._queue.remove(wait.ticket)
            holding.promises[wait.ticket] = (wait.requested_bytes, now_s + PROMISE_S)
            if holding.floor_bytes > holding.granted_bytes:
                yield _set_granted(wait.container, wait.gpu, holding, holding.floor_bytes)
            yield Allow(wait.ticket, now_s - wait.since_s)

    def _spread(self, state: AllocationState) -> Iterable[Step]:
        """Grant memory that no process waits for, as far as that is safe: first to users of the GPU, oldest first.

        On GPUs with a waiting process, only containers that hold memory get more: the process waits for their end.
        """
        holdings = self._holdings.items()
        contended = self._holdings.connected(wait.gpu for wait in self._queue.waits)
        users = {container for container, _, holding in holdings if holding.floor_bytes}
        waiting = {(wait.container, wait.gpu) for wait in self._queue.waits}
        for container, gpu, holding in sorted(holdings, key=lambda item: not item[2].floor_bytes):
            is_kept_back = (gpu in contended and container not in users) or (container, gpu) in waiting
            target = min(holding.line_bytes, holding.ceiling_bytes + max(0, state.free_bytes(gpu)))
            if is_kept_back or target <= holding.granted_bytes:
                continue
            if state.may_reach(container, gpu, target):
                state.reach(container, gpu, target)
                yield _set_granted(container, gpu, holding, target)

    def _announce_paused(self, now_s: float) -> Iterable[Step]:
        for wait in self._queue.waits:
            if wait.announced_s is None or now_s - wait.announced_s >= self._remind_s:
                wait.announced_s = now_s
                is_measured = wait.gpu in self._capacities.latest
                reason = "others hold it" if is_measured else "this GPU has not been measured yet"
                yield AnnouncePaused(wait.ticket, reason, now_s - wait.since_s)

    def _set_wanted(self) -> Iterable[Step]:
        needed = self._holdings.connected(wait.gpu for wait in self._queue.waits) | self._overdrawn()
        before, self._wanted = self._wanted, needed
        yield from (SetWanted(gpu, gpu in self._wanted) for gpu in sorted(before ^ self._wanted))


def _set_granted(container: ContainerKey, gpu: GpuUuid, holding: Holding, granted_bytes: int) -> SetGranted:
    holding.grant(granted_bytes)
    return SetGranted(container, gpu, granted_bytes)


def _take_all(state: AllocationState, going: list[tuple[Wait, int]]) -> bool:
    """Book all of these in the state, in order. Returns False, with some of them booked, if the state forbids one."""
    for wait, target_bytes in going:
        if not state.may_reach(wait.container, wait.gpu, target_bytes):
            return False
        state.reach(wait.container, wait.gpu, target_bytes)
    return True
