"""Containers that take and free memory at random under the `MemoryArbiter`, with the library's pages and words.

The model includes the race that matters: a process may reserve up to the old number until the lower one is
written.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

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
from hook.broker.core.memory.holdings import LASTING_S
from hook.broker.core.memory.policies.policy import WaitPolicy, WaitTicket
from plimsoll.ids import ContainerName, GpuUuid, PodUid


def key(number: int) -> ContainerKey:
    """The key of a container."""
    return ContainerKey(PodUid(f"pod-{number}"), ContainerName("main"))


@dataclass(slots=True)
class Member:
    """One container with one thread.

    Attributes:
        ops: the next operations: a GPU, and bytes to take (above zero) or free (below).
        waits_for: its ticket, while it waits.
        granted: its ticket, from the answer until it has taken the granted memory.
    """

    lines: Mapping[GpuUuid, int]
    ops: deque[tuple[GpuUuid, int]]
    used: dict[GpuUuid, int] = field(default_factory=dict)
    page: dict[GpuUuid, int] = field(default_factory=dict)
    waits_for: WaitTicket | None = None
    granted: WaitTicket | None = None


class Crowd:
    """The node: the roles of the broker's shell and of the library, in one thread."""

    def __init__(self, policy: WaitPolicy, random: Random) -> None:
        self.arbiter = MemoryArbiter(policy)
        self.members: dict[ContainerKey, Member] = {}
        self.usable: dict[GpuUuid, int] = {}
        self.answers: dict[WaitTicket, Step] = {}
        self.asked: dict[WaitTicket, tuple[ContainerKey, GpuUuid]] = {}
        self.wanted: dict[GpuUuid, bool] = {}
        self.looks = 0
        self.now_s = 0.0
        self._random = random
        self._is_shrunk = False

    def resize(self, gpu: GpuUuid, usable_bytes: int) -> None:
        """Set the bytes that a GPU has for containers."""
        self.usable[gpu] = usable_bytes
        self.carry_out(self.arbiter.capacity(gpu, usable_bytes))

    def join(
        self, container: ContainerKey, lines: Mapping[GpuUuid, int], ops: Iterable[tuple[GpuUuid, int]] = ()
    ) -> None:
        """Register and start a container."""
        self.members[container] = Member(lines, deque(ops), dict.fromkeys(lines, 0), dict.fromkeys(lines, 0))
        self.carry_out(self.arbiter.enrol(container, lines))

    def end(self, container: ContainerKey) -> None:
        """End a container, as by its exit or by SIGKILL."""
        member = self.members.pop(container)
        for ticket in (member.waits_for, member.granted):
            if ticket is not None:
                self.carry_out(self.arbiter.withdraw(ticket, self.now_s))
        self.carry_out(self.arbiter.leave(container))

    def take(self, container: ContainerKey, gpu: GpuUuid, size: int) -> bool:
        """Allocate once. False if the container had to ask, and must try again after its wait."""
        member = self.members[container]
        if member.used[gpu] + size <= min(member.lines[gpu], member.page[gpu]):
            member.used[gpu] += size
            return True
        self._hang_up(member)
        ticket = WaitTicket(len(self.asked))
        self.asked[ticket] = (container, gpu)
        member.waits_for = ticket
        self.carry_out(self.arbiter.ask(ticket, container, gpu, size, self.now_s))
        return False

    def give(self, container: ContainerKey, gpu: GpuUuid, size: int) -> None:
        """Free this many bytes."""
        self.members[container].used[gpu] -= size
        if self.wanted.get(gpu):
            self.carry_out(self.look(gpu))

    def look(self, gpu: GpuUuid) -> tuple[Step, ...]:
        """Read the words of one GPU."""
        self.looks += 1
        used = {name: member.used[gpu] for name, member in self.members.items() if gpu in member.lines}
        assert self._is_shrunk or sum(used.values()) <= self.usable.get(gpu, 0), (
            "the containers use more than the GPU has"
        )
        return self.arbiter.take_used(gpu, used, self.now_s)

    def shrink(self, gpu: GpuUuid, usable_bytes: int) -> None:
        """Processes outside containers take memory of the GPU; the containers' memory stays."""
        self._is_shrunk = True
        self.resize(gpu, usable_bytes)

    def pass_time(self) -> None:
        """Let this much time pass that the broker believes in less memory, and let the broker look."""
        for _ in range(3):
            self.now_s += LASTING_S
            for gpu in self.usable:
                self.carry_out(self.look(gpu))

    def step(self, container: ContainerKey) -> None:
        """Let one container that does not wait take its next step. After its last step, or a refusal, it ends."""
        member = self.members[container]
        is_refused = member.granted is not None and isinstance(self.answers[member.granted], Refuse)
        if not member.ops or is_refused:
            self.end(container)
            return
        gpu, size = member.ops[0]
        if size < 0:
            member.ops.popleft()
            self.give(container, gpu, -size)
        elif self.take(container, gpu, size):
            member.ops.popleft()
            self._hang_up(member)

    def _hang_up(self, member: Member) -> None:
        """Close the connection of a thread that was granted memory and has taken it."""
        if member.granted is not None:
            ticket, member.granted = member.granted, None
            self.carry_out(self.arbiter.withdraw(ticket, self.now_s))

    def runnable(self) -> list[ContainerKey]:
        """The containers that do not wait."""
        return [name for name, member in self.members.items() if member.waits_for is None]

    def carry_out(self, steps: Iterable[Step]) -> None:
        """Carry out the core's steps, and check the invariants after them."""
        todo = deque(steps)
        while todo:
            match step := todo.popleft():
                case ReadUsed(gpu):
                    todo.extendleft(reversed(self.look(gpu)))
                case SetGranted(container, gpu, granted_bytes):
                    self._write(container, gpu, granted_bytes)
                case SetWanted(gpu, is_wanted):
                    self.wanted[gpu] = is_wanted
                case Allow(ticket) | Refuse(ticket):
                    assert ticket not in self.answers, f"{ticket} was answered twice"
                    self.answers[ticket] = step
                    for member in self.members.values():
                        if member.waits_for == ticket:
                            member.waits_for, member.granted = None, ticket
                case AnnouncePaused(ticket):
                    assert ticket not in self.answers
        for gpu, usable_bytes in self.usable.items():
            on = [member for member in self.members.values() if gpu in member.lines]
            held = sum(max(member.used[gpu], member.page[gpu]) for member in on)
            used = sum(member.used[gpu] for member in on)
            assert held <= max(usable_bytes, used), "the grants exceed what the GPU has"

    def _write(self, container: ContainerKey, gpu: GpuUuid, granted_bytes: int) -> None:
        if container not in self.members:
            return
        member = self.members[container]
        if member.ops and member.waits_for is None and self._random.random() < 0.3:
            on, size = member.ops[0]
            if on == gpu and 0 < size <= min(member.page[gpu], member.lines[gpu]) - member.used[gpu]:
                member.used[gpu] += size
                member.ops.popleft()
        member.page[gpu] = granted_bytes
