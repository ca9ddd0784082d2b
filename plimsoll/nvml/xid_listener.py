"""Waits for XID errors in a thread of its own, and brings each to the event loop at once.

What always holds: no call of NVML's event sets runs on the event loop, or in the thread that samples. A driver that
hangs here delays nothing else.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from plimsoll.nvml.readings import NvmlAwayError, XidSeen
from plimsoll.nvml.xids import GpuLostError, XidSession
from plimsoll.part.log import get_logger

WAIT_MS: Final = 500
"""The longest wait in the driver. Between two waits the thread checks whether the part ends, which costs 0.01 % of a
core."""

RETRY_S: Final = 2.0
"""Seconds between attempts to reach a driver, or to register GPUs that could not be registered."""

log = get_logger()


class XidListener:
    """Listens to the errors of all GPUs. `run` it as a task."""

    def __init__(self, seen: Callable[[XidSeen], None]) -> None:
        """Call `seen` on the event loop with each error."""
        self._seen = seen
        self._ended = threading.Event()
        self._trouble = ""

    async def run(self) -> None:
        """Listen for ever. Cancelling ends the thread within half a second."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # A daemon: the end of the process does not wait for the driver.
        threading.Thread(target=self._listen_until_ended, args=(loop, done), name="xids", daemon=True).start()
        try:
            await done
        finally:
            self._ended.set()

    def _listen_until_ended(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        try:
            self._listen(loop)
        except Exception as error:  # noqa: BLE001 - raised on the event loop, by `run`
            if not self._ended.is_set():
                loop.call_soon_threadsafe(done.set_exception, error)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        def report(seen: XidSeen) -> None:
            if not self._ended.is_set():
                loop.call_soon_threadsafe(self._seen, seen)

        while not self._ended.is_set():
            try:
                self._follow(XidSession(), report)
            except NvmlAwayError as error:
                if str(error) != self._trouble:  # once, not at each attempt
                    self._trouble = str(error)
                    log.warning("XID errors are not seen until the driver answers", error=str(error))
                self._ended.wait(RETRY_S)

    def _follow(self, session: XidSession, report: Callable[[XidSeen], None]) -> None:
        """Report errors until the part ends or the driver goes away."""
        try:
            self._trouble, renewed_s = "", time.monotonic()
            while not self._ended.is_set():
                is_lost = False
                try:
                    if struck := session.wait(WAIT_MS):
                        for seen in struck:
                            report(seen)
                        continue
                except GpuLostError:
                    is_lost = True
                    self._ended.wait(WAIT_MS / 1000)
                if is_lost or not (session.is_complete or time.monotonic() < renewed_s + RETRY_S):
                    renewed_s = time.monotonic()
                    for missed in session.renew():
                        report(missed)
        finally:
            session.close()
