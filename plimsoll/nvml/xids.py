"""XID errors as NVML's event sets deliver them. A thread of its own waits for them, and the event loop gets each.

No call of NVML's event sets runs on the event loop, or in the thread that samples. So a driver that hangs here delays
nothing else.

What always holds: an error that the driver raises while a set is open is read once. A GPU that cannot be registered
(fallen off the bus, or of a kind without such events) does not spoil the others; it is tried again by the next set. A
GPU's UUID is read when it is registered: a GPU that falls off the bus raises an error, and then does not answer.

A card in MIG mode is registered for its instances. An error that NVML ascribes to one instance is that
instance's; any other error of the card is an error of all of them.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

from plimsoll.nvml.calls import Calls, ignore
from plimsoll.nvml.devices import Card, Device, open_card, relisted
from plimsoll.nvml.readings import NvmlAwayError, XidSeen
from plimsoll.part.log import get_logger

_XID: Final = pynvml.nvmlEventTypeXidCriticalError
_CALLS: Final = Calls(ignore)

WAIT_MS: Final = 500
"""The longest wait in the driver. Between two waits the thread checks whether the part ends, which costs 0.01 % of a
core."""

RETRY_S: Final = 2.0
"""Seconds between attempts to reach a driver, or to register GPUs that could not be registered."""

log = get_logger()


class GpuLostError(Exception):
    """A GPU of the set has fallen off the bus: nothing else comes from this set until another one is opened."""


class XidSession:
    """A session with the driver and one open set. Everything here blocks. `close` it when done."""

    def __init__(self) -> None:
        """Begin a session.

        Raises:
            NvmlAwayError: there is no driver, or it does not answer.
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlAwayError(f"no NVIDIA driver answers ({error})") from error
        self._cards: dict[int | None, Card] = {}  # by the address of the handle
        try:
            self._set, self.is_complete = self._opened()
        except pynvml.NVMLError as error:
            pynvml.nvmlShutdown()
            raise NvmlAwayError(f"no XID errors can be read ({error})") from error

    def wait(self, timeout_ms: int) -> list[XidSeen]:
        """The next error, for each GPU that it concerns; empty if there is none in time.

        Raises:
            GpuLostError: see there; errors that came before were delivered.
            NvmlAwayError: the driver went away.
        """
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
            return self._read(event)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return []
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise GpuLostError from error
            raise NvmlAwayError(f"no XID errors can be read ({error})") from error

    def renew(self) -> list[XidSeen]:
        """Open a set with all GPUs that can be registered now, and close the earlier set.

        Returns:
            The errors that came meanwhile.

        Raises:
            NvmlAwayError: the driver went away.
        """
        before = self._set
        try:
            self._set, self.is_complete = self._opened()
            # The set before is read once more, as it alone has the errors from before the registration.
            missed = self._drained(before)
            pynvml.nvmlEventSetFree(before)
        except pynvml.NVMLError as error:
            raise NvmlAwayError(f"no XID errors can be read ({error})") from error
        return missed

    def close(self) -> None:
        """End the session."""
        for end in (lambda: pynvml.nvmlEventSetFree(self._set), pynvml.nvmlShutdown):
            try:
                end()
            except pynvml.NVMLError:
                continue  # a driver that is gone has ended the session already

    def _opened(self) -> tuple[Any, bool]:
        """A new set, and whether all GPUs are in it, apart from those that have no such events."""
        opened, is_complete = pynvml.nvmlEventSetCreate(), True
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                card = open_card(_CALLS, index)
                self._cards[_address(card.handle)] = card
                pynvml.nvmlDeviceRegisterEvents(card.handle, _XID, opened)
            except pynvml.NVMLError as error:
                is_complete &= error.value == pynvml.NVML_ERROR_NOT_SUPPORTED
        return opened, is_complete

    def _drained(self, events: Any) -> list[XidSeen]:  # noqa: ANN401 - pynvml's untyped pointer
        found: list[XidSeen] = []
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, 0)
            except pynvml.NVMLError:
                return found  # there is none left
            found += self._read(event)

    def _read(self, event: Any) -> list[XidSeen]:  # noqa: ANN401 - pynvml's untyped struct
        """The error in an event, for each GPU that it concerns; empty for a handle that we did not register."""
        card = self._cards.get(_address(event.device))
        if card is None:
            return []
        gpus = _present(card)
        struck = [one for one in gpus if one.gpu_instance == int(event.gpuInstanceId)]
        return [XidSeen(one.uuid, int(event.eventData)) for one in struck or gpus]


def _present(card: Card) -> tuple[Device, ...]:
    """The card's GPUs now; those at its registration if it does not answer any more."""
    try:
        return relisted(card).devices if card.is_divided else card.devices
    except pynvml.NVMLError:
        return card.devices


def _address(handle: Any) -> int | None:  # noqa: ANN401 - pynvml's untyped pointer
    return ctypes.cast(handle, ctypes.c_void_p).value


class XidListener:
    """Listens to the errors of all GPUs. `run` it as a task."""

    def __init__(self, seen: Callable[[XidSeen], None]) -> None:
        """Call `seen` on the event loop with each error."""
        self._seen = seen
        self._ended = threading.Event()
        self._problem = ""

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
                if str(error) != self._problem:  # once, not at each attempt
                    self._problem = str(error)
                    log.warning("XID errors are not seen until the driver answers", error=str(error))
                self._ended.wait(RETRY_S)

    def _follow(self, session: XidSession, report: Callable[[XidSeen], None]) -> None:
        """Report errors until the part ends or the driver goes away."""
        try:
            self._problem, renewed_s = "", time.monotonic()
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
