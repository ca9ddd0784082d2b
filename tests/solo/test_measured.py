"""`plimsoll run` enforces a command's line also for memory that its calls do not count.

The private broker reads that memory from NVML.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from plimsoll.broker.pages import GpuLimit, Limits
from plimsoll.quantity import GIB, MIB
from tests.placer.arrivals import eventually
from tests.servers.waiting import PATIENCE_S
from tests.solo.machine import Machine

CONTEXT = 300 * MIB
"""The emulator's default."""
COMMAND = str(Path(__file__).with_name("contexts.py"))
OUT_OF_MEMORY = "2"


class Crowd:
    """A command under `plimsoll run` that starts CUDA programs."""

    def __init__(self, machine: Machine, process: asyncio.subprocess.Process) -> None:
        self.machine = machine
        self.process = process

    async def start(self, count: int) -> list[str]:
        """Start this many programs at once; returns the driver's result of each."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"start {count}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().split()

    async def page(self) -> GpuLimit:
        """The limits page that the command's processes read now."""
        [pod] = await self.machine.registered()
        page = await asyncio.to_thread((self.machine.root / "limits" / pod / "main" / "limits").read_bytes)
        gpu: GpuLimit = Limits.from_buffer_copy(page).gpus[0]
        return gpu

    async def knows_the_context(self) -> bool:
        """Whether the broker has measured what a context costs."""
        return int((await self.page()).context_bytes) == CONTEXT


@contextlib.asynccontextmanager
async def crowd(machine: Machine) -> AsyncIterator[Crowd]:
    """A command with a line of 1 GiB. At the end it and its programs end."""
    process = await machine.start("--gpu-memory", "1Gi", "--", sys.executable, COMMAND)
    try:
        yield Crowd(machine, process)
    finally:
        output, errors = await process.communicate(b"")
        sys.stderr.write(output.decode() + errors.decode())


async def private_log(machine: Machine, event: str) -> list[dict[str, object]]:
    """The entries of the private broker's log with this event."""
    *whole, _ = (await asyncio.to_thread((machine.root / "private-broker.log").read_text)).split("\n")
    return [line for line in map(json.loads, whole) if line["event"] == event]


async def test_contexts_are_held_to_the_line_once_one_was_measured(machine: Machine) -> None:
    """Once a context was measured, three of 20 programs get theirs, because 1 GiB has room for three.

    The denials are logged. The next command's 20 programs start at once, and three get a context again.
    """
    async with crowd(machine) as first:
        assert await first.start(1) == ["0"]
        await eventually(first.knows_the_context, expected=True)
        assert sorted(await first.start(19)) == ["0"] * 2 + [OUT_OF_MEMORY] * 17
        assert await machine.used_bytes() == 3 * CONTEXT <= GIB
    assert await private_log(machine, "denied")
    async with crowd(machine) as second:
        assert sorted(await second.start(20)) == ["0"] * 3 + [OUT_OF_MEMORY] * 17
        assert await machine.used_bytes() == 3 * CONTEXT
    assert not await private_log(machine, "violated")


async def test_programs_one_after_another_stay_within_the_line_from_the_first_on(machine: Machine) -> None:
    """Before any context was measured, programs one after another pass the line by less than one context."""
    async with crowd(machine) as one:
        results = [status for _ in range(20) for status in await one.start(1)]
        assert set(results) == {"0", OUT_OF_MEMORY}
        assert await machine.used_bytes() <= GIB + CONTEXT
    assert await private_log(machine, "denied")


async def test_many_at_once_before_anything_was_measured_are_told_and_get_no_more(machine: Machine) -> None:
    """Before any context was measured, many programs at once may pass the line.

    After the measurement none gets a context.
    """
    async with crowd(machine) as one:
        await one.start(20)
        await eventually(one.knows_the_context, expected=True)
        if await machine.used_bytes() > GIB:
            await eventually(partial(has_told, machine, "violated"), expected=True)
        assert await one.start(1) == [OUT_OF_MEMORY]


async def has_told(machine: Machine, what: str) -> bool:
    """Whether the private broker has logged this event."""
    return bool(await private_log(machine, what))
