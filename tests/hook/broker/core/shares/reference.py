"""The rules of compute shares as their model first stated them; tests compare the core with them tick by tick.

The text is written for reading, not for speed. Times are nanoseconds. Eleven rules are younger than the model. The
charges of a GPU are scaled down where they sum to more than the time in which any process can have had work. A
process cannot be sliced during its own first slice; of two processes, one's first slices lie outside the other's time
as far as there is room. A container with a large request saves less, and a container that is ahead saves more slowly.
A container that wanted the GPU for a moment holds up no other container. A gate that shut for a spent limit opens at
less credit for a container with one GPU. Such a container has less credit at most. A container that its limit holds
holds up no other. A container that is behind is held only for one that is further behind by an urgent claim.
A container with a large request claims twice as much after a pause.
The claim of a container that pauses counts while it is worth the idle time that it costs.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

MS: Final = 1e6
QUANTUM: Final = 20 * MS
CREDIT: Final = 25 * MS
BURST: Final = 11 * MS
SAVED: Final = 8 * MS
SPARE: Final = 30 * MS
OWED: Final = 10 * MS
REPAY: Final = 0.9
IDLE_CLAIM: Final = 100 * MS
LARGE: Final = 0.5
DEBT: Final = 500 * MS
URGENT: Final = 30 * MS
WINDOW: Final = 100 * MS
ERROR: Final = 20 * MS
MOMENT: Final = 0.2
PAUSED: Final = 0.05
PRICE: Final = 16.0
TRIALS: Final = 0.22
TRY: Final = 60 * MS
WORTH: Final = 1000 * MS
USUAL: Final = 40_000 * MS
POINTS: Final = (
    (0.06943184, 0.17392742),
    (0.33000948, 0.32607258),
    (0.66999052, 0.32607258),
    (0.93056816, 0.17392742),
)


@dataclass(eq=False)
class Reader:
    """The words of one process as last read.

    By GPU: the time it was unfinished, surely executed, and sliced; the page.
    """

    factor: float = 1.0
    read: dict[int, tuple[float, ...]] = field(default_factory=dict)
    pages: dict[int, "Page"] = field(default_factory=dict)


@dataclass(eq=False)
class Tenant:
    """One container."""

    request: float
    limit: float
    processes: dict[Hashable, Reader] = field(default_factory=dict)
    is_shut: bool = False


@dataclass(eq=False)
class Sums:
    """The sums of a container on one GPU."""

    lag: float = 0.0
    credit: float = 0.0
    spare: float = 0.0
    wanted: float = -math.inf
    presses: bool = False
    first: float = 0.0
    worth: list[float] = field(default_factory=lambda: [TRY, TRY])  # by charges, by first slices
    usual: list[float] = field(default_factory=lambda: [0.0, 0.0])
    learned: float = 0.0
    counts: bool = True
    pause: float = 1.0
    is_on_trial: bool = False


@dataclass(frozen=True)
class Page:
    """The words of one process for one GPU.

    `launched` is when the burst under way began; None for none. `changes` is the number of begins and ends so far.
    """

    totals: tuple[float, float, float]
    launched: float | None
    changes: int
    stands: bool


NO_WORK: Final = Page((0.0, 0.0, 0.0), None, 0, stands=False)


class Reference:
    """The broker's part of the model."""

    def __init__(self, tenants: list[Tenant], gpus: int, now: float) -> None:
        self.tenants, self.gpus, self.now = tenants, range(gpus), now
        self.accounts = {(c, g): Sums() for c in tenants for g in self.gpus}
        self.room = dict.fromkeys(self.gpus, 0.0)

    def tick(self, now: float, pages: Mapping[tuple[Reader, int], Page]) -> None:
        """Charge, add the dues, and decide the gates."""
        span, self.now = now - self.now, now
        shut = set()
        for gpu in self.gpus:
            charges, pauses = self._charge(gpu, span, pages)
            self._settle(gpu, span, charges, pauses)
            shut |= self._decide(gpu)
        for c in self.tenants:
            c.is_shut = c in shut

    def _charge(
        self, gpu: int, span: float, pages: Mapping[tuple[Reader, int], Page]
    ) -> tuple[dict[Tenant, float], dict[Tenant, float]]:
        """The time that each container ran.

        The second result has the containers that want the GPU, with the part of the tick in which they paused.
        """
        charges, pauses = dict.fromkeys(self.tenants, 0.0), {}
        sliced: dict[tuple[Tenant, Reader], float] = {}
        sure: dict[tuple[Tenant, Reader], float] = {}
        began, ended = self.now, self.now - span
        for c in self.tenants:
            pause, wants, presses = 1.0, False, False
            for p in c.processes.values():
                page = pages[p, gpu]
                before = p.read.get(gpu, (0.0,) * 3)
                p.read[gpu] = tuple(max(a, b) for a, b in zip(page.totals, before, strict=True))
                gains = zip(p.read[gpu], before, strict=True)
                unfinished, sure[c, p], sliced[c, p] = (min((a - b) / span, 1.0) for a, b in gains)
                pause *= 0.0 if page.stands else 1 - unfinished
                is_busy = page.launched is not None
                wants |= is_busy or unfinished > 0 or page.stands
                presses |= is_busy or unfinished > MOMENT or page.stands
                first, last = self._place(page, p.pages.get(gpu, NO_WORK), unfinished, span)
                began, ended = min(began, first), max(ended, last)
                p.pages[gpu] = page
            self.accounts[c, gpu].first = span * sum(sure[c, p] for p in c.processes.values())
            if wants:
                pauses[c] = pause
            self.accounts[c, gpu].presses = presses
        all_sure = sum(sure.values())
        rest = {key: min(u / (1 - sure[key]), 1.0) if u else 0.0 for key, u in sliced.items()}
        chance = {z: math.prod(1 - u + u * z for u in rest.values()) for z, _ in POINTS}
        are_two = sum(sure[key] > 0 or u > 0 for key, u in sliced.items()) == 2
        ran = {}
        for key, u in rest.items():  # mean of 1 / (processes sliced), if they came independently
            mean = sum(weight * chance[z] / (1 - u + u * z) for z, weight in POINTS)
            others, outside = all_sure - sure[key], max(1 - sliced[key] - sure[key], 0.0)
            part = sliced[key] * mean * max(1 - others, 0.0)
            if are_two:
                part = max(mean * (sliced[key] - max(others - outside, 0.0)), sliced[key] / 2)
            ran[key] = span * (sure[key] / max(all_sure, 1.0) + part)
        self.room[gpu] = min(self.room[gpu], ERROR) + min(self.now - began + ended - (self.now - span), span)
        scale = min(1.0, self.room[gpu] / sum(ran.values())) if any(ran.values()) else 1.0
        self.room[gpu] -= sum(ran.values()) * scale
        for (c, p), time in ran.items():
            charges[c] += time * scale * p.factor
        return charges, pauses

    def _place(self, page: Page, before: Page, unfinished: float, span: float) -> tuple[float, float]:
        """Where a process's work in this tick lies: all that began in it, and all that ended in it.

        Returns:
            The beginning of the first and the end of the last; without any, the tick's end and beginning.
        """
        if unfinished == 0:
            return self.now, self.now - span
        if page.changes != before.changes + 1:
            return self.now, self.now
        if page.launched is not None:
            return max(page.launched, self.now - span), self.now - span
        return self.now, self.now - span + unfinished * span

    def _settle(
        self, gpu: int, span: float, charges: Mapping[Tenant, float], pauses: Mapping[Tenant, float]
    ) -> None:
        accounts = {c: self.accounts[c, gpu] for c in self.tenants}
        for c in pauses:
            accounts[c].wanted = self.now
        rate, served = dues(self._active(gpu)), sum(charges.values())
        total, idle = sum(rate.values()) or 1.0, max(span - served, 0.0)
        for c in self._active(gpu):
            self._weigh(c, accounts[c], span, charges[c], idle)
        for c, a in accounts.items():
            a.pause = pauses.get(c, 1.0)
            growth = served * rate.get(c, 0.0) / total - charges[c]
            a.lag += growth
            if a.lag < 0:  # Idle time pays off debts and makes no claims.
                a.lag = min(a.lag + idle * rate.get(c, 0.0) / total, 0.0)
            claim = IDLE_CLAIM * max(c.request, 0.02) * (2 if c.request >= LARGE else 1)
            most = DEBT if a.pause < PAUSED else claim
            excess = min(a.lag - most, growth)
            if excess > 0:  # A container that pauses stops saving, and the excess is forgiven to those ahead.
                a.lag -= excess
                owed = sum(-o.lag for o in accounts.values() if o.lag < 0)
                for o in accounts.values():
                    o.lag += min(excess, owed) * -o.lag / owed if o.lag < 0 else 0.0
            a.lag = max(a.lag, -DEBT)
            floor = max(c.request, 0.01)
            grown = span * floor * (1 if a.lag > -OWED else REPAY)
            a.spare = max(min(a.spare + grown - charges[c], SPARE * (1 - floor) + span), -DEBT)
            most = CREDIT * (1 - c.limit) if len(self.gpus) > 1 else min(CREDIT * (1 - c.limit), BURST)
            a.credit = min(a.credit + c.limit * span - charges[c], most + c.limit * span)

    def _weigh(self, c: Tenant, a: Sums, span: float, charge: float, idle: float) -> None:
        """Whether the container's claim is worth the idle time that it costs."""
        is_priced = a.counts and a.learned > 0
        if not a.counts:
            a.learned = min(a.learned + span, USUAL)
        each = a.usual[0] / a.usual[1] if a.usual[1] > 0 else 1.0
        for n, (ran, of) in enumerate([(charge, 1.0), (a.first, each)]):
            gain = ran - a.usual[n] * span
            a.usual[n] += gain / (USUAL if a.counts else a.learned)
            a.worth[n] += TRIALS * max(c.request, 0.01) ** 3 * span
            a.worth[n] -= idle if a.is_on_trial else 0.0
            a.worth[n] += PRICE * of * gain if is_priced else 0.0
            a.worth[n] = min(max(a.worth[n], 0.0), WORTH)
        a.counts = min(a.worth) > 0 if a.counts else min(a.worth) >= TRY

    def _decide(self, gpu: int) -> set[Tenant]:
        accounts = {c: self.accounts[c, gpu] for c in self.tenants}
        spent = {
            c
            for c, a in accounts.items()
            if c.limit < 1 and a.credit < (self._saved * (1 - c.limit) if c.is_shut else 0.0)
        }
        behind = {
            c: accounts[c].lag
            for c in self._active(gpu)
            if accounts[c].presses and (accounts[c].pause < PAUSED or accounts[c].counts)
            if accounts[c].lag > QUANTUM / 4 and c not in spent
        }
        shut = set(spent)
        for c, a in accounts.items():
            claim = max((lag for b, lag in behind.items() if b is not c), default=0.0)
            is_urgent = claim > URGENT + max(a.lag, 0.0)
            is_ahead = a.lag < (-QUANTUM / 8 if c.is_shut else -QUANTUM / 2) or is_urgent
            if claim and is_ahead and a.spare <= 0:
                shut.add(c)
        for c, a in accounts.items():
            a.is_on_trial = c in behind and a.pause >= PAUSED and bool(shut - spent - {c})
        return shut

    @property
    def _saved(self) -> float:
        """Every container here has all the GPUs."""
        return SAVED if len(self.gpus) == 1 else CREDIT

    def _active(self, gpu: int) -> list[Tenant]:
        return [c for c in self.tenants if self.now - self.accounts[c, gpu].wanted <= WINDOW]


def dues(active: Iterable[Tenant]) -> dict[Tenant, float]:
    """The dues as shares of the served time.

    Requests come first, the rest goes to the container with least, and no container passes its limit.
    """
    rate = {c: max(min(c.request, c.limit), 0.01) for c in active}
    left = 1 - sum(rate.values())
    rising = [c for c in rate if rate[c] < c.limit - 1e-9]
    while left > 1e-9 and rising:
        lowest = min(rate[c] for c in rising)
        low = [c for c in rising if rate[c] <= lowest + 1e-9]
        ceiling = min([rate[c] for c in rising if c not in low] + [c.limit for c in low])
        more = min((ceiling - lowest) * len(low), left)
        for c in low:
            rate[c] += more / len(low)
        left -= more
        rising = [c for c in rising if rate[c] < c.limit - 1e-9]
    return rate
