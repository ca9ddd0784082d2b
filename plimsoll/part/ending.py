"""Ends every task of a part, also where a library swallows a cancellation.

On Python 3.11 `asyncio.wait_for` returns its result where result and cancellation come at once. redis-py uses it for
every command, nats-py for every request, and nats-py 2.16 also drops some cancellations or turns them into errors of
its own. A task that lost its cancellation goes on for ever, and whatever waits for the task waits for ever too.

What always holds: a task that was cancelled and lives on is cancelled again, until it ends. Loops also call
`heed_cancellation`, and so end at once where a cancellation was swallowed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

from plimsoll.part.errors import CannotGoOnError
from plimsoll.part.log import get_logger

log = get_logger()

LOOK_S: Final = 1.0
"""The time between two checks of the tasks."""

AGAIN_S: Final = 12.0
"""The time after which a cancelled task is cancelled again. Longer than any task needs to clean up: the local front
end gives the processes of pods 10 s. Shorter than half of the 30 s that the kubelet waits for a pod's end."""

CHECKS: Final = 10
"""How often a task is found cancelled, one check soon after the other, before it counts as ending. A time limit that
passes cancels its task too, until the task has noticed. On a busy machine, whose timers come due together, each look
may fall into such a moment."""

T = TypeVar("T")


class _StopError(Exception):
    """Ends a group of tasks in good order."""


@contextlib.asynccontextmanager
async def tasks_until(stop: asyncio.Event) -> AsyncIterator[asyncio.TaskGroup]:
    """A group for the tasks of a part. The context starts them; its end waits for `stop`, and then ends them.

    Args:
        stop: set by a signal. If the context's own code waits for the event too, it ends before the tasks do.

    Raises:
        ExceptionGroup: a task failed, and so ended all others, as in an `asyncio.TaskGroup`.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
            await stop.wait()
            raise _StopError
    except* _StopError:
        pass


def heed_cancellation() -> None:
    """Raise `CancelledError` if this task was cancelled and a library swallowed that; call it in endless loops."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def noticed(name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await `work`, the whole of a task; one that ends as cancelled, and was not, would leave its group in silence.

    Args:
        name: the task's, for the error.
        work: makes the coroutine; one that is made before, and whose task never begins, would warn of that.

    Raises:
        CannotGoOnError: `work` raised `CancelledError`, and nobody had cancelled this task.
    """
    try:
        return await work()
    except asyncio.CancelledError as error:
        heed_cancellation()
        raise CannotGoOnError(f"the {name} ended as cancelled, and nobody had cancelled it") from error


def start_endless(tasks: asyncio.TaskGroup, name: str, work: Coroutine[Any, Any, None]) -> None:
    """Start a task that is to live until it is cancelled: if it ends by itself, that is a `CannotGoOnError`."""
    tasks.create_task(_endless(name, work), name=name)


async def _endless(name: str, work: Coroutine[Any, Any, None]) -> None:
    await noticed(name, lambda: work)
    raise CannotGoOnError(f"the {name} ended by itself")


async def run_to_end(work: Coroutine[Any, Any, T], *, look_s: float = LOOK_S, again_s: float = AGAIN_S) -> T:
    """Run `work`, and then end all other tasks of the loop; return or raise what `work` does.

    Args:
        work: everything that the process does.
        look_s: see `LOOK_S`.
        again_s: see `AGAIN_S`.
    """
    loop = asyncio.get_running_loop()
    root = asyncio.create_task(work, name="part")
    cancelled_s: dict[asyncio.Task[Any], float] = {}
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        if root.done():
            for task in others - cancelled_s.keys():
                task.cancel()
        now_s = loop.time()
        ending = await _ending(others, look_s)
        cancelled_s = {task: cancelled_s.get(task, now_s) for task in ending}
        for task in ending:
            if now_s - cancelled_s[task] >= again_s:
                log.warning("a task outlived its cancellation and is cancelled again", task=task.get_name())
                task.cancel()
                cancelled_s[task] = now_s
        await asyncio.wait(others if root.done() else [root], timeout=look_s)
    return await root


async def _ending(tasks: set[asyncio.Task[Any]], look_s: float) -> set[asyncio.Task[Any]]:
    """Those of the tasks that were cancelled, and live on."""
    ending = {task for task in tasks if task.cancelling()}
    for check in range(CHECKS):
        if not ending:
            break
        await asyncio.sleep(check * look_s / 100)
        ending = {task for task in ending if task.cancelling() and not task.done()}
    return ending
