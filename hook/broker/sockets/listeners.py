"""Listening UNIX sockets of the broker: the control socket, and `hook.sock` of every container."""

import os
import socket
from pathlib import Path


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
