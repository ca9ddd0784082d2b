"""The broker reads its tenants' words as seldom as their work and its own share of a core allow."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import ShareEvent, ShareInstruction, Ticked
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.shares.gate_files import GateConstants, open_gate
from hook.broker.shares.tenants import open_counts
from hook.broker.shares.ticks import IDLE_TICK_S, Shares
from plimsoll.broker.pages import Counts
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import GIB, GPUS, MAIN, until

KEY: Final = ContainerKey(PodUid("one"), MAIN)
LIMITED: Final = ContainerLines(
    name=MAIN, lines=(Line(gpu=GPUS[0], line_bytes=GIB, share_pct=20, limit_pct=40),)
)
TICK_S: Final = 0.005


class _Timed(Scheduler):
    """Records the times of its ticks; each tick takes this much processor time."""

    def __init__(self, laborious_s: float) -> None:
        super().__init__(ShareSettings())
        self.laborious_s = laborious_s
        self.at_s: list[float] = []

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        if isinstance(event, Ticked):
            self.at_s.append(time.monotonic())
            end_s = time.thread_time() + self.laborious_s
            while time.thread_time() < end_s:
                pass
        return super().handle(event)

    async def have_passed(self, ticks: int) -> None:
        """Wait for this many ticks."""

        async def is_so() -> bool:
            return len(self.at_s) >= ticks

        await until(is_so, f"{ticks} ticks")


@asynccontextmanager
async def _metered(folder: Path, *, is_busy: bool, laborious_s: float = 0.0) -> AsyncIterator[_Timed]:
    """A container with a limit and one process, which has worked for long or never."""
    page = Counts()
    page.slots[0].owner = page.works[0].owner = 7
    work = page.works[0].gpus[0]
    work.launched_ns = work.executed_ns = int(is_busy)
    work.looked_ns = 1 << 62  # the process never counts as stopped
    await asyncio.to_thread((folder / "counts").write_bytes, bytes(page))
    scheduler = _Timed(laborious_s)
    held = Shares(lambda: scheduler, TICK_S, lambda _: {}, lambda _: None, lambda _: None)
    try:
        gate = await asyncio.to_thread(open_gate, folder, GateConstants(10_000, 100_000, 2000))
        held.join(KEY, LIMITED, gate, await asyncio.to_thread(open_counts, folder / "counts"))
        yield scheduler
    finally:
        held.close()


async def test_ticks_that_take_long_come_further_apart(tmp_path: Path) -> None:
    """Long ticks come further apart, so most of the broker's core is left for its other work."""
    async with _metered(tmp_path, is_busy=True, laborious_s=4 * TICK_S) as scheduler:
        await scheduler.have_passed(20)
        began_s, ran_s = time.monotonic(), time.thread_time()
        await scheduler.have_passed(40)
        assert time.thread_time() - ran_s < 0.6 * (time.monotonic() - began_s)


async def test_ticks_are_rare_while_nobody_has_work(tmp_path: Path) -> None:
    """A container without work costs the broker a quarter of one at work."""
    async with _metered(tmp_path, is_busy=False) as scheduler:

        async def is_at_rest() -> bool:
            return scheduler.is_at_rest

        await until(is_at_rest, "nobody has work")
        begun = len(scheduler.at_s) + 1
        await scheduler.have_passed(begun + 10)
        gaps_s = [later - sooner for sooner, later in pairwise(scheduler.at_s[begun:])]
        assert min(gaps_s) > 0.9 * IDLE_TICK_S


async def test_ticks_are_frequent_while_somebody_works(tmp_path: Path) -> None:
    """Ticks are frequent while a process works, so its work is charged soon."""
    async with _metered(tmp_path, is_busy=True) as scheduler:

        async def is_frequent() -> bool:
            return any(later - sooner < IDLE_TICK_S / 2 for sooner, later in pairwise(scheduler.at_s))

        await until(is_frequent, "ticks come one soon after the other")
