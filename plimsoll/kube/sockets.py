"""Sockets to the API server whose peer the kernel probes while they are silent."""

import socket
from typing import Final, Protocol

PROBE_AFTER_S: Final = 15
PROBE_EVERY_S: Final = 5
PROBES: Final = 3
"""TCP keep-alive: the kernel probes a connection that was silent for 15 s, and ends it after three probes without an
answer. So a watch on a server whose machine is gone, or behind a cut network, ends after 30 s."""


class Probed(Protocol):
    """A socket, or asyncio's view of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""


def probe(made: Probed) -> None:
    """Have the kernel probe the peer of a TCP socket."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    # Probes are not sent while sent data waits for its acknowledgement, so that has a limit of its own.
    made.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S)
    )
