"""A node under the scheduler alone. Tests move its containers, processes and words by hand from tick to tick."""

from dataclasses import dataclass, field

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Account
from hook.broker.core.shares.events import (
    Appeared,
    GateState,
    Gone,
    Joined,
    Left,
    SetGate,
    ShareEvent,
    ShareInstruction,
    ShareTerms,
    ShareUse,
    Ticked,
)
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, S, ShareSettings
from plimsoll.broker.pages import GATE_STATES
from plimsoll.ids import ContainerName, GpuUuid, PodUid

GPUS = tuple(GpuUuid(f"GPU-{n}") for n in range(16))
TICK_NS = 5 * MS
START_NS = 1000 * S


NEVER_SILENT_NS = 1 << 62
"""A last sign of life in the far future, so that the process never counts as stopped."""


def key(name: str) -> ContainerKey:
    """The key of a container of this name."""
    return ContainerKey(PodUid(name), ContainerName("main"))


@dataclass(eq=False)
class Played:
    """One process, with its words on each of its container's GPUs as in `pages.Work`."""

    number: int
    words: list[list[int]]

    def work(self, since_ns: int, place: int = 0, *, executed_ns: int | None = None) -> None:
        """Write a burst that is under way."""
        self._change(place)
        self.words[place][1:3] = [since_ns, since_ns if executed_ns is None else executed_ns]

    def rest(self, place: int = 0, unfinished_ns: int = 0, sure_ns: int = 0, sliced_ns: int = 0) -> None:
        """Write the sums of the ended bursts, with no burst under way."""
        self._change(place)
        self.words[place][1:6] = [0, 0, unfinished_ns, sure_ns, sliced_ns]

    def stand(self, count: int = 1, place: int = 0) -> None:
        """Write the number of threads that stand at the gate."""
        self.words[place][8] = count

    def _change(self, place: int) -> None:
        self.words[place][0] = self.words[place][6] = self.words[place][0] + 1

    @property
    def page(self) -> tuple[int, ...]:
        """All words of the process."""
        return tuple(word for words in self.words for word in words)


@dataclass(eq=False)
class Node:
    """Some containers."""

    settings: ShareSettings = field(default_factory=ShareSettings)
    now_ns: int = START_NS
    states: dict[str, GateState] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    sharers: dict[str, int] = field(default_factory=dict)
    told: list[ShareInstruction] = field(default_factory=list)
    processes: dict[int, Played] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.settings)

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        """Give the scheduler an event, and apply its instructions to the gates."""
        steps = self.scheduler.handle(event)
        for step in steps:
            if isinstance(step, SetGate):
                name = step.container.pod
                self.words[name], self.sharers[name] = step.word, step.sharers
                self.states[name] = GateState(step.word & GATE_STATES)
            else:
                self.told.append(step)
        return steps

    def join(
        self, name: str, request: int = 0, limit: int = 100, gpus: int = 1, *, whole: bool = False
    ) -> None:
        """Add a container, or change its terms."""
        self.handle(Joined(key(name), ShareTerms(GPUS[:gpus], request, limit, whole), self.now_ns))

    def leave(self, name: str) -> None:
        """Remove a container."""
        self.handle(Left(key(name), self.now_ns))

    def start(self, name: str, number: int, gpus: int = 1, *, is_new: bool = True) -> Played:
        """Let a process of a container claim a slot."""
        played = self.processes[number] = Played(number, [[0] * 9 + [NEVER_SILENT_NS] for _ in range(gpus)])
        self.handle(Appeared(key(name), number, 1000 + number, self.now_ns, is_new))
        return played

    def end(self, played: Played) -> None:
        """Let a process die."""
        del self.processes[played.number]
        self.handle(Gone(played.number, self.now_ns, played.page))

    def tick(self, count: int = 1, span_ns: int = TICK_NS) -> None:
        """Let time pass and run a tick."""
        for _ in range(count):
            self.now_ns += span_ns
            pages = {number: played.page for number, played in self.processes.items()}
            self.handle(Ticked(self.now_ns, pages))

    def use(self, name: str) -> ShareUse:
        """The scheduler's record of a container's use."""
        use = self.scheduler.uses(key(name), self.now_ns)
        assert use is not None
        return use

    def account(self, name: str, place: int = 0) -> Account:
        """A container's account on one GPU."""
        return self.scheduler._tenants[key(name)].accounts[place]


def two(first: int = 50, second: int = 50) -> tuple[Node, Played, Played]:
    """A node on which A and B, with one process each, have requests on one GPU."""
    node = Node()
    node.join("A", first)
    node.join("B", second)
    return node, node.start("A", 1), node.start("B", 2)
