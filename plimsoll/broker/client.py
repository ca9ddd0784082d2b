"""The asking end of the broker's control socket: for the monitor, `plimsoll run` and tests.

What always holds:

* Every request is safe to repeat (registering, unregistering, acknowledging and measuring twice change nothing), so a
  request whose connection broke is sent again until its deadline; the caller never has to wonder.
* Announcements go over connections of their own (`plimsoll.broker.subscription`), so that an answer is never searched
  for among them, and a slow reader of announcements holds up no request.
* Cancelling any method is safe. A request cancelled halfway closes its connection, as its answer would
  otherwise be taken for the next one's; whether the broker fulfilled it is then unknown, and asking again is
  harmless.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from plimsoll.broker.connection import FIRST_PAUSE_S, LONGEST_PAUSE_S, Connection, DamagedError, LostError
from plimsoll.broker.wire import (
    CONTROL_NAME,
    Acknowledge,
    Answer,
    Describe,
    Description,
    Done,
    Measured,
    Refused,
    Register,
    Registered,
    Request,
    Unregister,
)
from plimsoll.ids import PodUid
from plimsoll.part.backoff import Pauses
from plimsoll.part.errors import PlimsollError

TIMEOUT_S: Final = 10.0
"""How long a request may take, a restart of the broker included, unless the client was told otherwise."""

LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest answer: a description of thousands of containers with all their processes."""

T = TypeVar("T")


class RefusedError(PlimsollError):
    """The broker cannot fulfil the request; its message names field, value and remedy. Do not repeat it."""


class BrokerAwayError(PlimsollError):
    """The broker did not answer in time; the same request may be repeated later."""


class BrokerClient:
    """Talks to the broker whose root directory it was given, over however many of its restarts.

    Use it as an async context manager, or call `close`. Methods may be called from several tasks at once.
    """

    def __init__(self, root: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        """Wait until the broker is there.

        Raises:
            BrokerAwayError: it was not within the client's timeout.
        """
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the request connection; ends no subscription."""
        await self.close()

    async def connect(self) -> None:
        """Wait until the broker accepts connections; needed only by who wants to know early.

        Raises:
            BrokerAwayError: it did not within the client's timeout.
        """
        async with self._within_timeout("take a connection"), self._turn:
            await self._connected()

    async def close(self) -> None:
        """Close the request connection. A later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def register(self, request: Register) -> Registered:
        """Lay out a pod's directories, or change its lines in place; repeatable.

        Returns:
            Where each container's two directories lie, in the order of the request.

        Raises:
            RefusedError: the request cannot work; the message says why and what would.
            BrokerAwayError: no answer in time.
        """
        return await self._ask(request, Registered)

    async def unregister(self, pod: PodUid) -> None:
        """Have a pod's directories removed once none of its processes lives; an unknown pod is fine.

        Raises:
            RefusedError: the request cannot work.
            BrokerAwayError: no answer in time.
        """
        await self._ask(Unregister(pod=pod), Done)

    async def describe(self) -> Description:
        """What is registered now, and what each process holds.

        Raises:
            BrokerAwayError: no answer in time.
        """
        return await self._ask(Describe(), Description)

    async def acknowledge(self, seq: int) -> None:
        """Let the broker forget every announcement up to and including `seq`.

        Call it when they are safe elsewhere (in the stream), not merely received.

        Raises:
            RefusedError: nothing as new as `seq` was ever announced.
            BrokerAwayError: no answer in time.
        """
        await self._ask(Acknowledge(seq=seq), Done)

    async def measure(self, measured: Measured) -> None:
        """Tell what NVML shows; the broker holds it against what processes count.

        Raises:
            RefusedError: it could not be taken in; a later one may be.
            BrokerAwayError: no answer in time.
        """
        await self._ask(measured, Done)

    async def _ask(self, request: Request, kind: type[T]) -> T:
        async with self._within_timeout(f"answer {type(request).__name__}"), self._turn:
            while True:
                connection = await self._connected()
                try:
                    await connection.send(request)
                    answer = await connection.read()
                except (LostError, DamagedError):
                    await self.close()
                    continue
                except BaseException:
                    # Its answer is still to come and must not be taken for the next request's.
                    self._connection = None
                    connection.abort()
                    raise
                return _expect(answer, kind)

    async def _connected(self) -> Connection:
        pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while self._connection is None:
            try:
                self._connection = await Connection.open(self._root, LINE_BYTES)
            except LostError:
                await asyncio.sleep(pauses.next_s())
        return self._connection

    @contextlib.asynccontextmanager
    async def _within_timeout(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError as error:
            raise BrokerAwayError(
                f"the broker at {self._root / CONTROL_NAME} did not {what} in {self._timeout_s} s; "
                "start it (`python -m hook.broker`) or look into its log"
            ) from error


def _expect(answer: Answer, kind: type[T]) -> T:
    if isinstance(answer, Refused):
        raise RefusedError(answer.message)
    assert isinstance(answer, kind), f"asked for {kind.__name__}, was answered {answer}"
    return answer
