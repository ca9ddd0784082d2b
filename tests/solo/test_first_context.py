"""On a fresh root, before the cost of a context is known, each program is held to its line with its own context."""

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from plimsoll.quantity import GIB, MIB
from tests.placer.arrivals import eventually
from tests.solo.machine import Machine

CONTEXT = 300 * MIB
STEP = 32 * MIB
MOST = (GIB - CONTEXT) // STEP * STEP // MIB
PROGRAM = str(Path(__file__).with_name("filling.py"))
FILL = f"{sys.executable} {PROGRAM}"


async def test_short_programs_one_after_another_fill_the_same_line(machine: Machine) -> None:
    """The excess of a program ends with it. It neither fills the line of the next nor stands for its measurement."""
    code, output, errors = await machine.run("--gpu-memory", "1Gi", "--", sys.executable, PROGRAM, "short")
    assert (code, output.split(), errors) == (0, [str(MOST)] * 4, "")
    costs = json.loads(await asyncio.to_thread((machine.root / "contexts.json").read_text))
    assert list(costs["context_bytes"].values()) == [CONTEXT], "short programs show the cost too"


async def test_every_thread_waits_for_the_measurement_and_status_counts_the_context(machine: Machine) -> None:
    """A thread that uses the context while another waits gets no more. `status` shows the context as well."""
    command = await machine.start("--gpu-memory", "1Gi", "--", sys.executable, PROGRAM, "threads", "stay")
    assert command.stdout is not None
    assert int(await command.stdout.readline()) == MOST
    held = f"{MOST + CONTEXT // MIB}Mi of 1Gi"
    assert held in (await machine.plimsoll("status"))[1]
    await command.communicate(b"")


async def test_a_program_that_was_not_measured_in_time_is_named(machine: Machine) -> None:
    """While NVML is too slow, standard error and the broker's log say that the context is not held."""
    script = f"echo placed && read _ && exec {FILL} stay"
    command = await machine.start("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    assert command.stdout is not None
    assert command.stdin is not None
    assert await command.stdout.readline() == b"placed\n"
    await machine.slow_nvml(3500)
    command.stdin.write(b"\n")
    assert await command.stdout.readline(), "the program has allocated"
    await eventually(partial(has_logged, machine, "context_not_measured_in_time"), expected=True)
    _, errors = await command.communicate(b"")
    assert "NVML did not show the memory of this process" in errors.decode()


async def has_logged(machine: Machine, event: str) -> bool:
    """Whether the private broker has logged this event."""
    return event in await asyncio.to_thread((machine.root / "private-broker.log").read_text)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_program_without_proc_is_held_and_not_called_unheld(machine: Machine) -> None:
    """The kernel names the process to the broker, so its context counts and its slot stays."""
    script = f"mount -t tmpfs none /proc && exec {FILL} stay"
    command = await machine.start("--gpu-memory", "1Gi", "--", "unshare", "-m", "sh", "-c", script)
    assert command.stdout is not None
    assert int(await command.stdout.readline()) == MOST
    assert "NOT HELD" not in (await machine.plimsoll("status"))[1]
    _, errors = await command.communicate(b"")
    assert errors == b""
