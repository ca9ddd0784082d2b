"""Waits for a state that another process causes. No test asserts how long that takes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 300.0
"""The one limit on every wait of every test: a start, an answer, a state.

The time is far above a loaded machine's need, so only a state that never comes reaches it. A process that ends
instead of getting ready ends the wait at once. pytest's own `timeout` is longer, so the message of the wait is seen.
"""

LOOK_S = 0.05

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]], *, timeout_s: float = PATIENCE_S) -> T:
    """Call `look` again and again until its result is true, and return that result.

    Args:
        look: Looks at the state without changing it. An exception of the condition ends the wait.
        timeout_s: The time after which the wait gives up.

    Raises:
        AssertionError: The time is up; the message holds the last result of `look`.
    """
    seen: object = "nothing: the first look did not return"
    try:
        async with asyncio.timeout(timeout_s):
            while not (seen := await look()):  # noqa: ASYNC110 - another process cannot set an Event
                await asyncio.sleep(LOOK_S)
            return seen
    except TimeoutError:
        raise AssertionError(f"after {timeout_s} s of waiting, last seen: {seen!r}") from None


async def until_true(look: Callable[[], object]) -> None:
    """Wait until `look`, which awaits nothing, returns a true value; see `until`."""

    async def seen() -> object:
        return look()

    await until(seen)
