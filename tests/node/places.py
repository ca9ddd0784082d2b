"""The names and paths that the parts of a test node share."""

import os
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
NODE: Final = "node-1"
DIRECTORY_VARIABLE: Final = "TEST_NODE_DIRECTORY"
"""Names the directory of a test node's files; set in its namespaces alone.

It does not begin with `PLIMSOLL_`, as parts refuse such names that are not theirs.
"""
MULTIARCH: Final = sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"


def directory() -> Path | None:
    """The directory of the node's files; None outside of a test node's namespaces."""
    found = os.environ.get(DIRECTORY_VARIABLE)
    return Path(found) if found else None
