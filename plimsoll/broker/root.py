"""The broker's directory: the default one of the commands on this machine, and whether commands use one."""

import fcntl
import os
from pathlib import Path
from typing import Final

from plimsoll.broker.wire import CONTROL_NAME, SYSTEM_ROOT
from plimsoll.part.errors import InputError

USERS_NAME: Final = "run.users"
"""The file on which each command of `plimsoll run` holds a shared lock."""


def has_users(root: Path) -> bool:
    """Whether commands of `plimsoll run` use this directory. Blocks, briefly."""
    try:
        users = os.open(root / USERS_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(users)


def default_root() -> Path:
    """The system broker's directory where this user may use it, else a directory of this user's own.

    Raises:
        InputError: this user has no directory: neither the environment nor the machine's list of users names one. Or
            its path is not UTF-8.
    """
    system = Path(SYSTEM_ROOT)
    if os.access(system / CONTROL_NAME, os.W_OK):
        return system
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return _checked("XDG_RUNTIME_DIR", Path(runtime) / "plimsoll")
    try:
        home = Path.home()
    except RuntimeError as error:
        remedy = "set it to a directory of your own, or give --broker-root"
        raise InputError("HOME", None, "is not set, and this user has no home", remedy) from error
    return _checked("HOME", home / ".local" / "state" / "plimsoll")


def _checked(variable: str, root: Path) -> Path:
    """The directory. The broker's answers are JSON, which has no form for other bytes."""
    try:
        str(root).encode()
    except UnicodeEncodeError as error:
        raise InputError(variable, str(root), "is not UTF-8", "give --broker-root a path that is") from error
    return root
