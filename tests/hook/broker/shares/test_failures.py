"""The gates after a failure of the share scheduler."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import Joined, ShareEvent, ShareInstruction, Ticked
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.shares import ticks as shares
from hook.broker.shares.gate_files import GateConstants, open_gate
from hook.broker.shares.tenants import open_counts
from hook.broker.shares.ticks import Shares
from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT, Counts
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import GIB, GPUS, MAIN, until
from tests.hook.broker.gateview import GateView
from tests.logs import capture_logs

KEY = ContainerKey(PodUid("one"), MAIN)
LINES = ContainerLines(name=MAIN, lines=(Line(gpu=GPUS[0], line_bytes=GIB, share_pct=20, limit_pct=40),))


class _Failing(Scheduler):
    """A scheduler that fails at every container that joins."""

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        if isinstance(event, Joined):
            raise ZeroDivisionError
        return super().handle(event)


class _Blind(Scheduler):
    """A scheduler that fails at every tick."""

    @property
    def needs_ticks(self) -> bool:
        return True

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        if isinstance(event, Ticked):
            raise ZeroDivisionError
        return super().handle(event)


class _Made:
    """Makes failing schedulers until the test switches to working ones."""

    def __init__(self, sort: type[Scheduler]) -> None:
        self.sort = sort

    def __call__(self) -> Scheduler:
        return self.sort(ShareSettings())


@asynccontextmanager
async def _joined(made: Callable[[], Scheduler], directory: Path) -> AsyncIterator[GateView]:
    held = Shares(made, 0.005, lambda _: {}, lambda _: None, lambda _: None)
    try:
        gate = await asyncio.to_thread(open_gate, directory, GateConstants(10_000, 100_000, 2000))
        held.join(KEY, LINES, gate, None)
        yield await asyncio.to_thread(GateView, directory)
    finally:
        held.close()


@pytest.mark.parametrize("sort", [_Failing, _Blind])
async def test_a_scheduler_that_fails_for_ever_leaves_the_gates_open(
    tmp_path: Path, sort: type[Scheduler]
) -> None:
    """After some attempts of a scheduler that fails anywhere, all gates open, and the log says so."""
    with capture_logs() as lines:
        async with _joined(_Made(sort), tmp_path) as gate:

            async def is_said() -> bool:
                return any(line["event"] == "shares_not_held" for line in lines)

            await until(is_said, "given up")
            assert gate.state == GATE_OPEN
    failed = [line for line in lines if line["event"] == "scheduler_failed"]
    assert len(failed) == shares.FAILURES_MOST + 1
    assert all(line["value"] and line["remedy"] for line in failed)


async def test_shares_are_held_again_once_the_scheduler_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rest the scheduler is tried again, and a container with a limit is held to it."""
    monkeypatch.setattr(shares, "REST_S", 0.05)
    made = _Made(_Failing)
    with capture_logs():
        async with _joined(made, tmp_path) as gate:
            assert gate.state == GATE_OPEN
            await asyncio.sleep(0.1)
            assert gate.state == GATE_OPEN
            made.sort = Scheduler

            async def is_metered() -> bool:
                return gate.state == GATE_METERED

            monkeypatch.setattr(shares, "FAILURES_S", 0.0)
            await until(is_metered, "the container is metered")


class _FailingOnce(Scheduler):
    """A scheduler that fails at its first tick, and whose successor does not."""

    has_failed = False

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        if isinstance(event, Ticked) and not _FailingOnce.has_failed:
            _FailingOnce.has_failed = True
            raise ZeroDivisionError
        return super().handle(event)


async def test_a_scheduler_that_fails_once_is_replaced_by_one_that_knows_as_much(tmp_path: Path) -> None:
    """A new scheduler gets all containers and processes, and holds a process that works past its limit."""
    counts = tmp_path / "counts"
    await asyncio.to_thread(_be_at_work, counts)
    held = Shares(_Made(_FailingOnce), 0.005, lambda _: {}, lambda _: None, lambda _: None)
    with capture_logs() as lines:
        gate = await asyncio.to_thread(open_gate, tmp_path, GateConstants(10_000, 100_000, 2000))
        held.join(KEY, LINES, gate, await asyncio.to_thread(open_counts, counts))
        view = await asyncio.to_thread(GateView, tmp_path)

        async def is_shut() -> bool:
            return view.state == GATE_SHUT

        await until(is_shut, "the process is held to its limit")
    held.close()
    assert [line["event"] for line in lines] == ["scheduler_failed"]


def _be_at_work(counts: Path) -> None:
    """Write a burst that began long ago."""
    page = Counts()
    page.slots[0].owner = page.works[0].owner = 7
    work = page.works[0].gpus[0]
    work.launched_ns = work.executed_ns = 1
    work.looked_ns = 1 << 62  # the process never counts as stopped
    counts.write_bytes(bytes(page))
