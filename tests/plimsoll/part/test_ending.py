"""A part ends although libraries swallow cancellations."""

import asyncio
import contextlib
import time
from functools import partial
from typing import NoReturn

import pytest

from plimsoll.part.ending import heed_cancellation, noticed, run_to_end, tasks_until
from plimsoll.part.errors import CannotGoOnError
from tests.servers.waiting import PATIENCE_S

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
        async with asyncio.timeout(PATIENCE_S):
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
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([task])
    assert task.cancelled()


async def test_tasks_end_once_a_part_is_stopped() -> None:
    """The context waits for the signal, lets its tasks clean up, and ends without an error."""
    stop, steps = asyncio.Event(), list[str]()

    async def live() -> None:
        try:
            stop.set()
            await asyncio.Event().wait()
        finally:
            steps.append("tidied")

    async with asyncio.timeout(PATIENCE_S):
        async with tasks_until(stop) as tasks:
            tasks.create_task(live())
        steps.append("stopped")
    assert steps == ["tidied", "stopped"]


async def test_the_contexts_own_code_ends_before_the_tasks() -> None:
    """Code that waits for the signal itself still has the tasks while it ends."""
    stop, lives = asyncio.Event(), list[bool]()
    async with asyncio.timeout(PATIENCE_S):
        async with tasks_until(stop) as tasks:
            task = tasks.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(stop.set)
            await stop.wait()
            await asyncio.sleep(SOON_S)
            lives.append(not task.done())
    assert (lives, task.cancelled()) == ([True], True)


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_task_that_fails_ends_all_with_its_error(stopped: bool) -> None:  # noqa: FBT001 - by the parameter
    """The error comes in a group, also where the signal comes with it."""
    stop = asyncio.Event()

    async def fail_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("ended")

    async def part() -> None:
        async with asyncio.timeout(PATIENCE_S), tasks_until(stop) as tasks:
            tasks.create_task(fail_at_the_end() if stopped else fail())
            await asyncio.sleep(0)
            if stopped:
                stop.set()

    with pytest.raises(ExceptionGroup) as failed:
        await part()
    [error] = failed.value.exceptions
    assert str(error) == "ended"


async def test_a_part_that_is_cancelled_is_cancelled() -> None:
    """The context hides no cancellation from outside."""

    async def part() -> None:
        async with tasks_until(asyncio.Event()) as tasks:
            tasks.create_task(asyncio.Event().wait())

    task = asyncio.create_task(part())
    await asyncio.sleep(SOON_S)
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([task])
    assert task.cancelled()


async def cancel_itself() -> None:
    """A loop in which a library raises `CancelledError` of its own."""
    raise asyncio.CancelledError


async def test_a_task_that_nobody_cancelled_ends_its_group_with_an_error() -> None:
    """A part goes on without a task that ended as cancelled by itself, unless somebody notices."""

    async def part() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(noticed("work", cancel_itself))
            group.create_task(deaf(0))

    with pytest.raises(ExceptionGroup) as raised:
        await part()
    assert raised.group_contains(CannotGoOnError, match="the work ended as cancelled")


async def test_a_task_that_was_cancelled_is_cancelled() -> None:
    """The end of a part is no error of its tasks."""
    task = asyncio.create_task(noticed("work", partial(deaf, 0)))
    await asyncio.sleep(SOON_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_time_limit_that_passes_is_no_cancellation() -> None:
    """A task whose time limits pass at each look lives on: late timers come due together, the look first."""

    async def limited() -> int:
        for _ in range(20):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.5 * SOON_S):
                    await asyncio.Event().wait()
        return 7

    async def part() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(limited())

        def be_late() -> None:
            time.sleep(2 * SOON_S)
            loop.call_later(SOON_S / 4, be_late)

        loop.call_soon(be_late)
        return await task

    assert asyncio.run(run_to_end(part(), look_s=SOON_S, again_s=4 * SOON_S)) == 7
