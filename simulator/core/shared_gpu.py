"""The speed of jobs that share one GPU: the broker's own share core, over hardware slices in memory.

Each job wants a part of the GPU's time in requests of one kernel each. The GPU gives each process with queued kernels
a slice in turn, and the core opens and shuts the gates of the jobs by the words of their work, as on a node
(`hook.broker.core.shares`). Nothing here states how much slower a job becomes: the gates and the slices decide that.

Times are milliseconds. What always holds: the same jobs have the same speeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import (
    Appeared,
    GateState,
    Joined,
    SetGate,
    ShareInstruction,
    ShareTerms,
    Ticked,
)
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, ShareSettings
from plimsoll.ids import ContainerName, GpuUuid, PodUid

_GPU: Final = GpuUuid("GPU-0")
_KERNEL_MS: Final = 4.0
_WAITING_MS: Final = 40.0
"""The work of requests that wait at most: a client sends no more until some are answered."""
_WARM_MS: Final = 500.0
"""The accounts need about this long to become even; only the time after it counts."""
_SPAN_MS: Final = 2000.0
_EPSILON_MS: Final = 1e-6
_SETTINGS: Final = ShareSettings()


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A job on a GPU.

    Attributes:
        request_pct: its guaranteed share of the GPU's time, 0 to 100.
        demand_pct: the part of the GPU's time that it uses when it is alone, 1 to 100.
        limit_pct: the most that it may use, 1 to 100.
    """

    request_pct: int
    demand_pct: int
    limit_pct: int = 100


def used_parts(loads: Sequence[Load]) -> tuple[float, ...]:
    """The part of the GPU's time that each of these jobs gets when they share it, 0 to 1, in their order."""
    if not loads:
        return ()
    order = sorted(range(len(loads)), key=lambda index: loads[index])
    found = _measured(tuple(loads[index] for index in order))
    parts = dict(zip(order, found, strict=True))
    return tuple(parts[index] for index in range(len(loads)))


def speeds(loads: Sequence[Load]) -> tuple[float, ...]:
    """The speed of each of these jobs when they share a GPU, 0 to 1; 1 is its speed when it is alone."""
    return tuple(
        min(1.0, part / _measured((load,))[0]) for load, part in zip(loads, used_parts(loads), strict=True)
    )


@cache
def _measured(loads: tuple[Load, ...]) -> tuple[float, ...]:
    return _Gpu(loads).run()


@dataclass(eq=False, slots=True)
class _Tenant:
    """A job with one process; work in milliseconds of GPU time.

    Attributes:
        due: the time of its next request.
        waiting: the work of requests that are not launched.
        queued: the work that is launched.
        began, executed: the beginning and the first slice of the burst under way; inf without one.
        sums: over ended bursts: unfinished, sure, sliced; see `pages.Work`.
        changes: the changes of its words.
        ran: the time in which its kernels ran since the warm-up.
    """

    number: int
    period_ms: float
    due: float
    waiting: float = 0.0
    queued: float = 0.0
    began: float = inf
    executed: float = inf
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)
    changes: int = 0
    gate: GateState = GateState.OPEN
    ran: float = 0.0

    def settle(self, now: float) -> None:
        """Take in the requests that are due, launch what the gate lets pass, and begin or end a burst."""
        while self.due <= now + _EPSILON_MS:
            if self.waiting + self.queued < _WAITING_MS:
                self.waiting += _KERNEL_MS
            self.due += self.period_ms
        while self.waiting > 0 and self._may_launch():
            self.waiting -= _KERNEL_MS
            self.queued += _KERNEL_MS
        if self.queued > _EPSILON_MS and self.began == inf:
            self.began = now
            self.changes += 1
        elif self.queued <= _EPSILON_MS and self.began != inf:
            self._end(now)

    def _may_launch(self) -> bool:
        if self.gate is GateState.METERED:
            return self.queued < _SETTINGS.ahead_ms
        return self.gate is GateState.OPEN

    def _end(self, now: float) -> None:
        executed = now - self.executed if self.executed != inf else 0.0
        unfinished, sure, sliced = self.sums
        slice_ms = _SETTINGS.slice_ms
        self.sums = (
            unfinished + now - self.began,
            sure + min(executed, slice_ms),
            sliced + max(executed - slice_ms, 0.0),
        )
        self.began = self.executed = inf
        self.queued = 0.0
        self.changes += 1

    def words(self, now: float) -> tuple[int, ...]:
        """Its page, see `pages.Work`."""
        began = _ns(self.began) if self.began != inf else 0
        executed = _ns(self.executed) if self.executed != inf else 0
        sums = (round(one * MS) for one in self.sums)
        stands = int(self.waiting > 0)
        return (self.changes, began, executed, *sums, self.changes, 0, stands, _ns(now))


class _Gpu:
    """One GPU, its jobs, and the broker's core."""

    def __init__(self, loads: tuple[Load, ...]) -> None:
        self._core = Scheduler(_SETTINGS)
        self._tenants: list[_Tenant] = []
        self._by_key: dict[ContainerKey, _Tenant] = {}
        for number, load in enumerate(loads, 1):
            period_ms = _KERNEL_MS * 100 / load.demand_pct
            tenant = _Tenant(number, period_ms, due=period_ms * (0.618 * number % 1))  # their phases differ
            key = ContainerKey(PodUid(f"job-{number}"), ContainerName("main"))
            self._tenants.append(tenant)
            self._by_key[key] = tenant
            terms = ShareTerms((_GPU,), load.request_pct, load.limit_pct)
            self._carry_out(self._core.handle(Joined(key, terms, _ns(0.0))))
            self._carry_out(self._core.handle(Appeared(key, number, number, _ns(0.0))))

    def run(self) -> tuple[float, ...]:
        now, tick, current, slice_left = 0.0, _SETTINGS.tick_ms, 0, 0.0
        until = _WARM_MS + _SPAN_MS
        while now < until:
            for tenant in self._tenants:
                tenant.settle(now)
            if now >= tick - _EPSILON_MS:
                pages = {tenant.number: tenant.words(now) for tenant in self._tenants}
                self._carry_out(self._core.handle(Ticked(_ns(now), pages)))
                tick = now + _SETTINGS.tick_ms
                continue  # gates may have opened
            if slice_left <= _EPSILON_MS or self._tenants[current].queued <= _EPSILON_MS:
                current, slice_left = self._next(current), _SETTINGS.slice_ms
            tenant = self._tenants[current]
            runs = tenant.queued > _EPSILON_MS
            if runs:
                tenant.executed = min(tenant.executed, now)
            times = [tick - now, *(one.due - now for one in self._tenants)]
            span = max(min([*times, slice_left, tenant.queued] if runs else times), _EPSILON_MS)
            if runs:
                tenant.queued -= span
                slice_left -= span
                tenant.ran += span if now >= _WARM_MS else 0.0
            now += span
        return tuple(tenant.ran / _SPAN_MS for tenant in self._tenants)

    def _next(self, current: int) -> int:
        """The process that has the next slice: the next one in turn with queued kernels."""
        count = len(self._tenants)
        turns = ((current + step) % count for step in range(1, count + 1))
        return next((turn for turn in turns if self._tenants[turn].queued > _EPSILON_MS), current)

    def _carry_out(self, instructions: list[ShareInstruction]) -> None:
        for step in instructions:
            if isinstance(step, SetGate):
                self._by_key[step.container].gate = GateState(step.word & 3)


def _ns(ms: float) -> int:
    """A time of the core; it is never 0, because 0 means absent there."""
    return round((ms + 1000) * MS)
