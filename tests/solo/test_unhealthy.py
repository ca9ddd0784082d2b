"""GPUs that are broken, lost or do not answer, under `plimsoll run`: the monitor's judge, and an answer that fits."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.placer.arrivals import eventually
from tests.placer.local.world import gpu_of
from tests.solo.machine import Machine

HERE, THERE = gpu_of("here"), gpu_of("there")
WHERE = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with two GPUs, of which a command gets the first."""
    machine = Machine(tmp_path)
    machine.add_gpu("there")
    return machine


@asynccontextmanager
async def waiting(machine: Machine) -> AsyncIterator[None]:
    """A command that keeps the broker alive, on the second GPU."""
    process = await machine.start("--gpu-memory", "1Mi", "--gpu-id", THERE, "--", "cat")
    await eventually(lambda: _count(machine), 1)
    try:
        yield
    finally:
        await process.communicate(b"")


async def _count(machine: Machine) -> int:
    return len(await machine.registered())


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (("fault", "0", "recovery", "1"), "the driver asks: reset the GPU"),
        (("fault", "0", "remap-failed", "1"), "a row could not be remapped"),
        (("lose", "0"), "NVML cannot read it"),
        (("fail", "0", "nvmlDeviceGetMemoryInfo", "999"), "NVML cannot read it"),
    ],
)
async def test_no_command_goes_to_a_broken_gpu(machine: Machine, fault: tuple[str, ...], text: str) -> None:
    """The command goes to the other GPU without a word; `status` and, for figures, the doctor name the fault."""
    await machine.book(*fault)
    async with waiting(machine):
        assert await machine.run("--", *WHERE) == (0, f"{THERE}\n", "")
        _, shown, _ = await machine.plimsoll("status")
        assert f"{HERE} is not healthy: fatal: {text}" in shown
        _, found, _ = await machine.plimsoll("doctor")
        assert text in found


@pytest.mark.parametrize("fault", [("lose", "0"), ("fault", "0", "recovery", "1")])
@pytest.mark.parametrize(
    ("asked", "seen"),
    [(("--gpu", "2"), None), (("--gpu-id", HERE), None), ((), "0"), ((), HERE)],
)
async def test_a_gpu_that_may_come_back_is_waited_for(
    machine: Machine, fault: tuple[str, ...], asked: tuple[str, ...], seen: str | None
) -> None:
    """Only a GPU that is not well would do: the message names the fault, and the exit code says to try again."""
    await machine.book(*fault)
    environment = {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}
    code, output, errors = await machine.run(*asked, "--", "true", **environment)
    assert (code, output, errors.count("\n")) == (75, "", 1), errors
    assert "it had unhealthy GPUs (" in errors
    assert "reset the GPU" in errors


async def test_the_command_that_a_refusal_names_shows_the_fault(machine: Machine) -> None:
    """The private broker ends with the refused command, so whoever asks next finds none."""
    await machine.book("fault", "0", "recovery", "1")
    _, _, errors = await machine.run("--gpu-id", HERE, "--", "true")
    await eventually(machine.has_no_broker, expected=True)
    [command] = re.findall("`plimsoll ([a-z]+)` shows each fault", errors)
    _, shown, _ = await machine.plimsoll(command)
    assert f"{HERE} (fatal: the driver asks: reset the GPU)" in " ".join(shown.split())


async def test_all_gpus_lost_is_no_machine_without_gpus(machine: Machine) -> None:
    """A machine whose every GPU is lost may have them back."""
    await machine.book("lose", "0")
    await machine.book("lose", "1")
    code, _, errors = await machine.run("--", "true")
    assert (code, "it had unhealthy GPUs (lost)" in errors) == (75, True), errors


async def test_a_fault_makes_no_small_gpu_large(machine: Machine) -> None:
    """A command that a broken GPU could not hold if it were well can never run here."""
    await machine.book("fault", "0", "recovery", "1")
    code, _, errors = await machine.run("--gpu-memory", "100Gi", "--", "true")
    assert (code, "can never run the command" in errors) == (2, True), errors


async def test_an_xid_error_outlives_the_broker_and_ends_by_a_reset(machine: Machine) -> None:
    """NVML shows an XID error once. The next broker knows of it until the GPU was reset."""

    async def is_known() -> bool:
        return "XID 79" in (await machine.plimsoll("status"))[1]

    async with waiting(machine):
        await machine.book("xid", "0", "79")
        await eventually(is_known, expected=True)
        assert await machine.run("--", *WHERE) == (0, f"{THERE}\n", "")
    await eventually(machine.has_no_broker, expected=True)
    assert await machine.run("--", *WHERE) == (0, f"{THERE}\n", "")
    await machine.book("reset", "0")
    assert await machine.run("--", *WHERE) == (0, f"{HERE}\n", "")


async def test_commands_with_one_name_share_a_gpu(machine: Machine) -> None:
    """A name leads to the GPU that has it, also after a resize; another name gets another GPU."""
    process = await machine.start("--name", "first", "--gpu-memory", "4Gi", "--gpu-id", "team", "--", "cat")
    await eventually(lambda: _count(machine), 1)
    assert (await machine.resize("first", "--gpu-memory", "5Gi"))[0] == 0
    for name, gpu in (("team", HERE), ("other", THERE)):
        ran = await machine.run("--gpu-memory", "1Gi", "--gpu-id", name, "--", *WHERE)
        assert ran == (0, f"{gpu}\n", "")
    code, _, errors = await machine.run("--gpu-memory", "20Gi", "--gpu-id", "team", "--", *WHERE)
    assert (code, "no room for the command now" in errors) == (75, True), errors
    await process.communicate(b"")
