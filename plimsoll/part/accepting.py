"""Accepts the connections of a listening socket, TCP or UNIX, whatever happens to file descriptors.

What always holds: an accept that fails, for instance because file descriptors ran out, is tried again after a pause.
Connections wait in the kernel meanwhile, and the log has one line for a series of failures. asyncio's own servers log
each failure and each of its retries, some hundred thousand lines in a few seconds.
"""

import asyncio
import errno
import math
import socket
from collections.abc import Callable
from typing import Final

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


class Acceptor:
    """Accepts the connections of a listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        take_in: Callable[[socket.socket], None],
        log_error: Callable[..., None],
    ) -> None:
        """Give each accepted socket to `take_in`.

        Args:
            listener: listens, and does not block. Its owner from now on is `run`.
            take_in: becomes the owner of each accepted socket, which does not block either.
            log_error: writes a log line: the event, and its details as keywords.
        """
        self._listener = listener
        self._take_in = take_in
        self._log_error = log_error
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
        except (BlockingIOError, ConnectionAbortedError):
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
            effect = "connections wait until an accept succeeds"
            self._log_error("accept_failed", problem=str(error), effect=effect, remedy=remedy)
        self._failed_s = now_s
