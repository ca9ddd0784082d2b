"""Who may hold how much where a node's lines promise more than its GPUs have, and who waits (ConVGPU, section III.D).

One state machine per node. `looked` alone decides anything; every other method takes note and asks for a look at the
words (`Look`), because only words read after the last grant was written tell what a container may still reserve
by itself.

What always holds:

* No GPU whose lines fit into it ever makes anybody wait: everyone is granted its line there.
* Grants on a GPU together never pass what it has for containers, unless what is *used* does so already: then
  nobody there is granted more than it uses, until others end.
* Grants are soft. What is granted and neither used nor promised is taken back when that lets a waiter go on. What is
  left is spread again, so that in peaceful times nobody has to ask.
* A grant keeps the state safe in the sense of `bank`, so nobody waits in a circle. Where memory vanished under a safe
  state for good and a circle came of it, the youngest container in it is refused.
* Every ticket gets exactly one answer, `Grant` or `Refuse`, unless it was withdrawn before.

What cannot be promised: that a wait ends. It ends when others end or give back, and one who serves requests for weeks
does neither. So a wait is told at once (`Paused`) and again every `remind_s`, and ends by `Refuse` after
`longest_wait_s` where that is set. By default it is not: a training job that waits through a night is what
overcommit is for, and only the operator knows what is too long.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.bank import Bank
from hook.broker.core.memory.capacities import Capacities
from hook.broker.core.memory.holdings import PROMISE_S, Holding, Holdings
from hook.broker.core.memory.policies.policy import Ticket, WaitPolicy
from hook.broker.core.memory.wait_queue import GOING_MOST, Wait, WaitQueue
from plimsoll.ids import GpuUuid

HOPELESS_S: Final = 0.1
"""How long a request must have been impossible beside what its container holds. A reservation in vain shows in its
word for less than a millisecond, unless its thread is stopped just then."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read what each container on this GPU holds, after every step before this one; answer by `looked`."""

    gpu: GpuUuid


@dataclass(frozen=True, slots=True)
class SetGranted:
    """Write this number onto a container's page."""

    container: ContainerKey
    gpu: GpuUuid
    granted_bytes: int


@dataclass(frozen=True, slots=True)
class SetWanted:
    """Write onto the pages of all containers on this GPU whether what is given back is to be told."""

    gpu: GpuUuid
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Paused:
    """This one waits, for so long already: said when its wait begins, and now and then while it lasts."""

    ticket: Ticket
    reason: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class Grant:
    """Answer: try again, the page allows it now."""

    ticket: Ticket
    waited_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer: it would wait for ever, or has waited long enough.

    Attributes:
        reason: at most 63 ASCII characters, so that it fits a datagram.
    """

    ticket: Ticket
    reason: str
    waited_s: float


Step = Look | SetGranted | SetWanted | Paused | Grant | Refuse


class Pressure:
    """The pure state machine. Seconds are of one clock that never goes back."""

    def __init__(
        self,
        policy: WaitPolicy,
        *,
        remind_s: float = 300.0,
        longest_wait_s: float | None = None,
        block_bytes: int = 0,
    ) -> None:
        """Begin with no GPU and no container.

        Args:
            policy: who is next.
            remind_s: between two `Paused` of one wait.
            longest_wait_s: None for as long as it takes.
            block_bytes: what the last allocation under a line may stand past it, as it is rounded up.
        """
        self._block_bytes = block_bytes
        self._remind_s = remind_s
        self._longest_wait_s = longest_wait_s
        self._capacities = Capacities()
        self._holdings = Holdings()
        self._queue = WaitQueue(policy, self._holdings)
        self._wanted: frozenset[GpuUuid] = frozenset()

    def capacity(self, gpu: GpuUuid, usable_bytes: int) -> tuple[Step, ...]:
        """So much may all containers hold together on this GPU now; before the first call, nothing is granted."""
        self._capacities.measure(gpu, usable_bytes)
        return (Look(gpu),)

    def enrol(
        self,
        container: ContainerKey,
        lines: Mapping[GpuUuid, int],
        granted: Mapping[GpuUuid, int] | None = None,
    ) -> tuple[Step, ...]:
        """A container declared these lines; again for changed lines.

        Args:
            container: any order of coming is the order of age.
            lines: bytes by GPU; its GPUs never change.
            granted: what its page says already, where a broker before this one wrote it; else nothing.
        """
        self._holdings.enrol(container, lines, granted or {})
        past_line = [
            _set_granted(container, gpu, holding, line_bytes)
            for gpu, line_bytes in lines.items()
            if (holding := self._holdings.find(container, gpu)) and holding.granted_bytes > line_bytes
        ]
        return (*past_line, *map(Look, lines))

    def leave(self, container: ContainerKey) -> tuple[Step, ...]:
        """A container is gone with all it held; who still waits for it is refused."""
        gpus = self._holdings.gpus(container)
        waits = [wait for wait in self._queue.waits if wait.container == container]
        self._holdings.leave(container)
        for wait in waits:
            self._queue.remove(wait.ticket)
        gone = tuple(Refuse(wait.ticket, "its container is not registered any more", 0.0) for wait in waits)
        return (*gone, *self._set_wanted(), *map(Look, gpus))

    def ask(
        self, ticket: Ticket, container: ContainerKey, gpu: GpuUuid, requested_bytes: int, now_s: float
    ) -> tuple[Step, ...]:
        """A process waits to be allowed `requested_bytes` more.

        Args:
            ticket: never used before.
            container: enrolled, with a line on `gpu`; any other is refused.
            gpu: on which it wants them.
            requested_bytes: at least 1.
            now_s: when it asked.
        """
        if self._holdings.find(container, gpu) is None:
            return (Refuse(ticket, "its container has no line on this GPU", 0.0),)
        self._queue.add(ticket, container, gpu, requested_bytes, now_s)
        return (Look(gpu),)

    def withdraw(self, ticket: Ticket, now_s: float) -> tuple[Step, ...]:  # noqa: ARG002 - the caller's event
        """Whoever held this ticket died, gave up, or has used what it was granted; unknown tickets are fine."""
        wait = self._queue.remove(ticket)
        if wait is not None:
            return (*self._set_wanted(), Look(wait.gpu))
        broken = [gpu for _, gpu, holding in self._holdings.items() if holding.promises.pop(ticket, None)]
        return tuple(map(Look, broken))

    def looked(self, gpu: GpuUuid, used: Mapping[ContainerKey, int], now_s: float) -> tuple[Step, ...]:
        """The words were read, after all earlier steps were carried out; decide.

        Args:
            gpu: on which.
            used: by container, words and excess together; who is missing uses what it used before.
            now_s: now.
        """
        self._capacities.pass_time(now_s)
        on = self._holdings.on(gpu)
        for container, holding in on.items():
            holding.read(used.get(container, holding.used_bytes), now_s)
        if sum(holding.floor_bytes for holding in on.values()) > self._capacities.latest.get(gpu, 0):
            # What was promised is gone. Whoever did not take it in time asks again.
            for holding in on.values():
                holding.promises.clear()
        return (*self._refuse_hopeless(now_s), *self._decide(now_s))

    def granted(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """What a container's page should say now; 0 for one that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.granted_bytes if holding else 0

    def used(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """What a container held when its words were last read; 0 for one that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.used_bytes if holding else 0

    def ceiling(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The most that a container may have reserved by now; 0 for one that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.ceiling_bytes if holding else 0

    def line(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """What a container declared; 0 for one that is not enrolled."""
        holding = self._holdings.find(container, gpu)
        return holding.line_bytes if holding else 0

    def is_wanted(self, gpu: GpuUuid) -> bool:
        """What every page on this GPU should say now."""
        return gpu in self._wanted

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Everyone who waits, in the order in which they began to."""
        return self._queue.waits

    def _refuse_hopeless(self, now_s: float) -> Iterable[Step]:
        for wait in self._queue.waits:
            reason = self._never(wait) or self._not_now(wait, now_s) or self._too_long(wait, now_s)
            if reason:
                self._queue.remove(wait.ticket)
                yield Refuse(wait.ticket, reason, now_s - wait.since_s)
        for wait in self._queue.break_circles(Bank(self._capacities.lasting, self._holdings.floors())):
            yield Refuse(wait.ticket, "containers wait for each other here", now_s - wait.since_s)

    def _never(self, wait: Wait) -> str:
        """Why this request cannot be met even if its container held nothing; empty if it can."""
        return self._past_all(wait, wait.requested_bytes)

    def _not_now(self, wait: Wait, now_s: float) -> str:
        """Why it cannot be met beside what its own container holds; empty if it can.

        A word also shows, for an instant, what a process reserved in vain: so not by one look alone.
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
        going = self._queue.going_on(Bank(self._capacities.latest, self._holdings.floors()))
        bank = Bank(self._capacities.latest, self._holdings.ceilings())
        overdrawn = self._overdrawn()
        is_there = _take_all(bank, going)
        if overdrawn or not is_there:
            wanted = frozenset() if is_there else self._holdings.connected(wait.gpu for wait, _ in going)
            lowered = self._take_back(overdrawn | wanted)
            yield from lowered
            yield from map(Look, sorted({step.gpu for step in lowered}))
            # Otherwise it is being read already: more than one GPU was taken back from.
            if lowered or not is_there:
                return
        yield from self._grant(going, now_s)
        yield from self._spread(bank)
        yield from self._tell_paused(now_s)
        yield from self._set_wanted()
        if len(going) == GOING_MOST:
            yield Look(going[0][0].gpu)

    def _overdrawn(self) -> frozenset[GpuUuid]:
        """Where containers may hold more than there is: what is given back there must not be taken again."""
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
            yield Grant(wait.ticket, now_s - wait.since_s)

    def _spread(self, bank: Bank) -> Iterable[Step]:
        """Grant what nobody waits for, as far as that is safe: first to those who use the GPU, the oldest first.

        Where somebody waits who cannot go on, only to those who hold memory: it is they whom it waits for.
        """
        holdings = self._holdings.items()
        contended = self._holdings.connected(wait.gpu for wait in self._queue.waits)
        users = {container for container, _, holding in holdings if holding.floor_bytes}
        waiting = {(wait.container, wait.gpu) for wait in self._queue.waits}
        for container, gpu, holding in sorted(holdings, key=lambda item: not item[2].floor_bytes):
            is_kept_back = (gpu in contended and container not in users) or (container, gpu) in waiting
            target = min(holding.line_bytes, holding.ceiling_bytes + max(0, bank.free_bytes(gpu)))
            if is_kept_back or target <= holding.granted_bytes:
                continue
            if bank.may_reach(container, gpu, target):
                bank.reach(container, gpu, target)
                yield _set_granted(container, gpu, holding, target)

    def _tell_paused(self, now_s: float) -> Iterable[Step]:
        for wait in self._queue.waits:
            if wait.told_s is None or now_s - wait.told_s >= self._remind_s:
                wait.told_s = now_s
                is_measured = wait.gpu in self._capacities.latest
                reason = "others hold it" if is_measured else "this GPU has not been measured yet"
                yield Paused(wait.ticket, reason, now_s - wait.since_s)

    def _set_wanted(self) -> Iterable[Step]:
        needed = self._holdings.connected(wait.gpu for wait in self._queue.waits) | self._overdrawn()
        before, self._wanted = self._wanted, needed
        yield from (SetWanted(gpu, gpu in self._wanted) for gpu in sorted(before ^ self._wanted))


def _set_granted(container: ContainerKey, gpu: GpuUuid, holding: Holding, granted_bytes: int) -> SetGranted:
    holding.grant(granted_bytes)
    return SetGranted(container, gpu, granted_bytes)


def _take_all(bank: Bank, going: list[tuple[Wait, int]]) -> bool:
    """Give to all of them in order; False, with some of it given, where that is not possible."""
    for wait, target_bytes in going:
        if not bank.may_reach(wait.container, wait.gpu, target_bytes):
            return False
        bank.reach(wait.container, wait.gpu, target_bytes)
    return True
