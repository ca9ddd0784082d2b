"""The client of the broker's control socket: for the monitor, `plimsoll run` and tests.

What always holds:

* Every request is safe to repeat: registering, unregistering, acknowledging or measuring twice changes nothing. So a
  request whose connection broke is sent again until its deadline.
* Announcements go over connections of their own (`plimsoll.broker.subscription`). So no answer must be searched for
  among them, and a slow reader of announcements delays no request.
* Cancelling any method is safe. A request cancelled halfway closes its connection, because its answer would
  otherwise be taken for the next request's. Whether the broker fulfilled it is then unknown; repeating it is
  harmless.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from plimsoll.broker import wire
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.connection import FIRST_PAUSE_S, LONGEST_PAUSE_S, Connection, DamagedError, LostError
from plimsoll.ids import PodUid
from plimsoll.part.backoff import Pauses
from plimsoll.part.errors import PlimsollError
from plimsoll.part.processes import read_stat

TIMEOUT_S: Final = 10.0
"""The default deadline of a request, in seconds; long enough for a restart of the broker."""

LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest answer, in bytes: a description of thousands of containers with all their processes."""

T = TypeVar("T")


class RefusedError(PlimsollError):
    """The broker cannot fulfil the request; the message names field, value and remedy. Do not repeat it."""


class BrokerAwayError(PlimsollError):
    """The broker did not answer in time; the same request may be repeated later."""


class BrokerClient:
    """A client of the broker with this root directory, also across the broker's restarts.

    Use it as an async context manager, or call `close`. Methods may be called from several tasks at once.
    """

    def __init__(self, root: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._lost: LostError | None = None  # the last failure, for the message
        self._peer: int | None = None  # the process that did not answer, likewise

    async def __aenter__(self) -> Self:
        """Wait until the broker is there.

        Raises:
            BrokerAwayError: the broker took no connection within the client's timeout.
        """
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the request connection; subscriptions go on."""
        await self.close()

    async def connect(self) -> None:
        """Wait until the broker accepts connections. Requests do this by themselves.

        Raises:
            BrokerAwayError: the broker took no connection within the client's timeout.
        """
        async with self._within_timeout("take a connection"), self._turn:
            await self._connected()

    async def close(self) -> None:
        """Close the request connection. A later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def register(self, request: wire.Register) -> wire.Registered:
        """Make a pod's directories, or change its lines in place; repeatable.

        Returns:
            The paths of each container's two directories, in the order of the request.

        Raises:
            RefusedError: the request cannot work; the message says why, and the remedy.
            BrokerAwayError: no answer in time.
        """
        return await self._ask(request, wire.Registered)

    async def unregister(self, pod: PodUid) -> None:
        """Remove a pod's directories once none of its processes lives; an unknown pod is fine.

        Raises:
            RefusedError: the request cannot work.
            BrokerAwayError: no answer in time.
        """
        await self._ask(wire.Unregister(pod=pod), wire.Done)

    async def describe(self) -> wire.Description:
        """The registered containers, and the memory that each process holds.

        Raises:
            BrokerAwayError: no answer in time.
        """
        return await self._ask(wire.Describe(), wire.Description)

    async def read_gpus(self) -> wire.GpusRead:
        """The machine's GPUs now, as the broker reads them by NVML.

        Raises:
            RefusedError: there is no driver.
            BrokerAwayError: no answer in time.
        """
        return await self._ask(wire.ReadGpus(), wire.GpusRead)

    async def acknowledge(self, seq: int) -> None:
        """Let the broker forget every announcement up to and including `seq`.

        Call it once the announcements are on disk elsewhere, not merely received.

        Raises:
            RefusedError: `seq` is greater than the newest announcement's.
            BrokerAwayError: no answer in time.
        """
        await self._ask(wire.Acknowledge(seq=seq), wire.Done)

    async def measure(self, measured: wire.Measured) -> None:
        """Send NVML's measurement, which the broker compares with the processes' own counts.

        Raises:
            RefusedError: the broker could not take this measurement in; a later one may succeed.
            BrokerAwayError: no answer in time.
        """
        await self._ask(measured, wire.Done)

    async def _ask(self, request: wire.BrokerRequest, kind: type[T]) -> T:
        async with self._within_timeout(f"answer {type(request).__name__}"), self._turn:
            while True:
                connection = await self._connected()
                try:
                    await connection.send(request)
                    answer = await connection.read()
                except (LostError, DamagedError) as error:
                    self._lost = error if isinstance(error, LostError) else None
                    await self.close()
                    continue
                except BaseException:
                    self._peer = connection.peer
                    # The answer is still to come, and must not be taken for the next request's.
                    self._connection = None
                    connection.abort()
                    raise
                return _expect(answer, kind)

    async def _connected(self) -> Connection:
        pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while self._connection is None:
            try:
                self._connection = await Connection.open(self._root, LINE_BYTES)
            except LostError as error:
                self._lost = error
                await asyncio.sleep(pauses.next_s())
        return self._connection

    @contextlib.asynccontextmanager
    async def _within_timeout(self, what: str) -> AsyncIterator[None]:
        self._lost = None
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError as error:
            raise BrokerAwayError(
                f"the broker at {self._root / wire.CONTROL_NAME} did not {what} in {self._timeout_s} s: {self._why()}"
            ) from error

    def _why(self) -> str:
        if self._lost is None:
            return self._why_silent()
        cause = self._lost.__cause__
        if isinstance(cause, PermissionError):
            return f"this user may not open it ({cause}); run as the broker's user, or as root"
        if isinstance(cause, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            return f"no broker runs there ({cause}); see its log, or name another directory"
        return f"{self._lost}; look into its log"

    def _why_silent(self) -> str:
        pid = self._peer
        if pid is None:
            return "it stands still or is busy; look into its log"
        stat = read_stat(pid)
        if stat is not None and stat.is_stopped:
            return f"its process {pid} is stopped; let it go on (`kill -CONT {pid}`), or end it (`kill -KILL {pid}`)"
        return f"its process {pid} stands still or is busy; look into its log"


def _expect(answer: wire.BrokerAnswer | wire.MemoryChange | Announcement, kind: type[T]) -> T:
    if isinstance(answer, wire.Refused):
        raise RefusedError(answer.message)
    assert isinstance(answer, kind), f"asked for {kind.__name__}, was answered {answer}"
    return answer
