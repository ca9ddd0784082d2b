"""Which broker's directory the commands on this machine use, unless they are told."""

import os
from pathlib import Path

from plimsoll.broker.wire import CONTROL_NAME, SYSTEM_ROOT


def default_root() -> Path:
    """The system's broker where we may use it, else a directory of this user's."""
    system = Path(SYSTEM_ROOT)
    if os.access(system / CONTROL_NAME, os.W_OK):
        return system
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "plimsoll" if runtime else Path.home() / ".local" / "state" / "plimsoll"
