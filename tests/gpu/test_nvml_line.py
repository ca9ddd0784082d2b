"""NVML's figure of a program over the driver API: the test of `tests/e2e/test_nvml_line.py`, on a GPU."""

import sys
from pathlib import Path

import pytest

from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.gpu.watched import BLOCK_BYTES, watched

pytestmark = pytest.mark.gpu

LINE_BYTES = 4 * GIB
PROGRAM = [sys.executable, "-m", "tests.gpu.programs.driver"]
WAYS = ["alloc", "array", "async", "create", "graph", "managed", "mipmap", "pitch"]


async def test_every_way_of_allocating_together_stays_under_the_line(
    tmp_path: Path, nats: EmbeddedServer, surroundings: dict[str, str]
) -> None:
    """After all ways of allocating are refused NVML's figure is within the line, and the program goes on."""
    async with watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container:
        async with container.running(PROGRAM) as program:
            assert (await program.phase("warm"))["total_bytes"] == LINE_BYTES
            await container.settled()
            full = await program.go_on("full")
            assert full["refused"] == WAYS
            assert full["held_bytes"] >= LINE_BYTES - GIB
            assert await container.seen() <= LINE_BYTES + BLOCK_BYTES
            assert (await program.go_on("done"))["opened"] == WAYS
        assert container.peak_bytes <= LINE_BYTES + BLOCK_BYTES
        assert await container.violations() == 0


async def test_the_first_context_teaches_what_the_next_one_costs(
    tmp_path: Path, nats: EmbeddedServer, surroundings: dict[str, str]
) -> None:
    """Once the first process was measured, the next process's word has its context from the start."""
    async with (
        watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container,
        container.running(PROGRAM) as first,
    ):
        await first.phase("warm")
        await container.settled()
        await container.learned()
        context_bytes, before_bytes = int(container.page.context_bytes), container.words_bytes
        assert 0 < context_bytes <= container.used_bytes
        async with container.running(PROGRAM) as second:
            await second.phase("warm")
            assert container.words_bytes >= before_bytes + context_bytes
            await container.settled()
