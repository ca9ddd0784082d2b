"""PyTorch programs, each held to 4 GiB: `make gpu`. Deselected elsewhere.

The tests compare the programs' own view with NVML's. A real monitor and a real broker take the memory that the
programs cannot count off the line: contexts, modules, kernels that were compiled meanwhile.
"""

from pathlib import Path
from typing import Any

import pytest

from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.gpu.watched import BLOCK_BYTES, Task, watched

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

LINE_BYTES = 4 * GIB
OVERHEAD_BYTES = 3 * GIB // 2
"""The most that context, modules and workspaces may take of a line. The rest must be left for data."""

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
    """The command that starts a program."""
    return [python, "-m", f"tests.gpu.programs.{program}"]


def settings(allocator: str) -> dict[str, str]:
    """PyTorch's allocator setting, under the name of 2.9 and later and under the earlier one."""
    chosen = ALLOCATORS[allocator]
    return {"PYTORCH_ALLOC_CONF": chosen, "PYTORCH_CUDA_ALLOC_CONF": chosen}


def check_view(warm: dict[str, Any], allocator: str) -> None:
    """Check that the program sees its line as the whole card, and uses the expected allocator."""
    assert warm["total_bytes"] == LINE_BYTES
    assert warm["is_finite"]
    assert warm["allocator"] == ("cudaMallocAsync" if allocator == "async" else "native")


async def check_full(program: Task) -> int:
    """Check that the program fills its line until PyTorch's own error; returns the bytes that it got."""
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
    """A program sees 4 GiB, gets torch.cuda.OutOfMemoryError past them, and then works as before."""
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
    """Two programs stay under 4 GiB together, contexts included. A refused one goes on once memory is free."""
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
    """The runtime's device properties show the line, as PyTorch computes memory fractions from them."""
    async with (
        watched(tmp_path, nats.url, LINE_BYTES, surroundings) as container,
        container.running(command(torch_python, "eager"), **settings("native")) as task,
    ):
        assert (await task.phase("warm"))["properties_bytes"] == LINE_BYTES
