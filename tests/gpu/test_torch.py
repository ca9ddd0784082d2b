"""PyTorch as people use it, each program held to 4 GiB: `make gpu`. Deselected elsewhere.

What is seen is the programs' own view, and NVML's, read from outside, while a real monitor and broker take what the
programs cannot count off the line: contexts, modules, kernels that were compiled meanwhile.
"""

from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.quantity import GIB
from tests.gpu.watched import BLOCK_BYTES, Task, watched

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

LINE_BYTES = 4 * GIB
OVERHEAD_BYTES = 3 * GIB // 2
"""What context, modules and workspaces may take of a line at most, so that a line is also good for something."""

ALLOCATORS = {
    "native": "backend:native",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
}
PROGRAMS = [
    ("eager", "native"),
    ("eager", "expandable"),
    ("eager", "async"),
    ("compiled", "native"),
    ("graphs", "native"),
    ("graphs", "expandable"),
    ("graphs", "async"),
    ("workspaces", "native"),
]


def command(python: str, program: str) -> list[str]:
    """How one of the programs is started."""
    return [python, "-m", f"tests.gpu.programs.{program}"]


def settings(allocator: str) -> dict[str, str]:
    """PyTorch's setting of its allocator: by the name of 2.9 and later, and by the one before."""
    chosen = ALLOCATORS[allocator]
    return {"PYTORCH_ALLOC_CONF": chosen, "PYTORCH_CUDA_ALLOC_CONF": chosen}


def check_view(warm: dict[str, Any], allocator: str) -> None:
    """The program sees its line as the whole card, and runs on the allocator that it was to."""
    assert warm["total_bytes"] == LINE_BYTES
    assert warm["is_finite"]
    assert warm["allocator"] == ("cudaMallocAsync" if allocator == "async" else "native")


async def check_full(program: Task) -> int:
    """It fills its line until PyTorch's own error; returns what it could get."""
    full = await program.go_on("full")
    assert full["refused"] == "OutOfMemoryError"
    return int(full["held_bytes"])


@pytest.mark.parametrize(("program", "allocator"), PROGRAMS)
async def test_a_program_is_held_to_its_line_and_goes_on(
    tmp_path: Path,
    nats: EmbeddedServer,
    surroundings: dict[str, str],
    torch_python: str,
    program: str,
    allocator: str,
) -> None:
    """It sees 4 GiB, is refused past them by torch.cuda.OutOfMemoryError, and then works as before."""
    async with watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container:
        async with container.running(command(torch_python, program), **settings(allocator)) as task:
            check_view(await task.phase("warm"), allocator)
            await container.settled()
            held_bytes = await check_full(task)
            assert held_bytes >= LINE_BYTES - OVERHEAD_BYTES
            assert held_bytes < await container.seen() <= LINE_BYTES + BLOCK_BYTES
            assert (await task.go_on("done"))["is_finite"]
        assert container.peak_bytes <= LINE_BYTES + BLOCK_BYTES
        assert await container.violations() == 0


@pytest.mark.parametrize("allocator", ALLOCATORS)
async def test_two_programs_in_one_container_share_its_line(
    tmp_path: Path, nats: EmbeddedServer, surroundings: dict[str, str], torch_python: str, allocator: str
) -> None:
    """Together they stay under 4 GiB, both contexts included; whoever finds nothing left goes on once there is."""
    async with watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container:
        eager = command(torch_python, "eager")
        async with (
            container.running(eager, **settings(allocator)) as first,
            container.running(eager, **settings(allocator)) as second,
        ):
            for task in (first, second):
                check_view(await task.phase("warm"), allocator)
            await container.settled()
            held_bytes = await check_full(first) + await check_full(second)
            assert held_bytes >= LINE_BYTES - 2 * OVERHEAD_BYTES
            assert held_bytes < await container.seen() <= LINE_BYTES + 2 * BLOCK_BYTES
            for task in (first, second):
                assert (await task.go_on("done"))["is_finite"]
        assert container.peak_bytes <= LINE_BYTES + 2 * BLOCK_BYTES


async def test_the_cards_properties_show_the_line(
    tmp_path: Path, nats: EmbeddedServer, surroundings: dict[str, str], torch_python: str
) -> None:
    """What the runtime tells of the card is the line too: PyTorch takes its memory fractions of that."""
    async with (
        watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container,
        container.running(command(torch_python, "eager"), **settings("native")) as task,
    ):
        assert (await task.phase("warm"))["properties_bytes"] == LINE_BYTES
