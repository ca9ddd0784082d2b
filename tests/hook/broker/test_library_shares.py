"""Shares of compute time, held to by the real broker and the real library, and read from the emulator's own book."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.share_figures import Track
from bench.share_place import LINE_BYTES, Json, Place, Process, Work, compiled, place
from plimsoll.brokerwire import ContainerLines, Line, Register
from plimsoll.names import GpuUuid, PodUid
from tests.hook.broker.conftest import DEADLINE_S, MAIN

MS = 1_000_000
WORK = Work("async", MS)
ONE, TWO, THREE = PodUid("one"), PodUid("two"), PodUid("three")


@pytest.fixture(name="program", scope="module")
def _program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"))


@pytest.fixture(name="here")
async def _here(program: Path, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(program, tmp_path, None, audit_s="3600", log_level="info") as here:
        yield here


def _sharing(
    here: Place, pod: PodUid, share_pct: int, limit_pct: int = 100, *, whole: bool = False
) -> Register:
    line = Line(
        gpu=GpuUuid(here.node().uuids[0]), line_bytes=LINE_BYTES, share_pct=share_pct, limit_pct=limit_pct
    )
    lines = ContainerLines(name=MAIN, lines=(line,), whole=whole)
    return Register(pod=pod, namespace="default", name="train", containers=(lines,))


class Cast:
    """Programs that run in containers, and what the book says of them."""

    def __init__(self, here: Place, stack: contextlib.AsyncExitStack, book: list[Json]) -> None:
        self.here = here
        self.book = book
        self._stack = stack
        self._working: list[asyncio.Task[Json]] = []

    async def start(
        self, pod: PodUid, share_pct: int, limit_pct: int = 100, *, whole: bool = False
    ) -> Process:
        """One more program, in a container that is registered so."""
        await self.here.broker.client.register(_sharing(self.here, pod, share_pct, limit_pct, whole=whole))
        return await self._stack.enter_async_context(self.here.started(pod, self.here.node()))

    def work(self, process: Process, seconds: float, work: Work = WORK) -> None:
        """Set it to work for so long."""
        begin_ns = time.monotonic_ns() + 50 * MS
        doing = process.work(work, begin_ns, begin_ns + int(seconds * 1e9))
        self._working.append(asyncio.create_task(doing, name=f"work of {process.pid}"))

    async def shares_pct(self, seconds: float, *processes: Process) -> list[float]:
        """What each of them had from now on, for so long."""
        begin_ns = time.monotonic_ns()
        await asyncio.sleep(seconds + 0.1)
        return [
            self._track(process).share_pct(begin_ns, begin_ns + int(seconds * 1e9)) for process in processes
        ]

    def _track(self, process: Process) -> Track:
        rows = [
            (line["time_ns"], told["unfinished_ns"], told["busy_ns"])
            for line in self.book
            for told in line["processes"]
            if told["pid"] == process.pid
        ]
        return Track(*zip(*rows, strict=True))

    async def finish(self) -> None:
        """Wait until all work is done; who was killed does not answer."""
        await asyncio.wait(self._working, timeout=DEADLINE_S)
        await asyncio.gather(*self._working, return_exceptions=True)


@pytest.fixture(name="cast")
async def _cast(here: Place) -> AsyncIterator[Cast]:
    async with contextlib.AsyncExitStack() as stack, here.watched() as book:
        cast = Cast(here, stack, book)
        yield cast
        await cast.finish()


async def test_two_programs_have_what_their_containers_requested(cast: Cast) -> None:
    """By the book, two greedy programs are at work for their requests' parts of the time."""
    small, big = await cast.start(ONE, 30), await cast.start(TWO, 70)
    cast.work(small, 5)
    cast.work(big, 5)
    assert await cast.shares_pct(4, small, big) == pytest.approx([30, 70], abs=5)


async def test_a_lone_program_is_held_to_its_limit(cast: Cast) -> None:
    """By the book, a greedy program with the GPU for itself is at work for its limit's part of the time."""
    alone = await cast.start(ONE, 20, 40)
    cast.work(alone, 5)
    assert await cast.shares_pct(4, alone) == pytest.approx([40], abs=4)


async def test_a_program_that_comes_after_another_is_held_to_the_limit(cast: Cast) -> None:
    """A container's first program may launch and has nothing to do when its second one starts: it has no more."""
    first = await cast.start(ONE, 20, 40)
    cast.work(first, 1)
    await cast.finish()
    second = await cast.start(ONE, 20, 40)
    cast.work(second, 5)
    assert await cast.shares_pct(4, second) == pytest.approx([40], abs=15)  # and not all of it


async def test_a_limit_reaches_a_program_that_had_none(cast: Cast) -> None:
    """A program alone behind an open gate, of which the broker never heard, is given a limit and held to it."""
    alone = await cast.start(ONE, 20)
    cast.work(alone, 8)
    await asyncio.sleep(1)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 20, 40))
    await asyncio.sleep(1)
    assert await cast.shares_pct(3, alone) == pytest.approx([40], abs=15)  # likewise


async def test_changed_terms_reach_a_program_at_work(cast: Cast) -> None:
    """While two programs work, request and limit of one are changed, and the book shows it from then on."""
    one, two = await cast.start(ONE, 20), await cast.start(TWO, 30)
    cast.work(one, 9)
    cast.work(two, 9)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 70, 80))
    await asyncio.sleep(1)
    assert await cast.shares_pct(3, one, two) == pytest.approx([70, 30], abs=6)
    await cast.here.broker.client.register(_sharing(cast.here, ONE, 20, 25))
    await asyncio.sleep(1)
    assert await cast.shares_pct(3, one, two) == pytest.approx([25, 75], abs=6)


async def test_two_programs_of_one_container_have_one_budget(cast: Cast) -> None:
    """Two programs of one container beside a third elsewhere: the two together have what their container may."""
    one = await cast.start(ONE, 40)
    two = await cast.start(ONE, 40)
    other = await cast.start(TWO, 60)
    for process in (one, two, other):
        cast.work(process, 6)
    used = await cast.shares_pct(4, one, two, other)
    assert used[2] == pytest.approx(60, abs=6)
    assert used[:2] == pytest.approx([40, 40], abs=10)  # at work at the same time, in the same turns


async def test_a_program_that_is_stopped_at_work_does_not_stop_others(cast: Cast) -> None:
    """A program is stopped at its turn, with work queued: the other goes on, and both share again after that."""
    stopped, other = await cast.start(ONE, 50), await cast.start(TWO, 50)
    cast.work(stopped, 12)
    cast.work(other, 12)
    await asyncio.sleep(1)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        used = await cast.shares_pct(4, other)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert used[0] > 60
    await asyncio.sleep(2)
    assert await cast.shares_pct(3, stopped, other) == pytest.approx([50, 50], abs=12)


async def test_a_program_that_is_killed_at_work_gives_way(cast: Cast) -> None:
    """A program is killed while its container shares a GPU: the other has all of it."""
    killed, other = await cast.start(ONE, 50), await cast.start(TWO, 50)
    cast.work(killed, 10)
    cast.work(other, 6)
    await asyncio.sleep(1)
    os.kill(killed.pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    used = await cast.shares_pct(3, other)
    assert used[0] > 95


async def test_programs_outlive_the_broker_and_are_held_again(cast: Cast) -> None:
    """Killed and replaced while two programs work: they go on, are held again, and the gap is told of each."""
    small, big = await cast.start(ONE, 20), await cast.start(TWO, 80)
    cast.work(small, 16)
    cast.work(big, 16)
    await asyncio.sleep(1)
    await cast.here.broker.kill()
    freely = await cast.shares_pct(4, small, big)
    assert min(freely) > 30  # as the card's own slices have it, no longer as requested
    await cast.here.broker.start()
    await asyncio.sleep(3)
    assert await cast.shares_pct(4, small, big) == pytest.approx([20, 80], abs=6)
    told = [entry for entry in cast.here.broker.journaled() if entry.what == "unenforced"]
    assert sorted(entry.pid for entry in told) == sorted([small.pid, big.pid])


async def test_whole_gpus_are_not_metered(cast: Cast) -> None:
    """A program whose container owns its GPU works on as if alone, whatever others on it were promised."""
    whole = await cast.start(ONE, 0, whole=True)
    cast.work(whole, 4)
    other = await cast.start(TWO, 20, 30)
    cast.work(other, 4)
    used = await cast.shares_pct(3, whole, other)
    assert used[0] > 97
    assert used[1] < 35
