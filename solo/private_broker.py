"""The broker of `plimsoll run`: the machine's own, or a private one for as long as commands use it.

What always holds: a private broker is started under the lock of its directory. It ends by itself once nobody holds
the lock on the file of its users any more: neither a `plimsoll run`, nor a command whose `plimsoll run` was killed.
The kernel releases that lock, however a process ends, and on a full disk too.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn, Self

import msgspec

from plimsoll.broker.announcements import Announcement
from plimsoll.broker.connection import Connection, DamagedError, LostError
from plimsoll.broker.environment import without_pod
from plimsoll.broker.root import USERS_NAME
from plimsoll.broker.wire import SYSTEM_ROOT, Subscribe
from plimsoll.part.causes import is_disk_full
from plimsoll.part.child import Child, Program, start
from plimsoll.part.errors import BAD_INPUT, InputError, PlimsollError
from plimsoll.part.limits import limit_of
from plimsoll.part.program import program_of
from solo.private_mounts import are_in_mounts, leave_mounts

LOCK_NAME: Final = "run.lock"
LOG_NAME: Final = "private-broker.log"
LOG_MODE: Final = 0o600
FIRST_EVENT: Final = "private broker starts"
MODULE: Final = "hook.broker"
FILES_AT_LEAST: Final = 20
"""Open files that a broker needs. With a few less it starts, and can then neither measure nor take connections."""

START_S: Final = 20.0
"""Seconds that a private broker may take to start on a loaded machine."""

AGAIN_S: Final = 5.0
"""Seconds between two looks at a broker that is gone."""

LINE_BYTES: Final = 64 * 1024
"""The longest announcement. Real ones have a few hundred bytes."""

IN_USE: Final = "belongs to a running broker"
"""The words by which a broker refuses a directory that another one holds."""

LAST_CHARS: Final = 500
"""The most characters of a line of the log that a message shows."""


class _Refusal(msgspec.Struct):
    """The part of a log line that names why a broker refused to start."""

    problem: str = ""


class PrivateBrokerError(PlimsollError):
    """The private broker ended before the command was started; the message has its last words.

    Attributes:
        is_input: a setting was to blame, so the same command fails again.
    """

    def __init__(self, root: Path, what: str, code: int, last: str) -> None:
        super().__init__(f"the private broker {what}: {last} (its log is {root / LOG_NAME})")
        self.is_input = code == BAD_INPUT


async def make_root(root: Path) -> None:
    """Make the broker's directory.

    Raises:
        InputError: the directory cannot be used.
    """
    try:
        await asyncio.to_thread(root.mkdir, 0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(root, error) from error


def _unusable(root: Path, error: OSError) -> PlimsollError:
    if limit := limit_of(error):
        return PlimsollError(limit)
    remedy = "free some room on its disk" if is_disk_full(error) else "name a directory of your own"
    return InputError("--broker-root", str(root), f"cannot be used ({error})", remedy)


async def ensure_broker(root: Path, environment: Mapping[str, str], children: set[int]) -> Child | None:
    """Start a private broker if none answers at this root, and return it.

    Call this as a user of the broker, and under the lock of the directory.

    Args:
        root: the broker's directory.
        environment: the variables of a private broker.
        children: gets the pid of a private broker.

    Raises:
        PrivateBrokerError: the private broker ended at its start.
        InputError: its log cannot be written.
    """
    return None if await _is_listening(root) else await _start(root, environment, children)


@contextlib.asynccontextmanager
async def needing(root: Path, broker: Child | None) -> AsyncIterator[None]:
    """Give up once the private broker has ended: nobody starts another one under the lock of the directory.

    Args:
        root: the broker's directory.
        broker: as `ensure_broker` returned it; None for a broker of others.

    Raises:
        PrivateBrokerError: it has ended.
    """
    if broker is None:
        yield
        return
    body = asyncio.timeout(None)
    try:
        async with body:
            ended = asyncio.create_task(_expire_with(broker, body), name="private broker ends")
            try:
                yield
            finally:
                ended.cancel()
    except TimeoutError as error:
        if not body.expired():
            raise
        last = _last_words(await broker.written())
        raise PrivateBrokerError(root, "ended", await broker.wait(), last) from error


async def _expire_with(broker: Child, body: asyncio.Timeout) -> None:
    """Cancel the body when the broker ends, unless it ended because another one has the directory."""
    await broker.wait()
    if IN_USE not in _last_words(await broker.written()):
        body.reschedule(asyncio.get_running_loop().time())


async def keep_broker(
    root: Path, environment: Mapping[str, str], children: set[int], take: Callable[[Announcement], None]
) -> NoReturn:
    """Start the private broker again each time that it has died; cancelling is safe.

    Call this as a user of the broker. The node's own broker is started again by its own supervisor.

    Args:
        root: the broker's directory.
        environment: the variables of a private broker.
        children: gets the pids of private brokers.
        take: gets every announcement of the broker. Those that it keeps come again from the next broker.
    """
    while True:
        await _follow(root, take)
        if root != Path(SYSTEM_ROOT):
            # A broker that cannot start, for instance for a full disk, has said so in its log.
            with contextlib.suppress(PlimsollError):
                async with locked(root):
                    await ensure_broker(root, environment, children)
        await asyncio.sleep(AGAIN_S)


async def _follow(root: Path, take: Callable[[Announcement], None]) -> None:
    """Take announcements until the broker has closed the connection, or takes none."""
    try:
        connection = await Connection.open(root, LINE_BYTES)
    except LostError:
        return
    try:
        await connection.send(Subscribe())
        while True:
            with contextlib.suppress(DamagedError):
                answer = await connection.read()
                if isinstance(answer, Announcement):
                    take(answer)
    except LostError:
        return
    finally:
        connection.abort()


@contextlib.asynccontextmanager
async def using(root: Path) -> AsyncIterator[int]:
    """Keep a private broker of this directory alive, as one of its users. A broker that is ending has ended by then.

    Yields:
        The descriptor of the lock. A process that inherits it is a user too, until the context ends.

    Raises:
        InputError: the directory cannot be used.
    """
    async with _lock(root, USERS_NAME, fcntl.LOCK_SH) as handle:
        try:
            yield handle
        finally:
            # A server that the command left behind has inherited the descriptor, and is no user of ours.
            fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.asynccontextmanager
async def locked(root: Path) -> AsyncIterator[None]:
    """Hold the directory's lock. The kernel releases it when the process ends, however that ends.

    Raises:
        InputError: the directory cannot be used.
    """
    async with _lock(root, LOCK_NAME, fcntl.LOCK_EX):
        yield


@contextlib.asynccontextmanager
async def _lock(root: Path, name: str, kind: int) -> AsyncIterator[int]:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        handle = await asyncio.to_thread(os.open, root / name, flags, 0o600)
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        await asyncio.to_thread(fcntl.flock, handle, kind)
        yield handle
    finally:
        os.close(handle)


async def _is_listening(root: Path) -> bool:
    """Whether a broker takes connections. If none does, no other `plimsoll run` is about to start one.

    A broker that stands still takes connections; the next request waits for it, and says why it cannot go on.
    """
    try:
        connection = await Connection.open(root, LINE_BYTES)
    except LostError:
        return False
    connection.abort()
    return True


async def _start(root: Path, environment: Mapping[str, str], children: set[int]) -> Child:
    """Start a broker that outlives this process: other commands may come to use it."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < FILES_AT_LEAST:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    program = Program(
        program_of(MODULE),
        # No monitor measures for this broker, so the broker measures by itself. The environment may switch that off.
        {
            "PLIMSOLL_BROKER_MEASURE": "true",
            **without_pod(environment),
            "PLIMSOLL_BROKER_ROOT": str(root),
            "PLIMSOLL_BROKER_USERS_LOCK": str(root / USERS_NAME),
        },
        output=root / LOG_NAME,
        output_mode=LOG_MODE,
        first_line=msgspec.json.encode({"event": FIRST_EVENT, "for_pid": os.getpid()}) + b"\n",
    )
    before = leave_mounts if await asyncio.to_thread(are_in_mounts) else None
    with _Readiness() as readiness:
        try:
            broker = await start(program, readiness.theirs, before)
        except OSError as error:
            raise _unusable(root, error) from error
        children.add(broker.pid)
        await _until_it_listens_or_ends(root, broker, readiness)
    return broker


class _Readiness:
    """A pipe whose other end is the broker's standard input. The broker closes it once it listens, or by exiting."""

    def __enter__(self) -> Self:
        self._ours, self.theirs = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        self._close_theirs()

    async def wait(self) -> None:
        """Wait until the broker has closed its end; cancelling is safe. Call it once the broker has that end."""
        self._close_theirs()
        loop, closed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._ours, closed.set)
        try:
            await closed.wait()
        finally:
            loop.remove_reader(self._ours)

    def _close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
        self.theirs = -1


async def _until_it_listens_or_ends(root: Path, broker: Child, readiness: _Readiness) -> None:
    """Wait for the broker for `START_S` at most; after that, the next request waits, and says why it cannot go on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            await readiness.wait()
            if await _is_listening(root):
                return
            code = await broker.wait()
            last = _last_words(await broker.written())
            # A broker that was too busy to take our connection holds the directory. The next request waits for it.
            if IN_USE not in last:
                raise PrivateBrokerError(root, "refused to start", code, last)


def _last_words(text: str) -> str:
    """The problems in a part of the log, or its last line where none is named."""
    lines = text.splitlines()
    problems = [problem for line in lines if (problem := _problem_in(line))]
    return "; ".join(problems) or (lines[-1][:LAST_CHARS] if lines else "it wrote nothing")


def _problem_in(line: str) -> str:
    try:
        return msgspec.json.decode(line, type=_Refusal).problem
    except msgspec.MsgspecError:
        return ""


def last_words(root: Path) -> str:
    """The problems that the last private broker here has named, and its log; empty without a log. Blocks."""
    try:
        content = (root / LOG_NAME).read_text(errors="replace")
    except OSError:
        return ""
    began = max(content.rfind(f'{{"event":"{FIRST_EVENT}"'), 0)
    return f"; its last words: {_last_words(content[began:])} (its log is {root / LOG_NAME})"
