"""A part ends although libraries swallow cancellations."""

import asyncio
import contextlib
from typing import NoReturn

import pytest

from plimsoll.part.ending import heed_cancellation, run_to_end

SOON_S = 0.01
"""Long enough for every other task to begin, as each of them waits at once."""


async def deaf(losses: int) -> None:
    """A loop that loses as many cancellations."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if losses == 0:
                raise
            losses -= 1


async def fail() -> NoReturn:
    """The loop of the part that ends first."""
    await asyncio.sleep(SOON_S)
    raise RuntimeError("ended")


async def run(*losses: int) -> None:
    """A part of several loops, of which one ends."""
    async with asyncio.TaskGroup() as group:
        for number in losses:
            group.create_task(deaf(number))
        group.create_task(fail())


def test_swallowed_cancellations_are_repeated() -> None:
    """Loops that lose cancellations end all the same, and the error of the part is raised."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await run_to_end(run(0, 1, 3), look_s=SOON_S, again_s=2 * SOON_S)

    with pytest.raises(ExceptionGroup, match="unhandled errors in a TaskGroup"):
        asyncio.run(bounded())


def test_tasks_that_were_left_behind_end_too() -> None:
    """A task that nobody awaits does not keep the process alive, whatever it swallows."""
    left: list[asyncio.Task[None]] = []

    async def part() -> int:
        left.append(asyncio.create_task(deaf(2)))
        await asyncio.sleep(SOON_S)
        return 7

    assert asyncio.run(run_to_end(part(), look_s=SOON_S, again_s=2 * SOON_S)) == 7
    assert left[0].cancelled()


def test_cleaning_up_is_not_disturbed() -> None:
    """A cancelled task that ends before it would be cancelled again cleans up completely."""
    steps: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(20 * SOON_S)  # several checks of the tasks come meanwhile
            steps.append("tidied")

    async def part() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(tidy())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        asyncio.run(run_to_end(part(), look_s=SOON_S, again_s=30))
    assert steps == ["tidied"]


async def test_a_swallowed_cancellation_is_heeded() -> None:
    """A task whose cancellation a library dropped ends in the next pass of its loop."""

    begun = asyncio.Event()

    async def work() -> None:
        while True:
            heed_cancellation()
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)  # a library's call that drops the cancellation

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    assert task.cancelled()
