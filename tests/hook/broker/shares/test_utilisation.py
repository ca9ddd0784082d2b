"""The broker reads each process's compute time from the emulated driver."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from hook.broker.shares.utilisation import SPAN_US
from tests.monitor.emulated import GPU_0, GPU_1, program, write_node
from tests.servers.waiting import PATIENCE_S

Row = tuple[str, int, float, int, int]
"""GPU, pid, percent, and the span in microseconds since the epoch."""


class Asker:
    """A process that reads the utilisation as the broker does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def use(self) -> list[Row]:
        """The use of every process since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"use\n")
        async with asyncio.timeout(PATIENCE_S):
            return [tuple(row) for row in json.loads(await self.process.stdout.readline())]


@contextlib.asynccontextmanager
async def asker(environment: Mapping[str, str], errors: Path) -> AsyncIterator[Asker]:
    """A running asker, which ends cleanly."""
    with errors.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.hook.broker.shares.asker"),
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    yield Asker(process)
    async with asyncio.timeout(PATIENCE_S):
        await process.communicate(b"")
    assert process.returncode == 0


async def test_each_process_has_its_percent_of_the_spans_that_follow_one_another(tmp_path: Path) -> None:
    """A process that always works has all of its GPU, two share theirs, and one that rests is absent.

    All spans of a GPU follow each other and lie in the past.
    """
    environment = write_node(tmp_path)
    async with (
        program(environment) as one,
        program(environment) as two,
        program(environment, 1) as alone,
        program(environment, 1),
        asker(environment, tmp_path / "errors") as reader,
    ):
        for each in (one, two, alone):
            await each.do("launch 60")
        await asyncio.sleep(0.5)
        await reader.use()
        spans: dict[str, tuple[int, int]] = {}
        for _ in range(3):
            await asyncio.sleep(1)
            rows = await reader.use()
            used = {(gpu, pid): busy_pct for gpu, pid, busy_pct, *_ in rows}
            assert used.keys() == {
                (GPU_0, one.process.pid), (GPU_0, two.process.pid), (GPU_1, alone.process.pid),
            }  # fmt: skip
            assert abs(used[GPU_0, one.process.pid] - 50) <= 5
            assert abs(used[GPU_0, two.process.pid] - 50) <= 5
            assert used[GPU_1, alone.process.pid] >= 98
            for gpu, _, _, began_us, ended_us in rows:
                known_us = spans.get(gpu, (began_us, ended_us))
                follows = (began_us, ended_us) == known_us or abs(began_us - known_us[1]) < 1000
                assert follows or ended_us - began_us > 0.9 * SPAN_US  # longer pauses than that have a gap
                assert began_us < ended_us <= time.time_ns() // 1000
                spans[gpu] = (began_us, ended_us)


async def test_a_driver_that_is_not_there_costs_one_line(tmp_path: Path) -> None:
    """Without a driver no process has used anything, and repeated calls log one line."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    async with asker({"LD_LIBRARY_PATH": str(tmp_path)}, tmp_path / "errors") as reader:
        assert [await reader.use() for _ in range(3)] == [[]] * 3
    assert (tmp_path / "errors").read_text().count("utilisation_not_read") == 1


async def test_a_gpu_on_which_nobody_works_is_no_error(tmp_path: Path) -> None:
    """A GPU without work is no error, though NVML returns one.

    The next span covers the latest two seconds at most.
    """
    environment = write_node(tmp_path)
    async with program(environment) as one, asker(environment, tmp_path / "errors") as reader:
        assert [await reader.use() for _ in range(3)] == [[]] * 3
        await one.do("launch 60")
        await asyncio.sleep(1)
        [(gpu, pid, _, began_us, ended_us)] = await reader.use()
        assert (gpu, pid) == (GPU_0, one.process.pid)
        assert 0 < ended_us - began_us <= 2_100_000
    assert (tmp_path / "errors").read_bytes() == b""
