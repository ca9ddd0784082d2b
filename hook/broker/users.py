"""Ends a private broker once its last user has ended, however that happened.

Each user holds a shared lock on one file. The kernel releases it with the user's last process, also where that was
killed, and where no disk has room for a message. What always holds: a broker that ends has the lock for itself until
its process is gone. So a new user waits for that end, and starts another broker.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

from plimsoll.part.errors import InputError

LOOK_S: Final = 0.2
"""The time between two tries of the lock: shorter than anybody waits for, and one system call. A thread that waited
in the kernel could not be ended by a signal."""


@contextlib.contextmanager
def users_file(name: str) -> Iterator[int | None]:
    """The file on which users hold their lock; the lock is released when the context ends. Blocks, briefly.

    Args:
        name: its path; empty for a broker that lives without users.

    Yields:
        Its descriptor; None without a path.

    Raises:
        InputError: the file cannot be opened.
    """
    if not name:
        yield None
        return
    try:
        users = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem, remedy = f"cannot be opened ({error})", "name a file of your own, or leave it out"
        raise InputError("PLIMSOLL_BROKER_USERS_LOCK", name, problem, remedy) from error
    try:
        yield users
    finally:
        os.close(users)


async def stop_once_unused(users: int, stop: asyncio.Event) -> None:
    """Set `stop` once nobody else holds the lock. The lock stays with this process."""
    while True:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOOK_S)
        else:
            stop.set()
            return
