"""What the share scheduler says that containers had, at every moment that somebody asks."""

from dataclasses import dataclass, field

import pytest

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.turns import (
    GateState,
    Gone,
    Joined,
    Reported,
    SetGate,
    ShareEvent,
    ShareUse,
    Terms,
    Ticked,
    Use,
)
from plimsoll.names import ContainerName, GpuUuid, PodUid

GPU = GpuUuid("GPU-a")
A, B = (ContainerKey(PodUid(pod), ContainerName("main")) for pod in ("pod-a", "pod-b"))
OF = {A: ProcessKey(1, 1), B: ProcessKey(2, 2)}
START_NS = 1000 * S


@dataclass(slots=True)
class Node:
    """Two containers with half of one GPU each, one process in each, and what their gates say."""

    scheduler: Scheduler = field(default_factory=lambda: Scheduler(ShareSettings()))
    words: dict[ContainerKey, int] = field(default_factory=dict)
    now_ns: int = START_NS

    def __post_init__(self) -> None:
        for container in (A, B):
            self.handle(Joined(container, Terms((GPU,), 50, 100), self.now_ns))

    def handle(self, event: ShareEvent) -> None:
        """Something happened; the gates follow."""
        for instruction in self.scheduler.handle(event):
            if isinstance(instruction, SetGate):
                self.words[instruction.container] = instruction.word

    def report(self, container: ContainerKey, use: Use, *, wants: bool = False) -> None:
        """Its process tells where it stands."""
        is_busy = use.busy_since_ns != 0
        word = self.words[container]
        self.handle(Reported(container, OF[container], self.now_ns, wants, is_busy, use, word))

    def tick(self, uses: dict[ContainerKey, Use]) -> None:
        """Its slots are looked at."""
        self.handle(Ticked(self.now_ns, {(key, OF[key]): use for key, use in uses.items()}))

    def of(self, container: ContainerKey) -> ShareUse:
        """What it had by now."""
        use = self.scheduler.uses(container, self.now_ns)
        assert use is not None
        return use


def working() -> Node:
    """A holds the token and has had work for 20 ms, as far as anybody knows; B has waited as long."""
    node = Node()
    node.report(B, Use(0), wants=True)  # takes the token of A, which came first and whose gate was open
    node.now_ns += S
    node.tick({})
    node.report(A, Use(0), wants=True)
    node.now_ns += 5 * MS
    node.report(B, Use(0))
    node.report(B, Use(0), wants=True)
    node.now_ns += 20 * MS
    node.tick({A: Use(0, node.now_ns - 20 * MS)})
    return node


def test_use_that_seemed_longer_is_no_step_back() -> None:
    """A burst that ended before it was looked at is charged as it was; the counter only stands still meanwhile."""
    node = working()
    assert (node.of(A).state, node.of(A).busy_s) == (GateState.METERED, 0.02)
    node.tick({A: Use(15 * MS)})
    assert node.of(A).busy_s == 0.02
    node.now_ns += 10 * MS
    node.tick({A: Use(25 * MS)})
    assert node.of(A).busy_s == 0.025


def test_a_wait_counts_while_it_lasts_and_however_it_ends() -> None:
    """The time is seen at once, and stays when the one that waited dies; only a wait that was granted is one."""
    node = working()
    before = node.of(B)
    node.now_ns += 5 * MS
    assert node.of(B).waited_s == pytest.approx(before.waited_s + 0.005)
    node.handle(Gone(B, OF[B], node.now_ns))
    node.now_ns += 5 * MS
    assert node.of(B).waited_s == pytest.approx(before.waited_s + 0.005)
    assert (node.of(B).waits, node.of(B).grants) == (before.waits, before.grants)


def test_use_is_forgotten_though_nothing_happens() -> None:
    """Where all programs ended there is no event any more; who asks much later finds that nothing is used."""
    node = working()
    assert node.of(A).used_pct > 0
    for container in (A, B):
        node.handle(Gone(container, OF[container], node.now_ns))
    node.now_ns += 3 * S
    assert node.of(A).used_pct == 0
    assert node.of(A).busy_s == 0.02


def test_overrun_is_use_without_the_token() -> None:
    """What was queued when the token was taken counts as overrun, and the way to its end as drained."""
    node = working()
    before = node.of(A)
    node.now_ns += 20 * MS
    node.tick({A: Use(0, node.now_ns - 40 * MS)})
    assert node.of(A).state is GateState.SHUT
    node.now_ns += 4 * MS
    node.report(A, Use(42 * MS))
    assert node.of(A).overrun_s == pytest.approx(0.002)
    assert node.of(A).drain_s == pytest.approx(before.drain_s + 0.004)
    assert node.of(B).state is GateState.METERED
