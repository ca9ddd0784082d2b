"""The real broker and the real library hold shares of compute time, as the emulator's book shows.

The tests wait for a span with the expected shares. A busy machine delays programs and broker, and unused time
belongs to no container.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from bench.hook.share.figures import Track
from bench.hook.share.shared_node import SharedNode, shared_node, track_of
from bench.hook.share.tenants import LINE_MIB, Json, TenantProcess, Workload
from plimsoll.broker.pages import LATE_NS
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from tests.hook.broker.conftest import MAIN
from tests.hook.lib.program import MIB
from tests.servers.waiting import PATIENCE_S

MS = 1_000_000
WORK = Workload("async", MS)
SPAN_S = 2.0
ENDLESS_S = 3600.0
ONE, TWO = PodUid("one"), PodUid("two")


@pytest.fixture(name="here")
async def _here(tmp_path: Path) -> AsyncIterator[SharedNode]:
    async with shared_node(tmp_path, None, audit_s="3600", log_level="info") as here:
        yield here


def _sharing(here: SharedNode, pod: PodUid, share_pct: int, limit_pct: int = 100) -> Register:
    line = Line(
        gpu=GpuUuid(here.node().uuids[0]),
        line_bytes=LINE_MIB * MIB,
        share_pct=share_pct,
        limit_pct=limit_pct,
    )
    lines = ContainerLines(name=MAIN, lines=(line,))
    return Register(pod=pod, namespace="default", name="train", containers=(lines,))


class Cast:
    """Programs in containers, and their readings in the book."""

    def __init__(self, here: SharedNode, stack: contextlib.AsyncExitStack, book: list[Json]) -> None:
        self.here = here
        self.book = book
        self._stack = stack
        self._working: dict[int, asyncio.Task[Json]] = {}

    async def start(self, pod: PodUid, share_pct: int, limit_pct: int = 100) -> TenantProcess:
        """Start another program in a container with this registration."""
        await self.here.broker.client.register(_sharing(self.here, pod, share_pct, limit_pct))
        return await self._stack.enter_async_context(self.here.started(pod, self.here.node()))

    def work(self, *processes: TenantProcess, seconds: float = ENDLESS_S) -> None:
        """Let the programs work for this long; by default for as long as the test takes."""
        begin_ns = time.monotonic_ns() + 50 * MS
        end_ns = begin_ns + int(seconds * 1e9)
        for process in processes:
            doing = process.work(WORK, begin_ns, end_ns)
            self._working[process.pid] = asyncio.create_task(doing, name=f"work of {process.pid}")

    async def until(self, holds: Callable[[Sequence[float]], bool], *processes: TenantProcess) -> None:
        """Wait for a span in which the shares, in percent, meet a condition."""
        seen: list[list[float]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not seen or not holds(seen[-1]):
                    seen.append(await self._shares_pct(*processes))
        except TimeoutError:
            pytest.fail(f"not reached in {PATIENCE_S} s; seen {seen}")

    async def until_shares(self, wanted: Sequence[float], within: float, *processes: TenantProcess) -> None:
        """Wait for a span in which the programs have these shares, each within some points."""
        await self.until(lambda seen: seen == pytest.approx(wanted, abs=within), *processes)

    async def _shares_pct(self, *processes: TenantProcess) -> list[float]:
        begin_ns = time.monotonic_ns()
        await asyncio.sleep(SPAN_S + 0.1)
        return [
            self._track(process).share_pct(begin_ns, begin_ns + int(SPAN_S * 1e9)) for process in processes
        ]

    def _track(self, process: TenantProcess) -> Track:
        return track_of({}, self.book, process.pid)

    async def done(self, process: TenantProcess) -> None:
        """Wait until the program has done its work; the process stays."""
        await self._working[process.pid]

    async def finish(self) -> None:
        """End the programs that still work, as they would go on."""
        for pid, working in self._working.items():
            if not working.done():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*self._working.values(), return_exceptions=True)


@pytest.fixture(name="cast")
async def _cast(here: SharedNode) -> AsyncIterator[Cast]:
    async with contextlib.AsyncExitStack() as stack, here.watched() as book:
        cast = Cast(here, stack, book)
        yield cast
        await cast.finish()


async def test_two_programs_have_what_their_containers_requested(cast: Cast) -> None:
    """Two greedy programs execute for their requests' parts of the time."""
    small, big = await cast.start(ONE, 30), await cast.start(TWO, 70)
    cast.work(small, big)
    await cast.until_shares([30, 70], 5, small, big)


async def test_a_lone_program_is_held_to_its_limit(cast: Cast) -> None:
    """A greedy program alone on the GPU executes for its limit's part of the time."""
    alone = await cast.start(ONE, 20, 40)
    cast.work(alone)
    await cast.until_shares([40], 4, alone)


async def test_a_program_that_comes_after_another_is_held_to_the_limit(cast: Cast) -> None:
    """A container's second program, which starts when the first one has no more work, gets the limit and no more."""
    first = await cast.start(ONE, 20, 40)
    cast.work(first, seconds=1)
    await cast.done(first)
    second = await cast.start(ONE, 20, 40)
    cast.work(second)
    await cast.until_shares([40], 15, second)  # and not all of the GPU


async def test_a_limit_reaches_a_program_that_had_none(cast: Cast) -> None:
    """A program alone behind an open gate is held to a limit once its container gets one."""
    alone = await cast.start(ONE, 20)
    cast.work(alone)
    await cast.until(lambda used: used[0] > 90, alone)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 20, 40))
    await cast.until_shares([40], 15, alone)  # and not all of the GPU


async def test_changed_terms_reach_a_program_at_work(cast: Cast) -> None:
    """While two programs work, one's request and limit change, and the book shows the new shares."""
    one, two = await cast.start(ONE, 20), await cast.start(TWO, 30)
    cast.work(one, two)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 70, 80))
    await cast.until_shares([70, 30], 6, one, two)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 20, 25))
    await cast.until_shares([25, 75], 6, one, two)


async def test_two_programs_of_one_container_have_one_budget(cast: Cast) -> None:
    """Two programs of one container together get their container's share beside a third program elsewhere."""
    one = await cast.start(ONE, 40)
    two = await cast.start(ONE, 40)
    other = await cast.start(TWO, 60)
    cast.work(one, two, other)

    await cast.until_shares([20, 20, 60], 6, one, two, other)


async def test_programs_outlive_the_broker_and_are_held_again(cast: Cast) -> None:
    """Two programs go on while their broker is replaced, are held again, and the gap is announced for each."""
    small, big = await cast.start(ONE, 20), await cast.start(TWO, 80)
    cast.work(small, big)
    await cast.until_shares([20, 80], 6, small, big)
    await cast.here.broker.kill()
    # Where the kill leaves no gate shut, the card's own slices decide before the broker counts as lost.
    await asyncio.sleep(LATE_NS / 1e9)  # only elapsed time shows the library that no beat comes
    await cast.until(lambda used: min(used) > 30, small, big)
    await cast.here.broker.start()
    await cast.until_shares([20, 80], 6, small, big)
    told = [entry for entry in cast.here.broker.journaled() if entry.what == "unenforced"]
    assert sorted(entry.pid for entry in told) == sorted([small.pid, big.pid])
