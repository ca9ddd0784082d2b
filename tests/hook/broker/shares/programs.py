"""What programs do, step by step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hook.broker.core.shares.settings import US

BUNDLE_NS: Final = 500 * US
"""Shorter kernels that nobody waits for are launched as bundles of this length: the library, too, keeps its events
that far apart."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Put a kernel of this length on the GPU."""

    ns: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait until all is done."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do something without the GPU."""

    ns: int


Step = Launch | Sync | Sleep
Program = Iterator[Step]


def greedy(kernel_ns: int) -> Program:
    """Launches without end."""
    while True:
        yield Launch(max(kernel_ns, BUNDLE_NS))


def looping(kernel_ns: int, gap_ns: int = 10 * US) -> Program:
    """Launches, waits for the end, thinks for a moment; without end."""
    while True:
        yield Launch(kernel_ns)
        yield Sync()
        yield Sleep(gap_ns)


def part_time(kernel_ns: int, on_ns: int, off_ns: int) -> Program:
    """Has work for a while and none for another, in turn."""
    while True:
        for _ in range(max(1, on_ns // kernel_ns)):
            yield Launch(kernel_ns)
        yield Sync()
        yield Sleep(off_ns)


def serving(kernel_ns: int, period_ns: int, now_ns: Callable[[], int], latencies_ns: list[int]) -> Program:
    """Answers a request every period, and notes how long each took."""
    due_ns = now_ns() + period_ns
    while True:
        yield Sleep(max(0, due_ns - now_ns()))
        yield Launch(kernel_ns)
        yield Sync()
        latencies_ns.append(now_ns() - due_ns)
        due_ns += period_ns


def late_giant(before_ns: int, giant_ns: int, kernel_ns: int) -> Program:
    """Waits, launches one kernel that no grace lasts for, and goes on with ordinary ones."""
    yield Sleep(before_ns)
    yield Launch(giant_ns)
    yield from greedy(kernel_ns)
