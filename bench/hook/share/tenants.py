"""Tenants of a shared GPU: their orders, the process of each, and their answers."""

import asyncio
import json
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from bench.hook.share.figures import Track

PATIENCE_S: Final = 60.0
LINE_MIB: Final = 512
GRAPHS: Final = ((100_000, 50), (1_000_000, 10), (1_000_000_000, 2))
"""For kernels up to this many nanoseconds: the number of kernels in a graph."""


Json = dict[str, Any]


class NoAnswerError(Exception):
    """A tenant ended early, or was not done long after its end."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of a tenant: one of the modes of `share_task`, with kernels of one length.

    Attributes:
        number: the mode's own number; None for a graph, which has more of short kernels, and for modes without one.
        place: the place in the sequence of random numbers at which the mode begins to draw.
    """

    mode: str
    kernel_ns: int
    number: int | None = None
    place: int = 0

    @property
    def each(self) -> int:
        """The mode's own number."""
        if self.number is not None:
            return self.number
        if self.mode != "graph":
            return 1
        return next(kernels for longest_ns, kernels in GRAPHS if self.kernel_ns <= longest_ns)

    @property
    def launch_ns(self) -> int:
        """The length of one launch on the GPU, which cannot be cut."""
        return self.kernel_ns * (self.each if self.mode == "graph" else 1)

    @property
    def name(self) -> str:
        """The work's name, for example `async/20us`."""
        return f"{self.mode}/{kernel_name(self.kernel_ns)}"


def kernel_name(kernel_ns: int) -> str:
    """The kernel's name, for example `20us`."""
    return f"{kernel_ns // 1000}us" if kernel_ns < 1_000_000 else f"{kernel_ns // 1_000_000}ms"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container of one process; it works from `begin_s` to `end_s` of the run, None for the run's end.

    Attributes:
        gpus: the GPUs of the node that it sees; more than one on emulated nodes only.
    """

    name: str
    work: Workload
    request_pct: int = 0
    limit_pct: int = 100
    begin_s: float = 0.0
    end_s: float | None = None
    gpus: tuple[int, ...] = (0,)
    line_mib: int = LINE_MIB


@dataclass(frozen=True, slots=True)
class TenantResult:
    """The results of one tenant, by its own answer and by the book.

    Attributes:
        tracks: one for each of its GPUs.
    """

    tenant: Tenant
    answer: Json
    tracks: tuple[Track, ...]

    @property
    def track(self) -> Track:
        """The track on the tenant's first GPU."""
        return self.tracks[0]

    def share_pct(self, begin_ns: int, end_ns: int) -> float:
        """The tenant's share, on average over its GPUs."""
        return fmean(track.share_pct(begin_ns, end_ns) for track in self.tracks)

    @property
    def throughput(self) -> float:
        """Kernels per second, until the last was done."""
        return self._per_s("kernels")

    @property
    def steps_per_s(self) -> float:
        """Steps per second, for modes that count steps."""
        return self._per_s("steps")

    def _per_s(self, what: str) -> float:
        took_ns: int = self.answer["ended_ns"] - self.answer["began_ns"]
        return float(self.answer[what]) * 1e9 / took_ns


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of some tenants beside each other."""

    begin_ns: int
    end_ns: int
    tenants: tuple[TenantResult, ...]
    load: float
    """The machine's load average at the end."""


class TenantProcess:
    """One running `share_task`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self, patience_s: float = PATIENCE_S) -> str:
        """The next line that the process prints.

        Raises:
            NoAnswerError: it ended, or printed nothing in time.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(patience_s):
                text = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            raise NoAnswerError(f"process {self.pid} said nothing in {patience_s:.0f} s") from None
        if not text:
            raise NoAnswerError(f"process {self.pid} ended with {await self._process.wait()}")
        return text

    def order(self, command: str) -> None:
        """Send the process a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def work(self, work: Workload, begin_ns: int, end_ns: int) -> Json:
        """Order work at a future time; returns the answer."""
        self.order(f"{work.mode} {work.kernel_ns} {begin_ns} {end_ns} {work.each} {work.place}")
        answer: Json = json.loads(await self.line((end_ns - time.monotonic_ns()) / 1e9 + PATIENCE_S))
        return answer

    async def end(self) -> None:
        """Let the process end, and kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
