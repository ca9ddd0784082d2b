"""The broker's end of `broker.sock`: requests in, answers out, announcements to subscribers.

What always holds: every line gets exactly one answer. A bad line gets a `Refused` that names field, value and remedy,
and the connection stays. A subscriber's place is a number in the journal, not a queue, so a slow subscriber holds up
no other and costs no memory.
"""

import asyncio
import contextlib
import socket
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from hook.broker.core.ids import ContainerKey
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.measurements import read_gpus
from hook.broker.memory_changes import MemoryWatch
from hook.broker.sockets.hook import StartTask, bind_unix
from plimsoll.broker.announcements import Announcement, Exited, Hello
from plimsoll.broker.wire import (
    CONTROL_NAME,
    Acknowledge,
    BrokerAnswer,
    BrokerRequest,
    Describe,
    Done,
    Measured,
    MemoryChange,
    ReadGpus,
    Refused,
    Register,
    Registered,
    Subscribe,
    Unregister,
)
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.accepting import Acceptor
from plimsoll.part.errors import InputError

CONTROL_MODE: Final = 0o600
BACKLOG: Final = 128
"""Far more than the parts of one node."""
REQUEST_BYTES: Final = 1024 * 1024
"""The longest request: a pod of 16 GPUs in each of a hundred containers needs a fifth of it."""

BATCH: Final = 256
"""Announcements that are written before the broker waits for the subscriber to read them."""

GATHER_S: Final = 0.05
"""Seconds that hellos and exits wait for further announcements, to be written together. They are no news by
themselves: a process without a context uses no GPU, and the kernel reports deaths to the monitor."""

STUCK_S: Final = 60.0
"""Seconds after which a peer that reads nothing is cut off. No announcement is lost: the peer may subscribe again."""

_REQUESTS: Final = msgspec.json.Decoder(BrokerRequest)


def bind_control_socket(root: Path) -> socket.socket:
    """Bind `broker.sock` in the root directory, with permissions for its owner alone. Blocks shortly.

    Raises:
        OSError: the directory is not writable, for example.
    """
    return bind_unix(root, CONTROL_NAME, socket.SOCK_STREAM, mode=CONTROL_MODE, backlog=BACKLOG)


async def serve_control(
    engine: Engine, driver: DriverThread, listener: socket.socket, start_task: StartTask
) -> None:
    """Answer requests until cancelled; owns the socket from now on."""

    def take_in(accepted: socket.socket) -> None:
        peer = _Peer(engine, driver, accepted, start_task)
        work = peer.serve()
        try:
            task = start_task(work, "control connection")
        except RuntimeError:  # The broker ends, and its group takes no more tasks.
            work.close()
            peer.close()
        else:  # A task that is cancelled before its first step runs no `finally` of its own.
            task.add_done_callback(lambda _: peer.close())

    await Acceptor(listener, take_in, partial(engine.bounded_log.error, container=None)).run()


class _Peer:
    """A connection to the control socket."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(
        self, engine: Engine, driver: DriverThread, accepted: socket.socket, start_task: StartTask
    ) -> None:
        self._engine = engine
        self._driver = driver
        self._accepted = accepted
        self._end: socket.socket | asyncio.StreamWriter = accepted
        self._start_task = start_task
        self._subscriptions: list[asyncio.Task[None]] = []

    def close(self) -> None:
        """Close our end of the connection."""
        self._end.close()

    async def serve(self) -> None:
        """Answer line by line until the peer closes the connection; the caller closes our end."""
        streams = await asyncio.open_unix_connection(sock=self._accepted, limit=REQUEST_BYTES)
        self._reader, self._writer = streams
        self._end = self._writer
        try:
            while (line := await self._next_line()) is not None:
                await self._write(await self._answer(line) if line else _too_long())
                if not self._subscriptions and (request := _subscription(line)) is not None:
                    self._subscribe(request)
        except (OSError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
            self._engine.bounded_log.info("control_connection_lost", None, problem=problem)
        finally:
            for subscription in self._subscriptions:
                subscription.cancel()

    async def _next_line(self) -> bytes | None:
        """The next line; None at the end, empty for a line that was too long and is skipped."""
        is_too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                is_too_long = True
                await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError:
                return None
            else:
                return b"" if is_too_long else line

    async def _answer(self, line: bytes) -> BrokerAnswer:
        try:
            return await self._fulfil(_decoded(line))
        except (InputError, NotCarriedOutError, NvmlAwayError) as error:
            self._engine.bounded_log.warning("request_refused", None, problem=str(error))
            return Refused(message=str(error))

    async def _fulfil(self, request: BrokerRequest) -> BrokerAnswer:
        match request:
            case Register():
                await self._engine.take(request)
                keys = [ContainerKey(request.pod, container.name) for container in request.containers]
                return Registered(containers=tuple(map(self._engine.files.directories, keys)))
            case Unregister() | Acknowledge() | Measured():
                await self._engine.take(request)
                if isinstance(request, Measured):
                    self._engine.health.reported = request.health
                return Done()
            case Describe():
                return await self._engine.describe()
            case ReadGpus():
                return await read_gpus(self._engine, self._driver)
            case Subscribe():
                return Done()
            case _:
                assert_never(request)

    def _subscribe(self, request: Subscribe) -> None:
        self._subscriptions.append(self._start_task(self._announce(), "subscription"))
        if request.memory:
            self._subscriptions.append(self._start_task(self._send_memory(), "changes of memory"))

    async def _send_memory(self) -> None:
        """Write the memory of each hooked process, and then each change."""
        watch = MemoryWatch(self._engine)
        with contextlib.suppress(OSError, TimeoutError):
            while True:
                await self._write(*await watch.next())
        self._writer.transport.abort()

    async def _announce(self) -> None:
        """Write the journal from its start, and each new announcement."""
        seq = 0
        with contextlib.suppress(OSError, TimeoutError):
            while True:
                growth = self._engine.growth()
                if not self._engine.announcements_after(seq):
                    await growth.wait()
                await self._gather(seq)
                if batch := self._engine.announcements_after(seq)[:BATCH]:
                    seq = batch[-1].seq
                    await self._write(*batch)
        # The peer is gone or stuck: end the connection at its next read.
        self._writer.transport.abort()

    async def _gather(self, seq: int) -> None:
        """Wait at most `GATHER_S` for an announcement past `seq` that is news."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_S):
                while True:
                    growth = self._engine.growth()
                    waiting = self._engine.announcements_after(seq)
                    if len(waiting) >= BATCH or not all(isinstance(one, Hello | Exited) for one in waiting):
                        return
                    await growth.wait()

    async def _write(self, *answers: BrokerAnswer | Announcement | MemoryChange) -> None:
        self._writer.write(b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers))
        async with asyncio.timeout(STUCK_S):
            await self._writer.drain()


def _subscription(line: bytes) -> Subscribe | None:
    with contextlib.suppress(InputError):
        request = _decoded(line)
        return request if isinstance(request, Subscribe) else None
    return None


def _too_long() -> Refused:
    problem = f"is longer than {REQUEST_BYTES} bytes"
    return Refused(message=str(InputError("line", "…", problem, "register fewer containers at a time")))


def _decoded(line: bytes) -> BrokerRequest:
    try:
        request: BrokerRequest = _REQUESTS.decode(line)
    except msgspec.ValidationError as error:
        raise _refusal(line, str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(line, error) from error
    return request


def _refusal(line: bytes, problem: str) -> InputError:
    """The error for a line that does not match `plimsoll.broker.wire`, with field and value.

    The decoder reports the first field that does not match. The rest of the line may still be no JSON.
    """
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _no_json(line, error)
    what, _, path = problem.partition(" - at ")
    field = path.strip("`").removeprefix("$").removeprefix(".") or "request"
    remedy = "see plimsoll.broker.wire for what each request holds"
    return InputError(field, _value_at(value, field), f"is refused ({what})", remedy)


def _no_json(line: bytes, problem: Exception) -> InputError:
    shown = line[:80].decode(errors="backslashreplace").rstrip()
    return InputError("line", shown, f"is not JSON ({problem})", "send one JSON object a line")


def _value_at(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    """The value at a path like `containers[0].name`; the whole value where the path leads nowhere."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return value
    return value
