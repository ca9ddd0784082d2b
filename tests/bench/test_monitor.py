"""The monitor's truth run and its fleet, in small, find nothing that must not be."""

import tempfile
from pathlib import Path

import pytest

from bench.monitor import fleet, truth

pytestmark = pytest.mark.slow


async def test_every_task_has_its_events_though_every_part_is_killed() -> None:
    """By the emulator's book each task starts and exits once, and each `loaded` is right, through kills of each part.

    Memory that stands still demands no `loaded` here: on a busy machine nobody knows how long that takes.
    """
    plan = truth.TruthPlan(12.0, kills=1, workers=3, unhooked_s=None, plateau_s=None, holds_s=(0.1, 1.5))
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:  # sockets have short paths
        found = await truth.run(Path(folder), plan)
    assert found.verdict.all == []
    assert not found.is_behind
    assert found.failed == 0
    assert found.hooked > 0


async def test_reports_of_many_monitors_reach_the_list_in_order() -> None:
    """The stream has every report in each node's order, and the placer's list has each node's newest."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        found = await fleet.measure(Path(folder), fleet.Scale(nodes=20, steady_s=1.0, burst=100))
    assert found["fleet_events"] >= 20 + 1 + 100
    assert [found[f"fleet_{name}"] for name in ("lost", "out_of_order", "not_in_list")] == [0, 0, 0]
    assert min(found["score_lag_ms_p99"], found["events_per_s"]) > 0
