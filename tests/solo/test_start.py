"""`plimsoll run` and its broker start without what they do not need, and without waiting for a clock."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.broker.connection import Connection
from solo.private_broker import LINE_BYTES, LOG_NAME, ensure_broker, locked, make_root, using
from tests.placer.local.world import REPOSITORY
from tests.servers.waiting import PATIENCE_S
from tests.solo.machine import Machine

NEEDLESS = {
    "aiohttp", "attr", "cryptography", "email", "grpc", "importlib.metadata", "kubernetes", "nats", "numpy",
    "prometheus_client", "pygments", "redis", "rich", "structlog", "yaml",
}  # fmt: skip
"""Modules that take long to import, most of them for other parts."""

FOR_GPUS = "pynvml"
"""The broker alone reads GPUs."""


def imports_in(text: str) -> list[str]:
    """The modules that Python lists with PYTHONPROFILEIMPORTTIME, in every process that writes there."""
    return [line.rpartition("|")[2].strip() for line in text.splitlines() if line.startswith("import time:")]


async def test_a_command_starts_by_one_interpreter_and_few_imports(machine: Machine) -> None:
    """Neither the command line, nor `plimsoll run`, nor its own broker imports what is for other parts."""
    profile = {"PYTHONPROFILEIMPORTTIME": "1"}
    process = await machine.start("--gpu-memory", "1Gi", "--", "true", module="plimsoll run", **profile)
    _, errors = await process.communicate()
    ours = imports_in(errors.decode())
    assert (process.returncode, ours.count("site")) == (0, 1)
    log = await asyncio.to_thread((machine.root / LOG_NAME).read_text)
    brokers = imports_in(log)
    assert {"solo.run", "hook.broker.app"} <= {*ours, *brokers}
    assert not {FOR_GPUS, *NEEDLESS} & {*ours}
    assert not NEEDLESS & {*brokers}


async def test_a_private_broker_is_ready_without_a_look_at_a_clock(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker that does not listen is waited for, and the first connection to a started one succeeds."""

    async def sleep(_: float) -> None:
        raise AssertionError("the start waits for a clock")

    await make_root(machine.root)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        async with using(machine.root):
            async with locked(machine.root):
                await ensure_broker(machine.root, os.environ, set())
            (await Connection.open(machine.root, LINE_BYTES)).abort()


def test_a_users_folder_may_have_a_solo_of_its_own(tmp_path: Path) -> None:
    """The program of `plimsoll run` is this installation's, as for parts that begin as programs of their own."""
    (tmp_path / "solo.py").write_text("raise SystemExit('the user's')")
    ended = subprocess.run(
        (sys.executable, "-m", "plimsoll", "run", "--gpu", "0", "--", "true"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, "--gpu: '0' asks for nothing" in ended.stderr) == (2, True), ended.stderr
