"""Runs a part of the product as a task, for as long as a test needs it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, object], name: str) -> AsyncIterator[None]:
    """Run endless work until the context ends; the test fails if the work ends by itself."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
        assert not task.done(), f"task `{name}` ended by itself"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
