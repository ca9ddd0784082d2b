"""Facts about the machine's driver and GPU.

A process of its own finds them, as the tests' process loads no driver.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import ctypes, json, os, pynvml
ctypes.CDLL("libcuda.so.1")
maps = open("/proc/self/maps").read().splitlines()
driver = next(words[5] for words in map(str.split, maps) if len(words) > 5 and "libcuda.so" in words[5])
pynvml.nvmlInit()
named = os.environ.get("PLIMSOLL_TEST_GPU")
uuid = named or pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
print(json.dumps([driver, uuid]))
"""


class Facts(NamedTuple):
    """The driver's file, and the UUID of the first GPU, or of the one that `PLIMSOLL_TEST_GPU` names."""

    driver: Path
    gpu: str


def find(surroundings: Mapping[str, str]) -> Facts:
    """Read the facts from the machine."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True, timeout=60)
    driver, uuid = json.loads(done.stdout)
    return Facts(Path(driver), uuid)
