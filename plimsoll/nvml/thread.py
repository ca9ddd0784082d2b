"""The one thread of a part that calls NVML, and the event loop's way to use it.

What always holds: NVML is called from this thread alone. A driver that does not answer in time raises an error on the
loop and never blocks it.
"""

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.part.errors import CannotGoOnError
from plimsoll.part.log import get_logger

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

T = TypeVar("T")

ANSWER_S: Final = 30.0
"""A healthy driver answers in milliseconds; one that initialises eight cards may take seconds."""

CLOSE_S: Final = 5.0
"""Seconds for the driver to end a session, and the call that it is busy with. The kubelet gives a pod 30 s for its
whole end, and the driver forgets the sessions of a process that has ended."""

log = get_logger()


class DriverThread:
    """A session with the driver on a thread of its own, begun by the first `ask`. `close` it when done.

    Args:
        took: gets the name and the seconds of each call of the driver, in that thread; None for nobody.
    """

    def __init__(self, took: Callable[[str, float], None] | None = None) -> None:
        self._took = took
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
        self._nvml: Nvml | None = None

    async def ask(self, work: Callable[["Nvml"], T]) -> T:
        """Run `work` in the thread and return its result. Cancelling drops the result; `work` goes on to its end.

        Raises:
            NvmlAwayError: there is no driver, or it did not answer within `ANSWER_S`.
            CannotGoOnError: the driver was replaced, and this process can never reach the new one.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await loop.run_in_executor(self._thread, lambda: work(self._session()))
        except TimeoutError as error:
            raise NvmlAwayError(f"the NVIDIA driver did not answer in {ANSWER_S:.0f} s") from error
        except NvmlAwayError as error:
            if error.needs_restart:
                raise CannotGoOnError(
                    f"the NVIDIA driver was replaced under this process: {error}"
                ) from error
            raise

    async def close(self) -> None:
        """End the session with the driver and the thread; a driver that hangs is left after `CLOSE_S`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CLOSE_S):
                await loop.run_in_executor(self._thread, self._end)
        except TimeoutError:
            log.warning("the NVIDIA driver hangs, and its session is left open", waited_s=CLOSE_S)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _session(self) -> "Nvml":
        if self._nvml is None:
            # Not at the top: `pynvml` takes a tenth of a second to import, and many brokers never need it.
            library = importlib.import_module("plimsoll.nvml.library")
            self._nvml = library.Nvml(self._took) if self._took else library.Nvml()
        return self._nvml

    def _end(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
