"""The broker of `plimsoll run`: the machine's own, or a private one for as long as commands use it.

What always holds: a private broker is started and ended under the lock of its directory. The last command ends the
broker, once nothing is registered with it any more.
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
"""Seconds that an existing broker may take to answer before a private one is started."""

START_S: Final = 20.0
"""Seconds that a private broker may take to start on a loaded machine."""

SETTLE_S: Final = 2.0
"""Seconds that the broker may take to notice the end of the command's last process."""

POLL_S: Final = 0.02
"""Seconds between two questions to the broker whether it has noticed that end."""


async def make_root(root: Path) -> None:
    """Make the broker's directory.

    Raises:
        InputError: the directory cannot be used.
    """
    try:
        await asyncio.to_thread(root.mkdir, 0o755, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "name a directory of your own"
        raise InputError("--broker-root", str(root), f"cannot be used ({error})", remedy) from error


async def ensure_broker(root: Path, environment: Mapping[str, str]) -> None:
    """Start a private broker if none answers at this root. The next request waits until the broker is ready.

    Call this under the lock, and hold the lock until something is registered. Else the last command may end the
    broker.

    Args:
        root: the broker's directory.
        environment: the variables of a private broker.
    """
    if not await _answers(root):
        await _start(root, environment)


async def end_if_unused(client: BrokerClient, root: Path, ours: PodUid) -> None:
    """End a private broker that no other command uses. Our pod has ended. Call this under the lock."""
    try:
        async with asyncio.timeout(SETTLE_S):
            # The broker announces a death, but not that it removed the pod after the death.
            while any(use.pod == ours for use in (await client.describe()).containers):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            used = bool((await client.describe()).containers)
    except (BrokerAwayError, TimeoutError):
        return
    if not used:
        await asyncio.to_thread(_end_private, root)


@contextlib.asynccontextmanager
async def locked(root: Path) -> AsyncIterator[None]:
    """Hold the directory's lock. The kernel releases it when the process ends, however that ends."""
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
    """Start a broker that outlives this process: other commands may come to use it."""
    with await asyncio.to_thread((root / LOG_NAME).open, "ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            # No monitor measures for this broker, so it does. The environment may switch that off.
            env={"PLIMSOLL_BROKER_MEASURE": "true", **environment, "PLIMSOLL_BROKER_ROOT": str(root)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    await asyncio.to_thread((root / PID_NAME).write_text, str(process.pid))


def _end_private(root: Path) -> None:
    """Send SIGTERM to the process in the pid file, if it is a broker. Only a private broker has such a file."""
    try:
        pid = int((root / PID_NAME).read_text())
        handle = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return
    try:
        # If the pid names another process by now, the handle's process has ended, and the signal reaches none.
        if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            (root / PID_NAME).unlink(missing_ok=True)
    except (FileNotFoundError, ProcessLookupError):
        return  # the broker ended by itself
    finally:
        os.close(handle)
