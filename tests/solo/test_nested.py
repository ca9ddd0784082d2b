"""`plimsoll run` within `plimsoll run`: each command has a line of its own, on the machine that there is."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from plimsoll.native import HOOK_LIBRARY
from tests.placer.local.world import BUSY
from tests.solo.machine import Machine

CLEARED = 'env -i PLIMSOLL_EMULATOR="$PLIMSOLL_EMULATOR" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" PYTHONPATH="$PYTHONPATH"'


def nested(root: Path, command: str) -> str:
    """A shell's command that runs another one under a line of 4 GiB."""
    return f"{sys.executable} -m plimsoll run --broker-root {root} --gpu-memory 4Gi -- {command}"


async def test_a_command_within_a_command_is_held_to_its_own_line(machine: Machine) -> None:
    """It gets room beside the outer one's, more than the outer line too, and each program has its own line."""
    past = f"{BUSY} --memory 2Gi"
    script = "; ".join(
        (nested(machine.root, past), past, nested(machine.root, f"{BUSY} --memory 5Gi"), "true")
    )
    code, output, errors = await machine.run("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    ends = [line for line in map(json.loads, output.splitlines()) if line["phase"] in ("done", "failed")]
    assert [line["phase"] for line in ends] == ["done", "failed", "failed"], output
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("cleared", ["", CLEARED], ids=["with the variables", "without"])
async def test_a_broker_that_a_command_starts_belongs_to_no_command(
    machine: Machine, tmp_path: Path, cleared: str
) -> None:
    """It sees the GPU and not the outer line, does not keep the outer command alive, and is not held itself."""
    if cleared and os.geteuid() != 0:
        pytest.skip("without its variables, only root's commands keep the library")
    place = tmp_path / "own"
    await asyncio.to_thread(place.mkdir)
    own = Machine(place)
    waits = "sh -c 'echo ready; read end'"
    inner = f"{cleared} {nested(own.root, waits)}"
    process = await machine.start("--gpu-memory", "1Gi", "--", "sh", "-c", inner)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    [broker] = await own.broker_pids()
    assert "PLIMSOLL_POD_UID" not in await asyncio.to_thread(Path(f"/proc/{broker}/environ").read_text)
    assert HOOK_LIBRARY.name not in await asyncio.to_thread(Path(f"/proc/{broker}/maps").read_text)
    _, errors = await process.communicate(b"\n")
    assert (process.returncode, errors) == (0, b"")
