"""Facts about the machine's driver and GPU.

A process of its own finds them, as the tests' process loads no driver.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "facts.py"


class Facts(NamedTuple):
    """The driver's file, and the UUID of the first GPU, or of the one that `PLIMSOLL_TEST_GPU` names."""

    driver: Path
    gpu: str


def find(surroundings: Mapping[str, str]) -> Facts:
    """Read the facts from the machine."""
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True, timeout=60)
    driver, uuid = json.loads(done.stdout)
    return Facts(Path(driver), uuid)
