"""The broker compares NVML's figures of processes with their own words about compute time."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from hook.broker.core.events import Unheld
from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import ShareOveruse, UnmetSpan
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.shares import ticks as shares
from hook.broker.shares.gate_files import GateConstants, open_gate
from hook.broker.shares.tenants import open_counts
from hook.broker.shares.ticks import Shares
from plimsoll.broker.pages import Counts
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import GpuUuid, PodUid, ProcessKey
from plimsoll.nvml.readings import ProcessUsage
from tests.hook.broker.conftest import GPUS, MAIN, until

KEY = ContainerKey(PodUid("one"), MAIN)
LINES = ContainerLines(name=MAIN, lines=(Line(gpu=GPUS[0], line_bytes=1, share_pct=20, limit_pct=40),))
LIAR, BRIEF, OWNER = ProcessKey(4711, 1), ProcessKey(4712, 1), 7


def _claim(counts: Path) -> None:
    """Two processes claim slots and write nothing about their work."""
    page = Counts()
    for slot, owner in ((0, OWNER), (1, OWNER + 1)):
        page.slots[slot].owner = page.works[slot].owner = owner
    counts.write_bytes(bytes(page))


async def test_a_process_that_hides_its_work_is_found_by_its_pid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that hides its work is found by its pid.

    NVML shows half of the GPU for it. Another process's excess lasts too short a time to count.
    """
    monkeypatch.setattr(shares, "COMPARE_S", 0.1)
    told: list[UnmetSpan | Unheld | ShareOveruse] = []

    async def ask() -> Mapping[tuple[GpuUuid, int], ProcessUsage]:
        spans_us = {LIAR.pid: 1_000_000, BRIEF.pid: 100_000}
        return {(GPUS[0], pid): ProcessUsage(pid, 50, 0, span_us) for pid, span_us in spans_us.items()}

    held = Shares(
        lambda: Scheduler(ShareSettings()),
        0.005,
        lambda _: {LIAR: OWNER, BRIEF: OWNER + 1},
        lambda _: None,
        told.append,
    )
    await asyncio.to_thread(_claim, tmp_path / "counts")
    gate = await asyncio.to_thread(open_gate, tmp_path, GateConstants(10_000, 100_000, 2000))
    held.join(KEY, LINES, gate, await asyncio.to_thread(open_counts, tmp_path / "counts"))
    comparing = asyncio.create_task(held.compare(ask))

    async def is_told() -> bool:
        return bool(told)

    await until(is_told, "the process is announced")
    comparing.cancel()
    held.close()
    assert told == [ShareOveruse(KEY, OWNER, GPUS[0], 50.0, 0.0)]


async def test_owners_that_nobody_knows_are_looked_for_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners that no process has cause one survey of the node and no second one for a while.

    A tenant may write any number of them.
    """
    monkeypatch.setattr("hook.broker.shares.tenants.UNKNOWN_S", 0.05)
    monkeypatch.setattr(shares, "SCAN_S", 0.02)
    surveyed: list[ContainerKey] = []
    held = Shares(lambda: Scheduler(ShareSettings()), 0.005, lambda _: {}, surveyed.append, lambda _: None)
    await asyncio.to_thread(_claim, tmp_path / "counts")
    gate = await asyncio.to_thread(open_gate, tmp_path, GateConstants(10_000, 100_000, 2000))
    held.join(KEY, LINES, gate, await asyncio.to_thread(open_counts, tmp_path / "counts"))

    async def is_surveyed() -> bool:
        return bool(surveyed)

    await until(is_surveyed, "the container is surveyed")
    await asyncio.sleep(0.3)  # about fifteen scans, none of which may survey again
    held.close()
    assert surveyed == [KEY]
