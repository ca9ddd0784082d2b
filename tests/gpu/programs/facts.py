"""Prints the driver's file, and the UUID of the first GPU, or of the one that `PLIMSOLL_TEST_GPU` names."""

import ctypes
import json
import os
import sys
from pathlib import Path

import pynvml

ctypes.CDLL("libcuda.so.1")
maps = Path("/proc/self/maps").read_text().splitlines()
driver = next(words[5] for words in map(str.split, maps) if len(words) > 5 and "libcuda.so" in words[5])
pynvml.nvmlInit()
named = os.environ.get("PLIMSOLL_TEST_GPU")
uuid = named or pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
sys.stdout.write(json.dumps([driver, uuid]) + "\n")
