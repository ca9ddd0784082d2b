"""Invariants of the scheduler for any words on the pages and any times of ticks."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from hook.broker.core.shares.events import GateState
from hook.broker.core.shares.gpus import ERROR_NS
from hook.broker.core.shares.settings import DEBT_NS, MS, SPARE_NS, S
from tests.hook.broker.core.shares.node import TICK_NS, Node, Played
from tests.slow import examples

OPENS_NS = 60 * S
"""A container that executes nothing stands for at most a minute, plus a time for the long kernels of its limit."""


class Chaos:
    """A node with random processes, words, terms and clock."""

    def __init__(self, seed: int) -> None:
        self.node, self.count = Node(), 0
        self.chance = random.Random(seed)  # noqa: S311 - repeatable
        self.gpus = self.chance.randint(1, 2)
        self.names = [str(n) for n in range(self.chance.randint(1, 5))]
        self.homes: dict[int, str] = {}
        for name in self.names:
            self._join(name)

    def step(self) -> int:
        """Make a random event and a tick; returns the tick's length."""
        self.chance.choice(
            [self._start, self._work, self._work, self._work, self._lie, self._end, self._change]
        )()
        span_ns = self.chance.choice([5 * MS, 5 * MS, 7 * MS, self.chance.randint(1, 400 * MS)])
        self.node.tick(span_ns=span_ns)
        return span_ns

    def quieten(self) -> None:
        """Stop all execution, and let all threads stand at the gates."""
        for played in self.node.processes.values():
            for place in range(self.gpus):
                played.words[place][1:3] = [0, 0]
                played.stand(place=place)

    def opens_ns(self) -> int:
        """The time after which every gate has opened, if nothing executes any more."""
        accounts = [self.node.account(name, place) for name in self.names for place in range(self.gpus)]
        limited = [account for account in accounts if account.bounds.limit < 1]
        return OPENS_NS + round(
            max(((a.bounds.enough_ns - a.credit_ns) / a.bounds.limit for a in limited), default=0.0)
        )

    def _join(self, name: str) -> None:
        request = self.chance.choice([0, 1, 20])
        self.node.join(name, request, self.chance.choice([max(request, 1), 50, 100]), self.gpus)

    def _change(self) -> None:
        self._join(self.chance.choice(self.names))

    def _start(self) -> None:
        self.count += 1
        name = self.chance.choice(self.names)
        self.node.start(name, self.count, self.gpus, is_new=self.chance.random() < 0.5)

    def _any(self) -> tuple[Played, int] | None:
        processes = list(self.node.processes.values())
        return (self.chance.choice(processes), self.chance.randrange(self.gpus)) if processes else None

    def _work(self) -> None:
        if (found := self._any()) is not None:
            played, place = found
            if played.words[place][1]:
                played.rest(place, *(self.chance.randint(0, 50 * MS) for _ in range(3)))
            else:
                played.work(self.node.now_ns - self.chance.randint(0, 5 * MS), place)
            played.stand(self.chance.randint(0, 1), place)

    def _lie(self) -> None:
        if (found := self._any()) is not None:
            played, place = found
            word = self.chance.randrange(9)
            played.words[place][word] = self.chance.choice([0, 1, 2**63, 2**64 - 1, self.node.now_ns + S])
            played.words[place][6] = played.words[place][0]

    def _end(self) -> None:
        if (found := self._any()) is not None:
            self.node.end(found[0])


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_more_is_charged_than_the_time_that_passed(seed: int) -> None:
    """On each GPU, over any time, the charges sum to at most the elapsed time and the error of one tick's mean."""
    chaos, elapsed_ns = Chaos(seed), 0
    began: dict[int, tuple[int, float]] = {}
    for _ in range(120):
        elapsed_ns += chaos.step()
        for place in range(chaos.gpus):
            charged_ns = sum(chaos.node.account(name, place).history.ran_ns for name in chaos.names)
            began.setdefault(place, (elapsed_ns, charged_ns))
            assert charged_ns - began[place][1] <= elapsed_ns - began[place][0] + ERROR_NS + 1


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_sums_are_bounded(seed: int) -> None:
    """Lag, spare and credit stay within their bounds."""
    chaos = Chaos(seed)
    for _ in range(120):
        span_ns = chaos.step()
        for name in chaos.names:
            for place in range(chaos.gpus):
                account = chaos.node.account(name, place)
                assert abs(account.lag_ns) <= DEBT_NS + 1
                assert account.spare_ns >= -DEBT_NS
                assert account.rests or account.spare_ns <= SPARE_NS + span_ns
                assert (
                    account.rests
                    or account.bounds.limit == 1
                    or account.credit_ns <= account.bounds.most_credit_ns + span_ns
                )


# An example takes half a second of a core, and some take several.
@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32))
def test_no_gate_stays_shut_over_a_container_of_which_nothing_executes(seed: int) -> None:
    """Time and the accounts open every gate, also while all threads of all containers stand."""
    chaos = Chaos(seed)
    for _ in range(100):
        chaos.step()
    chaos.quieten()
    opened: set[str] = set()
    for _ in range(chaos.opens_ns() // TICK_NS):
        chaos.node.tick()
        opened |= {name for name in chaos.names if chaos.node.states[name] is not GateState.SHUT}
        if len(opened) == len(chaos.names):
            return
    raise AssertionError(set(chaos.names) - opened)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_events_give_the_same_instructions(seed: int) -> None:
    """The same events in the same order give the same instructions."""
    first, second = Chaos(seed), Chaos(seed)
    for _ in range(100):
        assert first.step() == second.step()
        assert first.node.words == second.node.words
        assert list(first.node.words) == list(second.node.words)
