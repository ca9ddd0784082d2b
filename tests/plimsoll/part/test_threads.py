"""A process ends although one of its threads hangs, with the exit code and the log of its outcome."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.servers.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]
PROGRAM = REPOSITORY / "tests/plimsoll/part/programs/hanging.py"

Start = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts the program, and waits until its lookup hangs."""
    started: list[asyncio.subprocess.Process] = []

    async def program(ending: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            PROGRAM,
            ending,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"begun\n"
        return process

    yield program
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("stop", 0, b""),
        ("refuse", 2, b"a: 'b' is wrong; mend it"),
        ("fail", 1, b"RuntimeError: nobody foresaw this"),
    ],
)
async def test_a_thread_that_hangs_does_not_keep_the_process(
    start: Start, ending: str, status: int, said: bytes
) -> None:
    """After SIGTERM, a refused setting or an error, the process ends, says why, and names the thread."""
    process = await start(ending)
    if ending == "stop":
        process.terminate()
    async with asyncio.timeout(PATIENCE_S):
        _, log = await process.communicate()
    assert process.returncode == status, log
    assert said in log
    assert b"ends without threads that hang" in log
    assert b'"threads": ["asyncio_' in log


async def test_work_that_has_begun_is_finished(start: Start) -> None:
    """A thread that only takes a while is not cut off."""
    process = await start("finish")
    process.terminate()
    async with asyncio.timeout(PATIENCE_S):
        output, log = await process.communicate()
    assert (process.returncode, output) == (0, b"finished\n")
    assert b"ends without threads" not in log
