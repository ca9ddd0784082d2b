"""For the same pages the core has the same gates and sums as the reference."""

import math
import random
from dataclasses import dataclass, field
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import Appeared, GateState, Joined, ShareTerms, Ticked
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, S, ShareSettings
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from tests.hook.broker.core.shares.reference import (
    CREDIT,
    OWED,
    QUANTUM,
    URGENT,
    Page,
    Reader,
    Reference,
    Sums,
    Tenant,
)
from tests.slow import examples

SLICE_NS: Final = 2 * MS
TICK_MOST_NS: Final = 9 * MS
NEAR_NS: Final = 100.0
"""Sums that differ by less are equal. A decision may differ where a sum is this near to its threshold."""


@dataclass(eq=False)
class Played:
    """One process on one GPU with random bursts; the process obeys its gate.

    Attributes:
        greed: the chance to begin a burst at a tick in which it has none.
        length_ns: the mean length of its bursts.
        burst: the times of launch, first execution and end of the burst under way.
        sums: the sums over ended bursts: unfinished, sure, sliced.
        changes: the number of bursts that began or ended.
    """

    chance: random.Random
    greed: float
    length_ns: float
    burst: tuple[int, int, int] | None = None
    sums: list[int] = field(default_factory=lambda: [0, 0, 0])
    stands: bool = False
    changes: int = 0

    def go_on(self, was_ns: int, now_ns: int, *, is_shut: bool) -> None:
        """Begin and end bursts in the tick that ends now."""
        self.stands = False
        if self.burst is None and self.chance.random() < self.greed:
            self.stands = is_shut
            if not is_shut:
                launched = self.chance.randint(was_ns, now_ns - 1)
                executed = launched + self.chance.randint(0, 3 * MS)
                ends = executed + round(self.chance.expovariate(1 / self.length_ns))
                self.burst = launched, executed, ends
                self.changes += 1
        if self.burst is not None and self.burst[2] < now_ns:
            self.sums = [a + b for a, b in zip(self.sums, self._gains(self.burst[2]), strict=True)]
            self.burst = None
            self.changes += 1

    def page(self, now_ns: int) -> Page:
        """The page in the reference's form."""
        gains = self._gains(now_ns) if self.burst else (0, 0, 0)
        unfinished, sure, sliced = (float(a + b) for a, b in zip(self.sums, gains, strict=True))
        launched = float(self.burst[0]) if self.burst else None
        return Page((unfinished, sure, sliced), launched, self.changes, self.stands)

    def words(self, now_ns: int) -> list[int]:
        """The page in the core's form."""
        launched, executed, _ = self.burst or (0, 0, 0)
        return [
            self.changes,
            launched,
            executed if executed <= now_ns else 0,
            *self.sums,
            self.changes,
            0,
            int(self.stands),
            now_ns,
        ]

    def _gains(self, now_ns: int) -> tuple[int, int, int]:
        assert self.burst is not None
        launched, executed, _ = self.burst
        ran = max(now_ns - executed, 0)
        return now_ns - launched, min(ran, SLICE_NS), max(ran - SLICE_NS, 0)


class Both:
    """The core and the reference, with the same containers."""

    def __init__(self, terms: list[tuple[int, int]], gpus: int, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - repeatable
        self.now_ns = 1000 * S
        self.tenants = [Tenant(request / 100, limit / 100) for request, limit in terms]
        self.reference = Reference(self.tenants, gpus, self.now_ns)
        self.scheduler = Scheduler(ShareSettings(relax_s=math.inf))  # every container is metered
        self.rested: set[Sums] = set()
        self.played: dict[tuple[int, int], tuple[Reader, Played]] = {}
        uuids = tuple(GpuUuid(f"GPU-{gpu}") for gpu in range(gpus))
        for n, tenant in enumerate(self.tenants):
            key = ContainerKey(PodUid(str(n)), ContainerName("main"))
            self.scheduler.handle(Joined(key, ShareTerms(uuids, *terms[n]), self.now_ns))
            for m in range(self.chance.randint(1, 2)):
                number = 10 * n + m + 1
                tenant.processes[number] = Reader()
                self.scheduler.handle(Appeared(key, number, number, self.now_ns))
                for gpu in range(gpus):
                    greed, length = self.chance.choice([0.1, 0.5, 1.0]), self.chance.choice([1, 4, 40]) * MS
                    played = Played(self.chance, greed, length)
                    self.played[number, gpu] = tenant.processes[number], played

    def tick(self) -> None:
        """Run a tick of both."""
        was_ns, self.now_ns = self.now_ns, self.now_ns + self.chance.randint(3 * MS, TICK_MOST_NS)
        for (number, _), (_, played) in self.played.items():
            played.go_on(was_ns, self.now_ns, is_shut=self.tenants[number // 10].is_shut)
        pages = {(reader, gpu): p.page(self.now_ns) for (_, gpu), (reader, p) in self.played.items()}
        words: dict[int, tuple[int, ...]] = {}
        for (number, _), (_, played) in self.played.items():
            words[number] = words.get(number, ()) + tuple(played.words(self.now_ns))
        self.reference.tick(float(self.now_ns), pages)
        self.scheduler.handle(Ticked(self.now_ns, words))

    def compare(self) -> None:
        """Compare sums and gates.

        A gate or a spare may differ while a sum is at its threshold; then the reference takes the core's. A full sum
        stays full, and the core does not update it any more, so the two may differ by what one tick adds.
        """
        cores = list(self.scheduler._tenants.values())
        for n, tenant in enumerate(self.tenants):
            pairs = [(self.reference.accounts[tenant, g], a) for g, a in enumerate(cores[n].accounts)]
            for sums, account in pairs:
                assert abs(sums.lag - account.lag_ns) < NEAR_NS
                near_ns = TICK_MOST_NS if sums in self.rested else NEAR_NS
                if abs(sums.lag + OWED) < NEAR_NS:  # one may have repaid, and the other not
                    assert abs(sums.spare - account.spare_ns) < TICK_MOST_NS
                    sums.spare = account.spare_ns
                assert abs(sums.spare - account.spare_ns) < near_ns
                assert tenant.limit == 1 or abs(sums.credit - account.credit_ns) < near_ns
                assert abs(sums.worth[0] - account.claim.by_charges.worth_ns) < NEAR_NS
                assert abs(sums.worth[1] - account.claim.by_firsts.worth_ns) < NEAR_NS
                self.rested.discard(sums)
                if account.rests:
                    self.rested.add(sums)
                    sums.spare, sums.credit = account.spare_ns, account.credit_ns
            if tenant.is_shut != cores[n].gate.is_shut:
                assert self._is_on_edge()
                tenant.is_shut = cores[n].gate.is_shut
            assert (cores[n].gate.state is GateState.SHUT) == tenant.is_shut

    def _is_on_edge(self) -> bool:
        sums = self.reference.accounts.values()
        differences = [a.lag - max(b.lag, 0.0) for a in sums for b in sums]
        return any(map(_is_on_edge, sums)) or any(abs(each - URGENT) < NEAR_NS for each in differences)


def _is_on_edge(sums: Sums) -> bool:
    thresholds = [(sums.spare, 0.0), (sums.credit, 0.0), (sums.lag, QUANTUM / 4), (sums.lag, URGENT)]
    thresholds += [(sums.lag, -QUANTUM / 2), (sums.lag, -QUANTUM / 8)]
    thresholds += [(sums.credit, CREDIT * (1 - n / 100)) for n in range(100)]
    return any(abs(a - b) < NEAR_NS for a, b in thresholds)


def _terms(draw: st.DrawFn) -> tuple[int, int]:
    request = draw(st.sampled_from([0, 1, 10, 25, 30, 60]))
    return request, draw(st.sampled_from([max(request, 1), 60, 100, 100]))


@settings(max_examples=examples(60), deadline=None)
@example([(10, 60), (0, 1)], 1, 1002)  # a lag comes to its threshold but for a rounding
@given(st.lists(st.composite(_terms)(), min_size=2, max_size=5), st.integers(1, 2), st.integers(0, 2**32))
def test_gates_and_sums_are_those_of_the_reference(
    terms: list[tuple[int, int]], gpus: int, seed: int
) -> None:
    """For any processes, core and reference agree at every tick."""
    both = Both(terms, gpus, seed)
    for _ in range(150):
        both.tick()
        both.compare()
