"""The broker's directory that the commands on this machine use by default."""

import os
from pathlib import Path

from plimsoll.broker.wire import CONTROL_NAME, SYSTEM_ROOT


def default_root() -> Path:
    """The system broker's directory where this user may use it, else a directory of this user's own."""
    system = Path(SYSTEM_ROOT)
    if os.access(system / CONTROL_NAME, os.W_OK):
        return system
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "plimsoll" if runtime else Path.home() / ".local" / "state" / "plimsoll"
