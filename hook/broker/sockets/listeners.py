"""Listening UNIX sockets of the broker: the control socket, and `hook.sock` of every container.

What always holds: an accept that fails, for instance because file descriptors ran out, is tried again after a pause.
Connections wait in the kernel meanwhile.
"""

import asyncio
import errno
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.ids import ContainerKey

ACCEPT_PAUSE_S: Final = 0.5
"""Seconds after an accept that failed for want of file descriptors or memory."""

QUIET_S: Final = 10.0
"""Seconds without a failure after which the next one is logged. At the limit, accepts succeed and fail in turn."""

REMEDIES: Final = {
    errno.EMFILE: "raise the limit on this process's open files: `ulimit -n` in the shell that starts it, or "
    "LimitNOFILE in its unit",
    errno.ENFILE: "raise fs.file-max, the machine's limit on open files",
}
"""By the error of an accept."""


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


class Acceptor:
    """Accepts the connections of a listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        take_in: Callable[[socket.socket], None],
        log: BoundedLog,
        container: ContainerKey | None = None,
    ) -> None:
        """Give each accepted socket to `take_in`; log failures as those of the container, or of the node (None)."""
        self._listener = listener
        self._take_in = take_in
        self._log = log
        self._container = container
        self._has_failed = asyncio.Event()
        self._failed_s = -math.inf

    async def run(self) -> None:
        """Accept connections until cancelled, then close the listener.

        One reader serves all connections: `sock_accept` would register one for each.
        """
        loop = asyncio.get_running_loop()
        with self._listener:
            try:
                while True:
                    loop.add_reader(self._listener, self._accept_one)
                    await self._has_failed.wait()
                    self._has_failed.clear()
                    loop.remove_reader(self._listener)
                    await asyncio.sleep(ACCEPT_PAUSE_S)
            finally:
                loop.remove_reader(self._listener)

    def _accept_one(self) -> None:
        """Accept one connection in each round of the loop: a program that only connects must not stop the loop."""
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(error)
        else:
            accepted.setblocking(False)  # noqa: FBT003 - the standard library's own signature
            self._take_in(accepted)

    def _failed(self, error: OSError) -> None:
        """Have the accept tried again after a pause, and log the first failure of a series."""
        self._has_failed.set()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._failed_s > QUIET_S:
            remedy = REMEDIES.get(error.errno or 0, "free some of the machine's memory")
            details = {"effect": "connections wait until an accept succeeds", "remedy": remedy}
            self._log.error("accept_failed", self._container, problem=str(error), **details)
        self._failed_s = now_s
