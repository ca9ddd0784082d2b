"""The private broker of `plimsoll run` ends with its command, however that ends."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.broker.environment import processes_of
from tests.placer.arrivals import eventually
from tests.solo.machine import Machine

DISK_BYTES = 4 * 1024**2
LEFT_BYTES = 64 * 1024
"""Room for a log and a journal, and not for a container's pages."""

FILES = 60
"""The limit on a broker's open files: above the 20 that it needs, and below these and as many connections."""


@contextlib.asynccontextmanager
async def small_disk(directory: Path) -> AsyncIterator[None]:
    """A file system of `DISK_BYTES`."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    await asyncio.to_thread(directory.mkdir)
    options = ("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory))
    mount = await asyncio.create_subprocess_exec("mount", *options)
    if await mount.wait() != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        yield
    finally:
        await (await asyncio.create_subprocess_exec("umount", "--lazy", str(directory))).wait()


async def has_ended(machine: Machine) -> bool:
    """Whether no broker of this machine lives."""
    return not await machine.broker_pids()


async def running(machine: Machine, script: str) -> asyncio.subprocess.Process:
    """A command that has written its first line."""
    process = await machine.start("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def test_it_ends_where_its_disk_has_no_room_for_the_command(machine: Machine) -> None:
    """The refusal names the directory and the remedy, and no broker is left."""
    async with small_disk(machine.root):
        filler = machine.root / "filler"
        await asyncio.to_thread(filler.write_bytes, bytes(DISK_BYTES - LEFT_BYTES))
        code, _, errors = await machine.run("--gpu-memory", "1Gi", "--", "true")
        assert (code, len(errors.splitlines())) == (1, 1), errors
        assert f"the broker at {machine.root} cannot hold the command to its line" in errors
        assert "free some room on the broker's disk" in errors
        await eventually(lambda: has_ended(machine), expected=True)


async def test_it_ends_with_a_command_whose_run_was_killed(machine: Machine) -> None:
    """It serves the command for as long as that lives, and needs no other `plimsoll run` to end."""
    process = await running(machine, "echo ready; exec >&- 2>&-; sleep 1000")
    process.kill()
    await process.wait()
    [pod] = await machine.registered()
    assert await machine.broker_pids()
    for pid in await asyncio.to_thread(processes_of, pod):
        os.kill(pid, signal.SIGKILL)
    await process.communicate()
    await eventually(lambda: has_ended(machine), expected=True)


async def test_it_ends_although_the_command_left_a_server_behind(machine: Machine) -> None:
    """A process that outlives the command has inherited the lock, and keeps no broker alive."""
    script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    code, output, errors = await machine.run("--gpu-memory", "1Gi", "--", "sh", "-c", script)
    try:
        assert (code, errors) == (0, "")
        await eventually(lambda: has_ended(machine), expected=True)
        os.kill(int(output), 0)  # the server lives
    finally:
        os.kill(int(output), signal.SIGKILL)


async def test_commands_one_after_another_each_have_a_broker(machine: Machine) -> None:
    """A command that comes while the last one's broker ends waits for that end, and starts another."""
    for _ in range(3):
        assert await machine.run("--gpu-memory", "20Gi", "--", "true") == (0, "", "")
    await eventually(lambda: has_ended(machine), expected=True)


async def test_the_exit_code_comes_although_the_disk_is_full_by_then(machine: Machine) -> None:
    """The broker cannot write the command's end, and nothing but the command's own code is the result."""
    async with small_disk(machine.root):
        process = await running(machine, "echo ready; read _; exit 7")
        with contextlib.suppress(OSError):
            await asyncio.to_thread((machine.root / "filler").write_bytes, bytes(2 * DISK_BYTES))
        await process.communicate(b"\n")
        assert process.returncode == 7
        await eventually(lambda: has_ended(machine), expected=True)


async def test_a_resize_that_the_full_disk_refuses_changes_nothing(machine: Machine) -> None:
    """Exit code 2 means that the earlier line holds, though the broker had taken the new one in."""
    async with small_disk(machine.root):
        process = await running(machine, "echo ready; read _")
        [pod], before = await machine.registered(), await machine.lines()
        with contextlib.suppress(OSError):
            await asyncio.to_thread((machine.root / "filler").write_bytes, bytes(2 * DISK_BYTES))
        code, _, errors = await machine.resize(pod, "--gpu-memory", "2Gi")
        assert (code, "No space left" in errors) == (2, True), errors
        assert await machine.lines() == before
        await process.communicate(b"\n")
        await eventually(lambda: has_ended(machine), expected=True)


async def test_it_names_the_limit_on_open_files_once_and_then_serves_again(machine: Machine) -> None:
    """Connections that pass the limit wait; the log has a line with cause and remedy, and no traceback."""
    process = await running(machine, "echo ready; read _")
    [broker] = await machine.broker_pids()
    resource.prlimit(broker, resource.RLIMIT_NOFILE, (FILES, FILES))

    async def failures() -> list[str]:
        log = await asyncio.to_thread((machine.root / "private-broker.log").read_text)
        return [line for line in log.splitlines() if "Too many open files" in line]

    async def is_logged() -> bool:
        return bool(await failures())

    with contextlib.ExitStack() as connections:
        for _ in range(FILES):
            connection = connections.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.connect(str(machine.root / "broker.sock"))
        await eventually(is_logged, expected=True)
    assert len(await machine.registered()) == 1
    found = await failures()
    assert len(found) < 5, found
    assert "raise the limit on this process's open files: `ulimit -n`" in found[0]
    await process.communicate(b"\n")


async def test_it_is_started_again_while_its_command_runs(machine: Machine) -> None:
    """A broker that was killed has a successor, without any other command, which holds the same command."""
    process = await running(machine, "echo ready; read _; exit 7")
    [pod], [broker] = await machine.registered(), await machine.broker_pids()
    os.kill(broker, signal.SIGKILL)

    async def is_another() -> bool:
        return bool(set(await machine.broker_pids()) - {broker}) and await machine.registered() == {pod}

    await eventually(is_another, expected=True)
    _, errors = await process.communicate(b"\n")
    assert (process.returncode, errors) == (7, b"")
    await eventually(lambda: has_ended(machine), expected=True)


async def test_it_makes_its_socket_anew_where_somebody_removed_it(machine: Machine) -> None:
    """Meanwhile `plimsoll status` says so, and not that nothing runs. Then commands find the broker again."""
    process = await running(machine, "echo ready; read _")
    [broker] = await machine.broker_pids()
    os.kill(broker, signal.SIGSTOP)
    await asyncio.to_thread((machine.root / "broker.sock").unlink)
    code, _, errors = await machine.plimsoll("status")
    assert (code, "broker.sock is missing, and commands run there; ask again" in errors) == (1, True), errors
    os.kill(broker, signal.SIGCONT)
    assert await machine.run("--gpu-memory", "1Gi", "--", "true") == (0, "", "")
    assert "plimsoll-run/sh" in (await machine.plimsoll("status"))[1]
    await process.communicate(b"\n")


async def test_no_request_waits_for_a_broker_that_has_ended(machine: Machine) -> None:
    """Nobody starts another one before the command runs, so the request's deadline would pass in vain."""
    await machine.slow_nvml(60_000)
    process = await machine.start("--", "true")
    await eventually(machine.has_no_broker, expected=False)
    [broker] = await machine.broker_pids()
    os.kill(broker, signal.SIGKILL)
    _, errors = await process.communicate()
    assert (process.returncode, b"the private broker ended: " in errors) == (1, True), errors


async def test_a_socket_that_cannot_be_made_anew_is_tried_again(machine: Machine) -> None:
    """While the root directory is away the broker logs that; once it is back, commands find the broker again."""
    process, away = await running(machine, "echo ready; read _"), machine.root.with_name("away")
    await asyncio.to_thread((machine.root / "broker.sock").unlink)
    await asyncio.to_thread(machine.root.rename, away)

    async def is_logged() -> bool:
        return "control_socket_removed" in await asyncio.to_thread((away / "private-broker.log").read_text)

    await eventually(is_logged, expected=True)
    await asyncio.to_thread(away.rename, machine.root)

    async def is_answered() -> bool:
        return "plimsoll-run/sh" in (await machine.plimsoll("status"))[1]

    await eventually(is_answered, expected=True)
    await process.communicate(b"\n")
