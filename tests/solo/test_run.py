"""`plimsoll run` as a process, on an emulated machine, with a private broker."""

import asyncio
import dataclasses
import os
import signal
from pathlib import Path

import pytest

from plimsoll.broker.environment import processes_of
from plimsoll.broker.root import default_root
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from solo.options import RunOptions, memory_asked, pod_of
from tests.placer.arrivals import eventually
from tests.placer.local.world import BUILD, BUSY, GPU_GIB, gpu_of
from tests.servers.waiting import PATIENCE_S
from tests.solo.machine import Machine


async def test_command_runs_within_its_line_and_the_broker_ends_with_it(machine: Machine) -> None:
    """A command gets the memory that it declared, its exit code comes back, and no broker is left."""
    code, output, errors = await machine.run(
        "--gpu-memory", "2Gi", "--gpu-share", "30", "--", BUSY, "--memory", "1Gi"
    )
    assert (code, errors) == (0, "")
    assert '"phase": "done"' in output
    await eventually(machine.has_no_broker, expected=True)


async def test_command_that_passes_its_line_fails_by_itself(machine: Machine) -> None:
    """The command gets CUDA's out-of-memory error, and its own exit code is the result."""
    code, output, _ = await machine.run("--gpu-memory", "1Gi", "--", BUSY, "--memory", "2Gi")
    assert code == 2
    assert "CUDA_ERROR_OUT_OF_MEMORY" in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--gpu-memory", "100Gi", "--", "true"],
            2,
            "can never run the command: Insufficient --gpu-memory on one GPU",
        ),
        (["--gpu-id", "GPU-nope", "--", "true"], 2, "it didn't have the requested GPU; ask for what"),
        (["--gpu-model", "NVIDIA X", "--", "true"], 2, f"{gpu_of('here')} (NVIDIA L4, {GPU_GIB}Gi)"),
        (["--gpu", "2", "--", "true"], 2, "it had too few fitting GPUs"),
        (
            ["--name", "x", "--gpu", "many", "--gpu-share", "1", "--", "true"],
            2,
            "--gpu: 'many' is not a quantity",
        ),
        (["--gpu-memory=-1", "--", "true"], 2, "'-1' is negative; give 0 or more bytes"),
        (
            ["--gpu-share", "101", "--", "true"],
            2,
            "--gpu-share: '101' is more than 1 GPU(s) have; give at most 100",
        ),
        (
            ["--gpu-share", "60", "--gpu-share-limit", "50", "--", "true"],
            2,
            "--gpu-share: '60' is above --gpu-share-limit of 50; lower it to 50 per GPU, or raise --gpu-share-limit",
        ),
        (
            ["--gpu-share-limit", "0", "--", "true"],
            2,
            "--gpu-share-limit: '0' is no percentage of a GPU; give 1 to 100",
        ),
        (
            ["--gpu-share", "30%", "--", "true"],
            2,
            "--gpu-share: '30%' is not a quantity; write a number alone, in percent",
        ),
        (
            ["--gpu", "1", "--gpu-share-limit", "50", "--", "true"],
            2,
            "leave it out, or declare --gpu-memory or --gpu-share",
        ),
        (
            ["true", "--fast", "1"],
            2,
            "put -- before a command that has options",
        ),
        (["--gpu-memory", "1Gi", "--", "/no/such"], 2, "'/no/such' cannot be started"),
        (
            ["--hook-library", str(BUILD / "hook" / "other-machine.so"), "--", "true"],
            2,
            "other-machine.so' is for ",
        ),
        (["--gpu-memory", "1Gi", "--policy", "best", "--", "true"], 2, "'best' is no placement policy"),
    ],
)
async def test_what_cannot_work_is_named_and_leaves_nothing(
    machine: Machine, arguments: list[str], code: int, message: str
) -> None:
    """Bad input, and what no GPU ever has, ends with code 2. The message names the fault, and no broker is left."""
    found, _, errors = await machine.run(*arguments)
    assert (found, message in errors) == (code, True), errors
    await eventually(machine.has_no_broker, expected=True)


async def test_exit_code_and_signals_pass_through(machine: Machine) -> None:
    """`plimsoll run` returns the command's exit code, and forwards SIGTERM to it."""
    assert (await machine.run("--gpu-memory", "1Gi", "--", "sh", "-c", "exit 7"))[0] == 7
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    process = await machine.start("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    assert process.stdout is not None
    await process.stdout.readline()
    process.terminate()
    await process.communicate()
    assert process.returncode == 9


async def test_an_ignored_signal_stays_ignored(machine: Machine) -> None:
    """Under `nohup`, neither `plimsoll run` nor its command ends by the terminal's SIGHUP."""
    script = "kill -HUP $PPID; kill -HUP $$; exit 7"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = await machine.start("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    finally:
        signal.signal(signal.SIGHUP, before)
    await process.communicate()
    assert process.returncode == 7


async def test_simultaneous_commands_share_one_broker_and_never_the_same_room(machine: Machine) -> None:
    """Three simultaneous commands want 10 GiB of a card of 24: two run, and one is refused for lack of room."""
    started = [await machine.start("--gpu-memory", "10Gi", "--", "sh", "-c", "read _") for _ in range(3)]
    ends = [asyncio.create_task(one.wait()) for one in started]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        codes = [one.returncode for one in started]
        assert sorted(codes, key=str) == [75, None, None]
        for one in started:
            await one.communicate(b"\n")
    assert sorted(one.returncode or 0 for one in started) == [0, 0, 75]
    await eventually(machine.has_no_broker, expected=True)


async def test_killed_run_counts_while_its_command_lives_and_no_longer(machine: Machine) -> None:
    """After SIGKILL of `plimsoll run` its command's promise stays until the command ends.

    The next run then clears it.
    """
    first = await machine.start(
        "--gpu-memory", "20Gi", "--", "sh", "-c", "echo ready; exec >&- 2>&-; sleep 1000"
    )
    assert first.stdout is not None
    await first.stdout.readline()
    first.kill()
    await first.wait()
    [pod] = await machine.registered()
    code, _, errors = await machine.run("--gpu-memory", "20Gi", "--", "true")
    assert (code, "no room for the command now" in errors, "has 4Gi free" in errors) == (75, True, True), (
        errors
    )
    for pid in await asyncio.to_thread(processes_of, pod):
        os.kill(pid, signal.SIGKILL)
    await first.communicate()
    assert (await machine.run("--gpu-memory", "20Gi", "--", "true"))[0] == 0
    await eventually(machine.has_no_broker, expected=True)


async def test_a_broker_that_stands_still_keeps_no_exit_code_back(machine: Machine) -> None:
    """The command's exit code comes within seconds without the broker, and the next run clears the leftovers."""
    process = await machine.start("--gpu-memory", "20Gi", "--", "sh", "-c", "echo ready; read _; exit 7")
    assert process.stdout is not None
    await process.stdout.readline()
    [broker] = await machine.broker_pids()
    os.kill(broker, signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate(b"\n")
    assert (process.returncode, "answered at the command's end" in errors.decode()) == (7, True), errors
    os.kill(broker, signal.SIGKILL)
    assert (await machine.run("--gpu-memory", "20Gi", "--", "true"))[0] == 0


async def test_a_program_finds_its_pages_from_another_working_directory(machine: Machine) -> None:
    """A relative `--broker-root` is that of the working directory in which it was given."""
    script = f"cd {BUILD / 'hook'} && exec {BUSY} --memory 64Mi"
    relative = await asyncio.to_thread(os.path.relpath, machine.root)
    code, _, errors = await machine.run(
        "--broker-root", relative, "--gpu-memory", "1Gi", "--", "sh", "-c", script
    )
    assert (code, errors) == (0, "")


def test_a_user_without_a_home_is_asked_for_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers whose user has a number and no name."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    with pytest.raises(InputError, match=r"HOME: None is not set, .*; set it to .*, or give --broker-root"):
        default_root()


def _no_home() -> Path:
    """Stands for a user number that the machine's list does not have."""
    raise RuntimeError


def options(environment: dict[str, str] | None = None, **given: object) -> RunOptions:
    """The parsed options of a command line."""
    return RunOptions(("true",), Path("lib"), Path("root"), environment or {}, **given)  # type: ignore[arg-type]


def test_a_name_beyond_utf_8_is_refused_and_a_programs_is_shown_all_the_same() -> None:
    """Python reads such bytes as surrogates, which no message to the broker can hold."""
    with pytest.raises(InputError, match=r"--name: '\\udcff' is not UTF-8; give a name in UTF-8"):
        pod_of(options(name="\udcff"))
    assert pod_of(dataclasses.replace(options(), command=("/bin/a\udcff",))).metadata.name == "a?"


def test_the_size_is_the_option_then_the_environment_then_the_default() -> None:
    """The option comes before the environment, and the environment before the default, as in ConVGPU.

    Best-effort commands and whole GPUs have no size by default.
    """
    environment = {"PLIMSOLL_GPU_MEMORY": "3Gi"}
    assert memory_asked(options(environment, gpu_memory="2Gi")) == "2Gi"
    assert memory_asked(options(environment)) == "3Gi"
    assert memory_asked(options()) == str(GIB)
    assert memory_asked(options({"PLIMSOLL_GPU_MEMORY": ""}, gpu_share="30")) == str(GIB)
    assert memory_asked(options(gpu="3", gpu_share="30")) == str(3 * GIB)
    assert memory_asked(options(environment, gpu="2")) == "3Gi"
    assert memory_asked(options(gpu="2")) is None
    assert memory_asked(options(environment, best_effort=True)) is None
    with pytest.raises(InputError, match="PLIMSOLL_GPU_MEMORY: 'lots' is not a quantity"):
        memory_asked(options({"PLIMSOLL_GPU_MEMORY": "lots"}))


@pytest.mark.parametrize(("memory", "code"), [("600Mi", 0), ("900Mi", 2)])
async def test_a_command_without_a_size_has_the_default_line(
    machine: Machine, memory: str, code: int
) -> None:
    """A hooked program gets 1 GiB, of which its context takes 300 MiB, and no more."""
    assert (await machine.run("--", BUSY, "--memory", memory))[0] == code
    assert (await machine.run("--", BUSY, "--memory", memory, PLIMSOLL_GPU_MEMORY="2Gi"))[0] == 0


async def test_a_running_command_is_resized_by_its_name(machine: Machine) -> None:
    """A resize takes effect at once within the free room, and is refused past it.

    A program that holds more than its new line lives on, and the message says so.
    """
    process = await machine.start(
        "--name", "trainer", "--gpu-memory", "2Gi", "--", BUSY, "--memory", "1Gi", "--hold-seconds", "600"
    )
    assert process.stdout is not None
    await process.stdout.readline()
    code, output, errors = await machine.resize("trainer", "--gpu-memory", "6Gi")
    assert (code, errors, await machine.lines()) == (0, "", [6 * GIB])
    assert "line 2Gi -> 6Gi, holds" in output
    code, _, errors = await machine.resize("trainer", "--gpu-memory", "30Gi")
    assert (code, await machine.lines()) == (2, [6 * GIB])
    assert "gpu-memory: '30Gi' does not fit" in errors
    [pod] = await machine.registered()
    code, output, errors = await machine.resize(pod, "--gpu-memory", "512Mi")
    assert (code, errors, await machine.lines()) == (0, "", [GIB // 2])
    assert "growth is refused until it is below" in output
    assert process.returncode is None
    code, _, errors = await machine.resize("nobody", "--gpu-memory", "1Gi")
    assert (code, "running are: trainer" in errors) == (2, True), errors
    process.terminate()
    await process.communicate()
    code, _, errors = await machine.resize("trainer", "--gpu-memory", "1Gi")
    assert (code, "did not" in errors) == (1, True), errors


async def test_a_resize_writes_no_control_characters_and_may_have_no_reader(machine: Machine) -> None:
    """Names are shown without control characters, and a reader that has ended ends the command silently with 141."""
    process = await machine.start(
        "--name", "a\x1b[31m", "--gpu-memory", "1Gi", "--", "sh", "-c", "echo; read _"
    )
    assert process.stdout is not None
    await process.stdout.readline()
    code, output, _ = await machine.resize("a\x1b[31m", "--gpu-memory", "2Gi")
    assert (code, output.partition(" on ")[0]) == (0, "a\N{REPLACEMENT CHARACTER}[31m")
    _, _, errors = await machine.resize("nobody", "--gpu-memory", "1Gi")
    assert "running are: a\N{REPLACEMENT CHARACTER}[31m\n" in errors
    assert await machine.resize_unread("a\x1b[31m", "--gpu-memory", "1Gi") == (141, b"")
    await process.communicate(b"\n")


async def test_a_commands_share_and_limit_reach_the_broker_and_change_while_it_runs(machine: Machine) -> None:
    """Share and limit reach the broker, together or alone, up to the share that other commands leave.

    A command for which too little share is left is refused with that reason.
    """
    process = await machine.start(
        *("--name", "trainer", "--gpu-memory", "2Gi", "--gpu-share", "30", "--gpu-share-limit", "60"),
        *("--", BUSY, "--memory", "1Gi", "--hold-seconds", "600"),
    )
    assert process.stdout is not None
    await process.stdout.readline()
    assert await machine.shares() == [(30, 60)]
    code, output, errors = await machine.resize("trainer", "--gpu-share", "70", "--gpu-share-limit", "80")
    assert (code, errors, await machine.shares()) == (0, "", [(70, 80)])
    assert output.endswith(": share 30 % -> 70 %, limit 60 % -> 80 %\n")
    code, _, errors = await machine.run("--gpu-memory", "1Gi", "--gpu-share", "40", "--", "true")
    assert (code, "Insufficient --gpu-share" in errors) == (75, True), errors
    code, _, errors = await machine.resize("trainer", "--gpu-share-limit", "60")
    assert (code, "gpu-share-limit: '60' is below the share of 70" in errors) == (2, True), errors
    code, _, errors = await machine.resize("trainer", "--gpu-share", "60", "--gpu-memory", "30Gi")
    assert (code, await machine.shares(), await machine.lines()) == (2, [(70, 80)], [2 * GIB])
    code, output, _ = await machine.resize("trainer", "--gpu-share", "60", "--gpu-memory", "3Gi")
    assert (code, await machine.shares(), await machine.lines()) == (0, [(60, 80)], [3 * GIB])
    assert "line 2Gi -> 3Gi, share 70 % -> 60 %, holds " in output
    assert (await machine.run("--gpu-memory", "1Gi", "--gpu-share", "40", "--", "true"))[0] == 0
    code, _, errors = await machine.resize("trainer")
    assert (code, "give at least one of --gpu-memory, --gpu-share, --gpu-share-limit" in errors) == (
        2,
        True,
    ), errors
    process.terminate()
    await process.communicate()


async def test_a_command_is_held_to_its_limit_and_to_the_next_one(machine: Machine) -> None:
    """A command that wants all of its GPU, and is alone on it, gets its limit of it."""
    process = await machine.start(
        *("--name", "trainer", "--gpu-memory", "1Gi", "--gpu-share", "20", "--gpu-share-limit", "30"),
        *("--", BUSY, "--memory", "256Mi", "--kernel-ms", "1", "--seconds", "600"),
    )

    async def until_near(limit_pct: int) -> None:
        async def is_near() -> bool:
            return await machine.used_pct() == [pytest.approx(limit_pct, abs=5)]

        await eventually(is_near, expected=True)

    await until_near(30)
    code, _, errors = await machine.resize("trainer", "--gpu-share-limit", "60")
    assert code == 0, errors
    await until_near(60)
    process.terminate()
    await process.communicate()
