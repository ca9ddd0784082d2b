"""Programs under `plimsoll run` in time namespaces: the broker knows them, as anywhere else.

A namespace shifts the clocks that a program reads, and the start times in `/proc`. The broker stays outside.
"""

import json
import os
import sys

import pytest

from solo.private_broker import LOG_MODE, LOG_NAME
from tests.placer.local.world import BUILD
from tests.solo.machine import Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes time namespaces")

ENTER = """
import ctypes, subprocess, sys
assert ctypes.CDLL(None).unshare(0x80) == 0
open("/proc/self/timens_offsets", "w").write(f"monotonic {sys.argv[1]}\\nboottime {sys.argv[1]}\\n")
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
"""Runs a command in a new time namespace (0x80 is CLONE_NEWTIME), with both clocks shifted."""


@pytest.mark.parametrize("shift", ["100000 0", "-5 0", "3 5000000"])
async def test_the_broker_knows_a_process_in_a_time_namespace(machine: Machine, shift: str) -> None:
    """It takes the process's messages, and clears its slot at its end alone. The last shift has half a tick."""
    program = (str(BUILD / "bin" / "busy"), "--memory", "64Mi", "--hold-seconds", "1")
    code, _, errors = await machine.run(
        "--gpu-memory", "1Gi", "--gpu-share", "30", "--", sys.executable, "-c", ENTER, shift, *program
    )
    assert code == 0, errors
    log = machine.root / LOG_NAME
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    known = [event for event in events if event in ("hello", "slots_cleared")]
    assert known[:2] == ["hello", "slots_cleared"]
    assert log.stat().st_mode & 0o777 == LOG_MODE
