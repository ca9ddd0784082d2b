"""Descendants of a command that run without the library are named on standard error, by `status` and in the log."""

import asyncio
import os
import re
import signal

from tests.placer.local.world import BUSY
from tests.servers.waiting import PATIENCE_S
from tests.solo.machine import Machine

PROGRAM = (str(BUSY), *["--memory", "64M", "--kernel-ms", "5", "--gap-ms", "20", "--seconds", "600"])
WORK = " ".join(PROGRAM)
BARE = 'env -i PLIMSOLL_EMULATOR="$PLIMSOLL_EMULATOR" LD_LIBRARY_PATH="$LD_LIBRARY_PATH"'
WAYS = [
    f"{BARE} {WORK} &",
    f"(unset LD_PRELOAD; exec {WORK}) &",
    # A daemon: it has a session of its own, and its parents end.
    f"(setsid {BARE} {WORK} &) &",
]
IN_OWN_NAMESPACE = f"unshare --pid --fork {BARE} {WORK} &"


async def test_descendants_without_the_library_are_named_within_seconds(machine: Machine) -> None:
    """Each way past the library is named once. The program under it, and one that is no descendant, are not."""
    ways = [*WAYS, IN_OWN_NAMESPACE] if os.geteuid() == 0 else WAYS
    # As root the command has a file of preloads of its own, by which these programs would be held.
    bare = ["umount /etc/ld.so.preload"] if os.geteuid() == 0 else []
    script = "\n".join([*bare, f"{WORK} &", "echo $!", *ways, "read end"])
    stranger = await machine.start_program(*PROGRAM)
    command = await machine.start("--gpu-memory", "1Gi", "--name", "job", "--", "sh", "-c", script)
    assert command.stdout is not None
    assert command.stderr is not None
    pids: set[int] = set()
    try:
        async with asyncio.timeout(PATIENCE_S):
            held = int(await command.stdout.readline())
            lines = [(await command.stderr.readline()).decode() for _ in ways]
        told = [re.match(r"plimsoll run: process (\d+) holds .* without the library", line) for line in lines]
        pids = {int(one[1]) for one in told if one}
        assert len(pids) == len(ways), lines
        assert not {held, stranger.pid} & pids
        assert "NOT HELD: without the library runs " in (await machine.plimsoll("status"))[1]
        log = (machine.root / "private-broker.log").read_text()
        assert log.count('"event": "unenforced"') == len(ways)
    finally:
        for pid in {*pids, held}:
            os.kill(pid, signal.SIGKILL)
        stranger.kill()
        await asyncio.gather(stranger.wait(), command.communicate(b""))
