"""The thread that calls the driver ends with its part."""

import asyncio
import threading
from typing import Any

import pytest

from plimsoll.nvml import thread as thread_module
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.errors import CannotGoOnError
from tests.servers.waiting import PATIENCE_S


async def test_a_driver_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a call of the driver hangs, closing the thread is over soon, and no error."""
    monkeypatch.setattr(thread_module, "CLOSE_S", 0.05)
    has_begun, is_over = threading.Event(), threading.Event()

    class Hanging(DriverThread):
        def _session(self) -> Any:  # noqa: ANN401 - there is no session
            has_begun.set()
            is_over.wait()

    driver = Hanging()
    asking = asyncio.create_task(driver.ask(lambda _: None))
    try:
        await asyncio.to_thread(has_begun.wait)
        async with asyncio.timeout(PATIENCE_S):
            await driver.close()
    finally:
        is_over.set()
        await asking


@pytest.mark.parametrize(("needs_restart", "expected"), [(True, CannotGoOnError), (False, NvmlAwayError)])
async def test_a_driver_that_was_replaced_ends_the_part(
    needs_restart: bool,  # noqa: FBT001 - a parameter of the test
    expected: type[Exception],
) -> None:
    """The error that no later attempt can mend is none of those that a part outlives."""

    def away(_: object) -> None:
        raise NvmlAwayError("away", needs_restart=needs_restart)

    driver = DriverThread()
    try:
        with pytest.raises(expected, match="away"):
            await driver.ask(away)
    finally:
        await driver.close()
