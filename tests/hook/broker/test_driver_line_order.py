"""The driver's line is raised before the library's and lowered after it; a refusal is logged once for each cause.

A recorder stands in for the driver, because nobody outside of the broker sees the order of two steps, and to refuse.
Control groups are real.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hook.broker.core.enforcement import UNKNOWN_CONTEXT_BYTES
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.driver_lines import DriverLines
from plimsoll.ids import GpuUuid
from plimsoll.nvml.limits import MemoryLimit
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from tests.hook.broker.cgroups import cgroup_tree, make_container_group, make_pod_group
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, registration
from tests.logs import capture_logs

ROOM = UNKNOWN_CONTEXT_BYTES


class Recorder:
    """A driver that takes every limit, unless a test makes it refuse."""

    def __init__(self) -> None:
        self.limits: dict[tuple[GpuUuid, Path], int | None] = {}
        self.refusal = ""
        self.is_forgetful = False

    async def ask(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - as the thread
        """Do the work in some thread."""
        return await asyncio.to_thread(work, self)

    def limit_obstacles(self, _: Path) -> dict[GpuUuid, str]:
        """Both GPUs can be limited."""
        return dict.fromkeys(GPUS, "")

    def limit_of(self, gpu: GpuUuid, cgroup: Path) -> MemoryLimit:
        """The recorded limit."""
        return MemoryLimit(self.limits.get((gpu, cgroup)), 0)

    def limit(self, gpu: GpuUuid, cgroup: Path, hard_bytes: int | None) -> None:
        """Record a limit."""
        if self.refusal:
            raise NvmlAwayError(self.refusal)
        if not self.is_forgetful:
            self.limits[gpu, cgroup] = hard_bytes


class Bench:
    """A pod with 2 GiB on each of two GPUs, whose limits are set."""

    def __init__(self, root: Path) -> None:
        self.group = make_pod_group(root, POD)
        self.node = Node(Journal((), 100), (), "boot")
        self.register(2)
        self.driver = Recorder()
        self.lines = DriverLines(self.node, cast("DriverThread", self.driver), root, "both")

    def register(self, line_gib: int) -> None:
        """Register the pod with another line, as in a turn of the engine."""
        self.node.handle(registration(line_gib * GIB), 0.0)

    def line(self, group: Path | None = None) -> float | None:
        """A group's line on the first GPU, in GiB, without its room."""
        hard_bytes = self.driver.limits.get((GPUS[0], group or self.group))
        return None if hard_bytes is None else (hard_bytes - ROOM) / GIB


@pytest.fixture(name="bench")
async def _bench() -> AsyncIterator[Bench]:
    with cgroup_tree() as root:
        bench = Bench(root)
        await bench.lines.require()
        yield bench


@pytest.mark.parametrize(("line_gib", "meanwhile"), [(3, 3), (1, 2)])
async def test_the_higher_line_holds_during_a_change(bench: Bench, line_gib: int, meanwhile: int) -> None:
    """While the library's line changes, the driver's is the higher one of before and after."""
    assert bench.line() == 2
    async with bench.lines.changing(registration(line_gib * GIB)):
        assert bench.line() == meanwhile
        bench.register(line_gib)
    assert bench.line() == line_gib
    assert bench.driver.limits[GPUS[1], bench.group] == line_gib * GIB + ROOM


async def test_a_refused_change_leaves_the_line_as_it_was(bench: Bench) -> None:
    """If the broker refuses a registration, a line that was raised for it is lowered again."""
    with pytest.raises(ValueError, match="refused"):
        async with bench.lines.changing(registration(3 * GIB)):
            raise ValueError("refused")
    assert bench.line() == 2


async def test_a_restarted_container_has_its_line_in_its_new_group(bench: Bench) -> None:
    """Each id that the pod's status names gets the line; a group that ended is no error."""
    first = make_container_group(bench.group, "aaaa")
    await bench.lines.containers_run(POD, {MAIN: "containerd://aaaa"})
    assert bench.line(first) == 2
    first.rmdir()
    with capture_logs() as logs:
        await bench.lines.containers_run(POD, {MAIN: "containerd://bbbb"})
        second = make_container_group(bench.group, "bbbb")
        await bench.lines.settle_all()
    assert bench.line(second) == 2
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


async def test_a_limit_that_the_driver_refuses_is_logged_once(bench: Bench) -> None:
    """Each audit tries again, and only a new reason is logged again."""
    bench.driver.refusal = "the driver refuses: Insufficient Permissions"
    bench.register(4)
    with capture_logs() as logs:
        for _ in range(3):
            await bench.lines.settle_all()
    assert [(line["event"], line["gpu"]) for line in logs] == [("driver_line_not_set", gpu) for gpu in GPUS]
    assert logs[0]["effect"] == "the library alone holds it"
    said = [(one.enforcement, one.reason) for one in bench.lines.state()]
    assert said == [("preload", bench.driver.refusal)] * 2
    bench.driver.refusal = ""
    await bench.lines.settle_all()
    assert bench.line() == 4
    assert [one.enforcement for one in bench.lines.state()] == ["both"] * 2


async def test_a_limit_that_the_driver_forgets_is_not_claimed(bench: Bench) -> None:
    """If the driver takes a limit and shows none, the broker says so."""
    bench.driver.is_forgetful = True
    bench.driver.limits.clear()
    await bench.lines.settle_all()
    assert "shows none" in bench.lines.state()[0].reason
