"""A program that ends without Plimsoll ends with it.

The programs are random, over streams, locks, host functions, waits and collectives. A program is a list of
rounds. A round launches kernels and couplings on streams of one or two GPUs, by one or two threads, in a random
order. Each coupling is complete within its round, as in programs that end ungated.
"""

import random
from collections.abc import Iterator
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hook.broker.core.shares.hardware import Item
from tests.hook.broker.core.shares.model import (
    Actor,
    Container,
    Launch,
    Lock,
    Program,
    Simulation,
    Sleep,
    Step,
    Sync,
    Unlock,
)
from tests.hook.broker.core.shares.programs import Word, greedy
from tests.slow import examples

ROUNDS: Final = 3
SPAN_MS: Final = 120_000.0


class Graph:
    """One round: launches in order, each by one thread.

    Couplings by kind: a host function that takes the lock which a launching thread holds; a stream that waits for a
    value that another writes later; a kernel that spins until a value is written later; a kernel on each GPU that
    spins until all have started; a host function alone.
    """

    def __init__(self, chance: random.Random, gpus: int) -> None:
        self._chance, self._gpus, self._streams = chance, gpus, chance.randint(1, 3)
        self.launches: list[Launch | Lock | Unlock | Sleep | Sync] = []
        for _ in range(chance.randint(1, 6)):
            chance.choice(
                [self._kernels, self._locked, self._waited, self._spun, self._collective, self._host]
            )()

    def _stream(self, gpu: int | None = None) -> tuple[int, float]:
        gpu = self._chance.randrange(self._gpus) if gpu is None else gpu
        return gpu, float(self._chance.randrange(self._streams))

    def _kernels(self) -> None:
        length = self._chance.choice([0.05, 1.0, 8.0, 30.0])
        for _ in range(self._chance.randint(1, 12)):
            self.launches.append(Launch(self._stream(), Item("run", length)))

    def _host(self) -> None:
        self.launches.append(Launch(self._stream(), Item("host", self._chance.choice([0.1, 20.0]))))

    def _locked(self) -> None:
        self.launches.append(Lock())
        self._kernels()
        self.launches += [Launch(self._stream(), Item("host", 0.1, locks=True)), Unlock()]

    def _waited(self) -> None:
        """The waiting stream has no other use, as the write must not stand behind the wait."""
        self._coupled(Item("wait", holds=lambda: True))

    def _spun(self) -> None:
        self._coupled(Item("spin", 0.1, lambda: True))

    def _coupled(self, waits: Item) -> None:
        word, gpu = Word(), self._chance.randrange(self._gpus)
        waits.holds = word.reaches(1)
        own = (gpu, 10.0 + len(self.launches))
        self.launches += [Launch(own, waits), Launch(own, Item("run", 1.0))]
        self._kernels()
        self.launches.append(Launch((gpu, 5.0), Item("write", holds=word.writes(1))))

    def _collective(self) -> None:
        started: set[int] = set()
        for gpu in range(self._gpus):
            spins = Item("spin", 0.5, lambda: len(started) == self._gpus, starts=started)
            self.launches.append(Launch((gpu, 6.0), spins))


def program(seed: int, gpus: int) -> Program:
    """Some random rounds. The program may wait for each, and counts the finished ones."""

    def code(me: Actor) -> Iterator[Step]:
        chance = random.Random(seed)  # noqa: S311 - repeatable
        for _ in range(ROUNDS):
            yield from Graph(chance, gpus).launches
            if chance.random() < 0.7:
                yield Sync()
            yield Sleep(chance.choice([0.0, 0.01, 3.0, 30.0]))
        yield Sync()
        me.container.steps += 1

    return code


def _ends(subjects: list[Container], others: list[Container], gpus: int, *, gated: bool) -> bool:
    """Whether all of the subjects end."""
    Simulation(
        [*subjects, *others], gpus, gated=gated, span=SPAN_MS, is_over=lambda: all(s.steps for s in subjects)
    )
    return all(one.steps for one in subjects)


@st.composite
def _containers(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    gpus = draw(st.integers(1, 2))
    terms = st.tuples(st.sampled_from([0, 20, 30]), st.sampled_from([30, 60, 100]), st.integers(0, 2**32))
    return gpus, draw(st.lists(terms, min_size=1, max_size=3))


@settings(max_examples=examples(40), deadline=None)
@given(drawn=_containers(), is_crowded=st.booleans())
def test_what_ends_without_plimsoll_ends_with_it(
    *, drawn: tuple[int, list[tuple[int, int, int]]], is_crowded: bool
) -> None:
    """Each container's program ends under any limit, beside any others that want the GPUs."""
    gpus, terms = drawn

    for gated in (False, True):
        subjects = [
            Container(f"c{n}", request / 100, limit / 100, [program(seed, gpus)])
            for n, (request, limit, seed) in enumerate(terms)
        ]
        others = [Container("greedy", 0.1, 1, [greedy(20)])] * is_crowded
        assert _ends(subjects, others, gpus, gated=gated)
