"""Orphans among a command's descendants: `plimsoll run` adopts them, so that the broker finds whose they are.

A daemon's parents end, and by default init adopts it. Then nothing shows the command that it came from, once its
environment was cleared too.
"""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NoReturn

from plimsoll.part.processes import read_stat

_PR_SET_CHILD_SUBREAPER: Final = 36

LOOK_S: Final = 5.0
"""Seconds between two looks for orphans that have ended. A child of our own is known by the second look."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end. A kernel that refuses leaves them to init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def bury_orphans(children: AbstractSet[int]) -> NoReturn:
    """Take the exit codes of adopted processes for ever, so that they do not stay as zombies.

    Args:
        children: the pids of our own children, of which asyncio takes the exit codes.
    """
    dead: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(LOOK_S)
        dead = await asyncio.to_thread(_bury, dead - children) - children


def _bury(before: frozenset[int]) -> frozenset[int]:
    """Bury the children that were dead before; returns those that are dead now. None where the kernel lists none."""
    lists = [file.read_text().split() for file in Path("/proc/self/task").glob("*/children")]
    pids = {int(pid) for pids in lists for pid in pids}
    dead = {pid for pid in pids if (stat := read_stat(pid)) is not None and stat.has_ended}
    for pid in dead & before:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return frozenset(dead - before)
