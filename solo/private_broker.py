"""The broker that `plimsoll run` talks to: the machine's own, or a private one for as long as commands use it.

What always holds: a private broker is started and ended under the lock of its directory, and ended only when it has
nothing registered any more, by whichever command is the last.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError

LOCK_NAME: Final = "run.lock"
PID_NAME: Final = "private-broker.pid"
LOG_NAME: Final = "private-broker.log"
MODULE: Final = "hook.broker"

CONNECT_S: Final = 1.0
"""How long a broker that is there may take to answer before a private one is started."""

START_S: Final = 20.0
"""How long a private broker may take to start on a loaded machine."""

SETTLE_S: Final = 2.0
LOOK_S: Final = 0.02
"""How long, and how often, we look whether the broker noticed the end of our last process."""


async def make_root(root: Path) -> None:
    """Make the broker's directory.

    Raises:
        InputError: it cannot be used.
    """
    try:
        await asyncio.to_thread(root.mkdir, 0o755, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "name a directory of your own"
        raise InputError("--broker-root", str(root), f"cannot be used ({error})", remedy) from error


async def ensure_broker(root: Path, environment: Mapping[str, str]) -> None:
    """Start a private broker if none answers at this root; whoever asks it next waits until it is ready.

    Under the lock, which is to be held until something is registered: else the last command may end it.

    Args:
        root: the broker's directory.
        environment: of a private broker.
    """
    if not await _answers(root):
        await _start(root, environment)


async def end_if_unused(client: BrokerClient, root: Path, ours: PodUid) -> None:
    """End a private broker that has nothing registered but our pod, which ended. Under the lock."""
    try:
        async with asyncio.timeout(SETTLE_S):
            # The broker tells of deaths, but of nothing when it is done with one.
            while any(use.pod == ours for use in (await client.describe()).containers):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            used = bool((await client.describe()).containers)
    except (BrokerAwayError, TimeoutError):
        return
    if not used:
        await asyncio.to_thread(_end_private, root)


@contextlib.asynccontextmanager
async def locked(root: Path) -> AsyncIterator[None]:
    """Hold the directory's lock; it goes with the process that held it, however that ends."""
    handle = await asyncio.to_thread(os.open, root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


async def _answers(root: Path) -> bool:
    client = BrokerClient(root, timeout_s=CONNECT_S)
    try:
        await client.describe()
    except BrokerAwayError:
        return False
    else:
        return True
    finally:
        await client.close()


async def _start(root: Path, environment: Mapping[str, str]) -> None:
    """Start a broker that outlives us: other commands may come to use it."""
    with await asyncio.to_thread((root / LOG_NAME).open, "ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            # No monitor measures for it. Whoever wants it to rest says so in the environment.
            env={"PLIMSOLL_BROKER_MEASURE": "true", **environment, "PLIMSOLL_BROKER_ROOT": str(root)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    await asyncio.to_thread((root / PID_NAME).write_text, str(process.pid))


def _end_private(root: Path) -> None:
    """SIGTERM for the broker in the pid file, if it still is one; there is none where the broker is not private."""
    try:
        pid = int((root / PID_NAME).read_text())
        handle = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return
    try:
        # Only with the handle open is the number sure to mean the process that is looked at.
        if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            (root / PID_NAME).unlink(missing_ok=True)
    except (FileNotFoundError, ProcessLookupError):
        return  # it ended by itself
    finally:
        os.close(handle)
