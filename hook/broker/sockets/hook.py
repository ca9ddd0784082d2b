"""The `hook.sock` of every container: its connections and their datagrams.

What always holds: the kernel names the connecting process (SO_PEERCRED), and the broker checks everything in a
datagram that can be checked. A damaged datagram costs a log line, and the connection goes on. Neither a closed nor
an open connection says whether its process lives: a forked child may hold the connection.
"""

import asyncio
import contextlib
import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.datagram import SIZE, Datagram, DatagramKind, decode, reply
from hook.broker.core.events import ConnectionClosed, DatagramReceived
from hook.broker.core.ids import ContainerKey, Process, full_start_ticks
from hook.broker.core.instructions import Reply
from hook.broker.processes import read_process, uptime_ticks
from plimsoll.broker.pages import SOCKET_NAME
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.part.accepting import Acceptor
from plimsoll.part.errors import InputError

BACKLOG: Final = 1024
"""Connections that may wait to be accepted. Each message uses its own connection, and the library does not wait. If
the queue is full, the library sends the message again with its next one, or the audit finds the change."""
SOCKET_MODE: Final = 0o666
"""A process of any user inside the container may connect."""

DRAIN_DEAD_S: Final = 10.0
"""The longest time, in seconds, to read the datagrams of a dead process. They are in the kernel already. Only a
program that keeps connecting, or a child that keeps sending over its parent's connection, can use up this time."""

DRAIN_S: Final = 1.0
"""The longest time, in seconds, to read the datagrams of a pod before it is removed. It is short, because the monitor
removes one pod after another."""

GLANCE_S: Final = 0.001
"""Seconds until the next check, after a datagram was still unread."""

QUIET_ROUNDS: Final = 3
"""Rounds of the loop in a row in which no datagram may be unread. Data that the loop takes from the kernel
reaches its task in the loop's next round. Until then nothing here shows it."""

StartTask = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts a task of a name, in the group of the broker's tasks."""

_CREDENTIALS: Final = struct.Struct("=iII")


def bind_hook_socket(directory: Path) -> socket.socket:
    """Bind a listening `hook.sock` in a directory, in the place of any older socket. Blocks shortly.

    Raises:
        OSError: the directory is gone, or the disk is full.
    """
    return bind_unix(directory, SOCKET_NAME, socket.SOCK_SEQPACKET, mode=SOCKET_MODE, backlog=BACKLOG)


def bind_unix(
    directory: Path, name: str, kind: socket.SocketKind, *, mode: int, backlog: int
) -> socket.socket:
    """Bind a listening socket in a directory, in the place of any older socket. Blocks shortly.

    The address names the directory by descriptor, because an address holds 107 bytes and the path may be longer. The
    socket gets its name when it already listens. So a process never finds it missing or refusing.

    Args:
        directory: an existing directory.
        name: the socket's name in the directory.
        kind: the socket's kind.
        mode: the socket's permissions.
        backlog: connections that may wait to be accepted.

    Raises:
        OSError: the directory is gone or not writable, or the disk is full.
    """
    draft = directory / f".{name}.new"
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{place}/{draft.name}")
        draft.chmod(mode)
        listener.listen(backlog)
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        draft.replace(directory / name)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(place)
    return listener


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection of a process.

    Attributes:
        number: names the connection in replies.
        is_in_use: a datagram of the connection is being handled.
        has_asked: the process may wait for an answer, so the core must know when the connection closes.
        process: the sender of the datagram that is being handled, once it is known.
    """

    container: ContainerKey
    pid: int
    accepted: socket.socket
    number: int
    is_in_use: bool = False
    has_asked: bool = False
    process: Process | None = None


CONNECTIONS_MOST: Final = 1024
"""Connections that a container's processes may hold open at once."""


class HookSockets:
    """Listens for the processes of every container; for the loop's thread only."""

    def __init__(
        self,
        start_task: StartTask,
        known: Callable[[ContainerKey, int, int], Process | None],
        gpus: Callable[[ContainerKey], tuple[GpuUuid, ...]],
        take: Callable[[DatagramReceived | ConnectionClosed], Awaitable[None]],
        log: BoundedLog | None = None,
    ) -> None:
        self._log = log or BoundedLog()
        self._start_task = start_task
        self._known = known
        self._gpus = gpus
        self._take = take
        self._listeners: dict[ContainerKey, tuple[socket.socket, asyncio.Task[None]]] = {}
        self._connections: dict[ContainerKey, dict[asyncio.Task[None], _Connection]] = {}
        self._numbered: dict[int, _Connection] = {}
        self._count = 0

    def listens_for(self, container: ContainerKey) -> bool:
        """Whether a container's socket is open."""
        return container in self._listeners

    def listen(self, container: ContainerKey, listener: socket.socket) -> None:
        """Accept a container's processes from now on; owns the socket."""
        assert container not in self._listeners
        name = f"hook.sock of {container.pod}/{container.container}"
        self._connections[container] = {}
        log_error = partial(self._log.error, container=container)
        acceptor = Acceptor(listener, partial(self._take_in, container), log_error)
        task = self._start_task(acceptor.run(), name)
        self._listeners[container] = (listener, task)

    def close(self, container: ContainerKey) -> None:
        """Stop listening for a container, and close its connections."""
        if container in self._listeners:
            self._listeners.pop(container)[1].cancel()
        for task in self._connections.pop(container, {}):
            task.cancel()

    def reply(self, to: Reply) -> None:
        """Answer a waiting process; a closed connection, or a process that reads nothing, is ignored."""
        connection = self._numbered.get(to.connection)
        if connection is None:
            return
        try:
            connection.accepted.send(reply(to.gpu, to.refusal))
        except OSError as error:
            self._log.info("reply_not_sent", connection.container, pid=connection.pid, problem=str(error))

    async def drain_dead(self, pid: int, containers: Iterable[ContainerKey]) -> None:
        """Wait until every datagram of a dead process in these containers was handled, at most `DRAIN_DEAD_S`.

        A program whose allocation is refused often dies of that. Then the denial and the death arrive together, and
        the denial may be in a connection that is not accepted yet. A connection that a child holds open is waited for
        only as long as it holds a datagram. Other containers, and containers removed meanwhile, are not waited for.
        """
        await self._until_quiet(tuple(containers), pid, DRAIN_DEAD_S)

    async def drain(self, containers: Iterable[ContainerKey]) -> None:
        """Wait until every datagram in these containers was handled, at most `DRAIN_S`.

        A pod often ends with the death of its only process. Then its removal arrives together with that process's
        last datagrams.
        """
        await self._until_quiet(tuple(containers), None, DRAIN_S)

    async def _until_quiet(
        self, containers: tuple[ContainerKey, ...], pid: int | None, most_s: float
    ) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                quiet_rounds = 0
                while quiet_rounds < QUIET_ROUNDS:
                    is_quiet = self._is_quiet(containers, pid)
                    quiet_rounds = quiet_rounds + 1 if is_quiet else 0
                    await asyncio.sleep(0 if is_quiet else GLANCE_S)

    def _is_quiet(self, containers: Iterable[ContainerKey], pid: int | None) -> bool:
        """Whether no connection waits to be accepted, and no datagram of this process, or of any, to be handled."""
        here = [one for key in containers for one in self._connections.get(key, {}).values()]
        connections = [connection for connection in here if pid in (None, connection.pid)]
        if any(connection.is_in_use for connection in connections):
            return False
        poll = select.poll()
        for key in containers:
            if key in self._listeners:
                poll.register(self._listeners[key][0], select.POLLIN)
        for connection in connections:
            poll.register(connection.accepted, select.POLLIN)
        return not poll.poll(0)

    def _take_in(self, container: ContainerKey, accepted: socket.socket) -> None:
        pid = _peer_pid(accepted)
        connections = self._connections[container]
        if len(connections) >= CONNECTIONS_MOST:
            self._log.warning("too_many_connections", container, pid=pid, most=CONNECTIONS_MOST)
            accepted.close()
            return
        connection = _Connection(container, pid, accepted, self._count + 1)
        work = self._serve(connection)
        try:
            task = self._start_task(work, f"hook of {pid}")
        except RuntimeError:  # The broker ends, and its group takes no more tasks.
            work.close()
            accepted.close()
            return
        self._count += 1
        connections[task] = self._numbered[self._count] = connection
        task.add_done_callback(partial(self._forget, connection))

    def _forget(self, connection: _Connection, task: asyncio.Task[None]) -> None:
        connection.accepted.close()
        self._connections.get(connection.container, {}).pop(task, None)
        del self._numbered[connection.number]

    async def _serve(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        while data := await _received(loop, connection.accepted):
            connection.is_in_use = True
            problem = await self._handle(connection, data)
            connection.is_in_use = False
            if problem is not None:
                self._log.warning(
                    "datagram_damaged", connection.container, pid=connection.pid, problem=problem
                )
        if connection.has_asked:
            await self._take(ConnectionClosed(connection.number, loop.time()))

    def _known_or_met(self, container: ContainerKey, pid: int, owner: int) -> Process | None:
        """The announced process, or the sender of a datagram that is still being handled."""
        met = (each.process for each in self._connections.get(container, {}).values() if each.pid == pid)
        found = (process for process in met if process is not None and process.owner == owner)
        return self._known(container, pid, owner) or next(found, None)

    async def _handle(self, connection: _Connection, data: bytes) -> str | None:
        """Handle a datagram; returns the problem with it, or None."""
        container, pid = connection.container, connection.pid
        asks_on: GpuUuid | None = None
        problem = None
        try:
            datagram = decode(data, self._gpus(container))
            asks_on = datagram.gpu if datagram.kind is DatagramKind.WAIT else None
            process = self._known_or_met(container, pid, datagram.owner) or _sender(pid, datagram)
            connection.process = process
            connection.has_asked |= datagram.kind is DatagramKind.WAIT
            at_s = asyncio.get_running_loop().time()
            await self._take(DatagramReceived(container, process, datagram, connection.number, at_s))
            return None
        except (InputError, OSError) as error:
            problem = str(error)
        except Exception:  # noqa: BLE001 - no tenant's datagram may end the node's broker
            self._log.error("datagram_not_handled", container, pid=pid, value=data.hex(), exc_info=True)
        if asks_on is not None:  # The process sleeps until it gets an answer.
            refusal = problem or "the broker failed; its log says why"
            self.reply(Reply(connection.number, asks_on, refusal=refusal))
        return problem


async def _received(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> bytes:
    """The next datagram, cut to a byte more than the longest valid one; empty at the end of the connection."""
    try:
        return await loop.sock_recv(accepted, SIZE + 1)
    except ConnectionError:
        return b""


def _sender(pid: int, datagram: Datagram) -> Process:
    """The sender of a datagram, from /proc. Two small readings there cost less than a change of threads.

    Raises:
        InputError: the owner that it names is not the process that connected.
    """
    _check_seen(pid)
    process = read_process(pid, (datagram.owner,))
    if process is None:
        # The process died since. Only the owner word in its datagram is left; its slots are cleared by that.
        start_ticks = full_start_ticks(datagram.owner, uptime_ticks())
        return Process(ProcessKey(pid, start_ticks), datagram.owner)
    if process.owner != datagram.owner:
        problem = f"is not {process.owner}, the word of process {pid}"
        raise InputError("owner", datagram.owner, problem, "let each process send its own messages")
    return process


def _check_seen(pid: int) -> None:
    if pid == 0:
        remedy = "run the broker in the host's pid namespace (hostPID: true)"
        raise InputError("SO_PEERCRED", 0, "is a process that the broker cannot see", remedy)


def _peer_pid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[0])
