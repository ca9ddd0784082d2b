"""`plimsoll status` and `plimsoll resize` as a user types them, beside real programs under a real broker."""

import asyncio
import os
import signal

from plimsoll.broker.environment import processes_of
from tests.placer.arrivals import eventually
from tests.placer.local.world import BUSY, gpu_of
from tests.solo.machine import Machine

GREEDY = ("--", BUSY, "--memory", "256Mi", "--kernel-ms", "1", "--seconds", "600")


async def started(machine: Machine, name: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a command of this name, and wait until its program runs."""
    process = await machine.start("--name", name, *arguments)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def why(machine: Machine, name: str) -> str:
    """The text after the columns of a command's line."""
    code, output, errors = await machine.plimsoll("status")
    assert (code, errors) == (0, "")
    [row] = [line for line in output.splitlines() if f"plimsoll-run/{name} " in line]
    return row.rpartition("%  ")[2].rpartition("–  ")[2].strip()


async def test_it_is_told_who_has_the_gpu_and_who_waits_for_what(machine: Machine) -> None:
    """A command alone runs freely. Beside one that requested more it waits while that one is behind.

    A command at its limit is shown so, alone or not.
    """
    first = await started(machine, "first", "--gpu-memory", "1Gi", "--gpu-share", "30", *GREEDY)

    async def first_waits() -> str:
        return await why(machine, "first")

    await eventually(first_waits, expected="runs freely: its gate is open, nothing is metered")
    second = await started(machine, "second", "--gpu-memory", "2Gi", "--gpu-share", "60", *GREEDY)
    await eventually(first_waits, expected="waits: others are behind; has its request")
    code, output, errors = await machine.plimsoll("status")
    assert f"{gpu_of('here')}: promised are 90 % of its time, 3Gi of its memory" in output, errors
    assert " 556Mi of 2Gi " in output, "its context is counted, as the first one was measured"
    code, _, errors = await machine.plimsoll("resize", "-n", "plimsoll-run", "first", "--gpu-share-limit=31")
    assert (code, errors) == (0, "")
    code, _, errors = await machine.plimsoll(
        "resize", *("-n", "plimsoll-run", "first", "--container", "side", "--gpu-share", "9")
    )
    assert (code, "container: 'side' has no GPU in this pod" in errors) == (2, True), errors
    await eventually(first_waits, expected="waits: is at its limit")
    second.terminate()
    await second.communicate()
    await eventually(first_waits, expected="waits: is at its limit")
    first.terminate()
    await first.communicate()


async def test_where_nothing_runs_there_is_nothing_to_tell(machine: Machine) -> None:
    """Without a broker the command starts none, waits for none, and says that nothing runs."""
    code, output, errors = await machine.plimsoll("status")
    assert (code, output) == (1, "")
    assert f"no broker is at {machine.root}: nothing runs under `plimsoll run` there" in errors


async def test_a_broker_that_died_is_said_not_to_answer(machine: Machine) -> None:
    """Where `plimsoll run` was killed too, a dead broker's socket stays, and the command asks for a bounded time."""
    script = "echo ready; exec >&- 2>&-; sleep 1000"
    process = await started(machine, "first", "--gpu-memory", "1Gi", "--", "sh", "-c", script)
    [pod], [broker] = await machine.registered(), await machine.broker_pids()
    process.kill()
    await process.wait()
    os.kill(broker, signal.SIGKILL)
    code, output, errors = await machine.plimsoll("status")
    assert (code, output) == (1, "")
    assert "did not take a connection in 5.0 s: no broker runs there" in errors
    for pid in await asyncio.to_thread(processes_of, pod):
        os.kill(pid, signal.SIGKILL)
    await process.communicate()
