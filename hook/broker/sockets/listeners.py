"""Listening UNIX sockets of the broker: the control socket, and `hook.sock` of every container."""

import os
import socket
from pathlib import Path


def bind_unix(
    directory: Path, name: str, kind: socket.SocketKind, *, mode: int, backlog: int
) -> socket.socket:
    """A listening socket in a directory, in the place of any older one. Blocks shortly.

    The directory is reached by descriptor: a socket's address holds 107 bytes and the path may be longer. It
    takes its name when it already listens, so a process never finds it missing or deaf.

    Args:
        directory: exists.
        name: within it.
        kind: of the socket.
        mode: its permissions.
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
