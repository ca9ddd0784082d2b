"""`plimsoll run` under the limits of a shell, and with bytes that are not UTF-8: one line, and no traceback."""

import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.part.causes import disk_remedy
from plimsoll.part.limits import limit_of
from tests.placer.arrivals import eventually
from tests.solo.machine import Machine

NOBODY = 54321
"""A uid without processes: root has no limit on processes."""


async def limited(machine: Machine, limits: str, *user: str) -> tuple[int | None, str]:
    """Run `plimsoll run -- true` as a user types it, after `ulimit`; returns exit code and error output."""
    words = f'ulimit {limits} && exec "$@"'
    program = (sys.executable, "-m", "plimsoll", "run", "--broker-root", str(machine.root), "--", "true")
    return await machine.run_program(*user, "bash", "-c", words, "bash", *program)


@pytest.mark.parametrize("limits", ["-n 4", "-n 5", "-n 6", "-n 12", "-n 16", "-v 60000", "-d 20000", "-f 0"])
async def test_a_limit_that_is_reached_is_named(machine: Machine, limits: str) -> None:
    """One line names the limit and its value, the exit code is that of other errors, and no broker is left."""
    code, errors = await limited(machine, limits)
    option, value = limits.split()
    assert (code, errors.count("\n")) == (1, 1), errors
    assert f"`ulimit {option}` is {value}; raise it" in errors
    await eventually(machine.broker_pids, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, who has no other process")
@pytest.mark.parametrize("processes", [1, 3, 5])
async def test_a_limit_on_processes_is_named(processes: int) -> None:
    """Threads and processes have one limit; nothing of asyncio's follows the line."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's are closed to others
        os.chown(folder, NOBODY, -1)
        user = ("setpriv", f"--reuid={NOBODY}", "--clear-groups")
        code, errors = await limited(Machine(Path(folder)), f"-u {processes}", *user)
    assert (code, errors.count("\n")) == (1, 1), errors
    assert f"`ulimit -u` is {processes}; raise it" in errors


def test_a_disk_that_refuses_for_a_limit_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker cannot tell its user's limit from a full disk otherwise."""
    limits = {resource.RLIMIT_FSIZE: 4096}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits.get(limit, resource.RLIM_INFINITY), -1))
    assert "`ulimit -f` is 4; raise it" in disk_remedy(OSError(27, "x"), "mend that")
    assert disk_remedy(OSError(2, "x"), "mend that") == "mend that"
    limits.clear()
    assert disk_remedy(OSError(27, "x"), "mend that") == "mend that"


def test_errors_of_other_kinds_are_no_limits() -> None:
    """Only errors that a limit causes are named so, also those in a group or behind another error."""
    assert limit_of(FileNotFoundError(2, "x")) is None
    assert limit_of(RuntimeError("x")) is None
    assert "open files" in (limit_of(ExceptionGroup("", [ValueError(), OSError(24, "x")])) or "")
    error = ValueError()
    error.__cause__ = OSError(23, "x")
    assert "fs.file-max" in (limit_of(error) or "")


async def test_a_root_that_is_not_utf8_is_refused(machine: Machine, tmp_path: Path) -> None:
    """The broker's messages are JSON, so its path must be text: the option or the variable is named."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    code, _, errors = await machine.run("--broker-root", folder, "--", "true")
    assert (code, "--broker-root" in errors, "is not UTF-8" in errors) == (2, True, True), errors


async def test_words_that_are_not_utf8_reach_the_command(machine: Machine) -> None:
    """A command's arguments and variables may hold any bytes."""
    given = os.fsdecode(b"a\xff")
    process = await machine.start("--", "sh", "-c", 'printf %s "$V$1"', "sh", given, V=given)
    output, errors = await process.communicate()
    assert (process.returncode, output, errors) == (0, b"a\xffa\xff", b"")


async def test_a_stopped_broker_is_named(machine: Machine) -> None:
    """A broker that was stopped takes connections; the message names its process, and how it goes on."""
    process = await machine.start("--", "cat")
    await eventually(lambda: _count(machine), 1)
    [broker] = await machine.broker_pids()
    os.kill(broker, signal.SIGSTOP)
    try:
        async with BrokerClient(machine.root, timeout_s=0.1) as asking:
            with pytest.raises(
                BrokerAwayError, match=f"its process {broker} is stopped.*kill -CONT {broker}"
            ):
                await asking.describe()
    finally:
        os.kill(broker, signal.SIGCONT)
        await process.communicate(b"")


async def _count(machine: Machine) -> int:
    return len(await machine.registered())


async def test_resize_takes_the_commands_from_the_brokers_directory(machine: Machine) -> None:
    """Given --broker-root, `plimsoll resize` means a command of `plimsoll run`; another namespace is refused."""
    process = await machine.start("--name", "job", "--gpu-memory", "1Gi", "--", "cat")
    await eventually(lambda: _count(machine), 1)
    code, output, errors = await machine.plimsoll("resize", "job", "--gpu-memory", "2Gi")
    assert (code, errors) == (0, ""), errors
    assert "job on " in output
    code, _, errors = await machine.plimsoll("resize", "job", "-n", "team", "--gpu-memory", "2Gi")
    assert (code, "--namespace: 'team'" in errors) == (2, True), errors
    await process.communicate(b"")
