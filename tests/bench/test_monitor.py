"""The monitor's truth run in small finds nothing that must not be."""

import tempfile
from pathlib import Path

from bench.monitor import truth


async def test_every_task_has_its_events_though_every_part_is_killed() -> None:
    """By the emulator's book each task starts and exits once, and each `loaded` is right, through kills of each part.

    Memory that stands still demands no `loaded` here: on a busy machine nobody knows how long that takes.
    """
    plan = truth.Plan(12.0, kills=1, workers=3, unhooked_s=None, plateau_s=None, holds_s=(0.1, 1.5))
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:  # sockets have short paths
        found = await truth.run(Path(folder), plan)
    assert found.verdict.all == []
    assert not found.is_behind
    assert found.failed == 0
    assert found.hooked > 0
