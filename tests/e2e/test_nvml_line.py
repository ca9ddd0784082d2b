"""NVML's figure of a container stays under its line, contexts and modules included.

The processes' own counts hold the line. The monitor measures the memory that they cannot count, and the broker
takes it off the line. `tests/gpu` shows the same on a GPU.
"""

import os
import sys
from pathlib import Path

import pytest

from plimsoll.quantity import GIB, MIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.gpu.watched import BLOCK_BYTES, watched
from tests.monitor.harness import EMULATOR

LINE_BYTES = GIB
CONTEXT_MIB, MODULE_MIB = 96, 64
WAYS = ["alloc", "array", "async", "create", "graph", "managed", "mipmap", "pitch"]
PROGRAM = [sys.executable, "-m", "tests.gpu.programs.driver", str(MODULE_MIB)]


@pytest.fixture(name="surroundings")
def _surroundings(tmp_path: Path) -> dict[str, str]:
    """One emulated GPU whose contexts and modules take memory that no call of the program requests."""
    node = tmp_path / "node.conf"
    node.write_text(f"[gpu 0]\nmemory = 8Gi\nreserved = 64Mi\ncontext = {CONTEXT_MIB}Mi\nmodule = 2Mi\n")
    return {"PATH": os.environ["PATH"], "PLIMSOLL_EMULATOR": str(node), "LD_LIBRARY_PATH": str(EMULATOR)}


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
            # The rest is the context, the module, and the 32 MiB by which a pool grows.
            assert full["held_bytes"] >= LINE_BYTES - (CONTEXT_MIB + MODULE_MIB + 32 + 4) * MIB
            assert full["held_bytes"] < await container.seen() <= LINE_BYTES + BLOCK_BYTES
            assert (await program.go_on("done"))["opened"] == WAYS
        assert container.peak_bytes <= LINE_BYTES + BLOCK_BYTES
        assert await container.violations() == 0


async def test_two_processes_share_one_line(
    tmp_path: Path, nats: EmbeddedServer, surroundings: dict[str, str]
) -> None:
    """Two contexts and two modules count against one line, though neither process knows the other's module."""
    async with watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container:
        async with container.running(PROGRAM) as first:
            await first.phase("warm")
            await container.learned()
            async with container.running(PROGRAM) as second:
                await second.phase("warm")
                await container.settled()
                for program in (first, second):
                    assert (await program.go_on("full"))["refused"] == WAYS
                assert LINE_BYTES - 64 * MIB < await container.seen() <= LINE_BYTES + BLOCK_BYTES
                for program in (first, second):
                    assert (await program.go_on("done"))["opened"] == WAYS
        assert container.peak_bytes <= LINE_BYTES + BLOCK_BYTES
        assert await container.violations() == 0
