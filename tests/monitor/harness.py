"""The monitor as a child process, processes for it to watch, and the stream that it fills."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import nats as nats_client
import pytest
from nats.js import JetStreamContext

from monitor.processes import read_process
from plimsoll.bus.client import BusClient
from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import CloudEvent, decode_event, decode_report
from plimsoll.events import Report
from plimsoll.ids import ProcessKey
from tests import cloudevents
from tests.constants import start_of
from tests.servers.stores import ignore
from tests.servers.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
EMULATOR = ROOT / "build" / "emulator"


class Message:
    """One message of the stream, decoded."""

    def __init__(self, subject: str, body: bytes) -> None:
        self.subject = subject
        self.event: CloudEvent = decode_event(body)
        assert cloudevents.read(body).get_id() == self.event.id  # a stranger reads every message of ours
        self.body = body

    @property
    def what(self) -> str:
        """The kind of event: `task.started`, `node.state`, and so on."""
        return ".".join(self.subject.split(".")[2:4])

    @property
    def report(self) -> Report:
        """The report of a task or state event."""
        return decode_report(self.body)


CONSTANTS: Final = {
    "health_hold_s": "plimsoll.gpu_health.HOLD_S={}",
    "sample_s": "monitor.observer.SAMPLE_S={}",
    "nvml_retry_s": "monitor.observer.NVML_RETRY_S={}",
    "glance_s": "monitor.sampler.POLL_S={}",
    "broker_away_s": "monitor.broker.AWAY_S={}",
}
"""Constants that tests change, see `start_of`."""


class MonitorProcess:
    """`python -m monitor` on a state directory of its own; tests kill it and start it again."""

    def __init__(self, directory: Path, nats_url: str, /, **given: object) -> None:
        """A monitor with these settings, or `CONSTANTS`."""
        quick = {"sample_s": 0.05, "nvml_retry_s": 0.3, "reconcile_s": 0.3}
        self._arguments, settings = start_of("monitor", "PLIMSOLL_", quick | given, CONSTANTS)
        self.directory = directory
        self.root = directory / "broker"
        self.root.mkdir(parents=True, exist_ok=True)
        self.log_path = directory / "monitor.log"
        self.environment = {
            "PLIMSOLL_NODE": "node-1.test",
            "PLIMSOLL_NATS_URL": nats_url,
            "PLIMSOLL_STATE_DIR": str(directory / "state"),
            "PLIMSOLL_BROKER_ROOT": str(self.root),
            "PLIMSOLL_LOG_LEVEL": "debug",
            **settings,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the monitor. Tests follow its progress in the stream and in its log."""
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **self.environment},
                stderr=log,
            )

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End the monitor and return its exit status. Only on SIGTERM does the monitor finish its work first."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the monitor's end and return its exit status."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every whole line of the log, from all starts."""
        text = self.log_path.read_text() if self.log_path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines whose event contains `event`."""
        return [line for line in self.log if event in line["event"]]


@contextlib.asynccontextmanager
async def monitoring(directory: Path, nats_url: str, **settings: object) -> AsyncIterator[MonitorProcess]:
    """A running monitor, killed when the context ends; a failed test shows its log."""
    monitor = MonitorProcess(directory, nats_url, **settings)
    await monitor.start()
    try:
        yield monitor
    except BaseException:
        sys.stderr.write(monitor.log_path.read_text())
        raise
    finally:
        await monitor.kill()


@contextlib.asynccontextmanager
async def sleeping() -> AsyncIterator[tuple[ProcessKey, asyncio.subprocess.Process]]:
    """A process that does nothing until the context ends."""
    child = await asyncio.create_subprocess_exec("sleep", "600")
    process = read_process(child.pid)
    assert process is not None
    try:
        yield process, child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@contextlib.asynccontextmanager
async def jetstream(url: str) -> AsyncIterator[JetStreamContext]:
    """A JetStream client that survives the server's restarts."""
    client = BusClient()  # nats-py's own may not come back where the machine stands still while a server dies
    pause_s: Any = 0.1  # nats-py says int, and only sleeps it
    await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=pause_s, error_cb=ignore)
    try:
        yield client.jetstream(timeout=PATIENCE_S)
    finally:
        await client.close()


async def stored(context: JetStreamContext) -> list[Message]:
    """The whole stream, in order; empty if there is none yet."""
    try:
        state = (await context.stream_info(STREAM)).state
    except nats_client.js.errors.NotFoundError:
        return []
    numbers = range(max(state.first_seq, 1), state.last_seq + 1)
    raw = [await context.get_msg(STREAM, number) for number in numbers]
    return [Message(each.subject or "", each.data or b"") for each in raw]


async def until(context: JetStreamContext, enough: Callable[[list[Message]], bool]) -> list[Message]:
    """Wait until the stream is not empty and `enough` is true for it, and return it."""
    messages: list[Message] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(nats_client.errors.Error, OSError):
                    messages = await stored(context)
                    if messages and enough(messages):
                        return messages
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"waited in vain; the stream holds {[message.what for message in messages]}")


async def until_true(condition: Callable[[], object]) -> None:
    """Wait until `condition` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it is a child process that changes it
            await asyncio.sleep(0.02)


def tasks_of(messages: list[Message], process: ProcessKey) -> list[str]:
    """The stream's task events of one process, in order: `started`, `loaded`, `exited`."""
    return [
        message.what.removeprefix("task.")
        for message in messages
        if message.what.startswith("task.")
        and message.report.task is not None
        and message.report.task.process == process
    ]
