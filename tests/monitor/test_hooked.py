"""Monitor, real broker and real preload library together, over the emulated driver."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from plimsoll.broker.client import BrokerClient
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.constants import start_of
from tests.hook.broker.conftest import CONSTANTS
from tests.monitor.emulated import GIB, GPU_0, MIB, program, write_node
from tests.monitor.harness import ROOT, Message, MonitorProcess, jetstream, tasks_of, until

LIBRARY = ROOT / "build" / "hook" / "libplimsoll.so"
POD, CONTAINER = PodUid("0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"), ContainerName("main")


class BrokerProcess:
    """`python -m hook.broker`; tests kill it and start it again."""

    def __init__(self, root: Path, settings: Mapping[str, object]) -> None:
        self.client = BrokerClient(root)
        self._root = root
        self._arguments, self._settings = start_of("hook.broker", "PLIMSOLL_BROKER_", settings, CONSTANTS)
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the broker, and wait until it answers."""
        environment = {
            "PATH": os.environ["PATH"],
            "PLIMSOLL_BROKER_ROOT": str(self._root),
            **self._settings,
        }
        with (self._root.parent / "broker.log").open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, *self._arguments, cwd=ROOT, env=environment, stderr=log
            )
        await self.client.connect()

    async def kill(self) -> None:
        """End the broker by SIGKILL."""
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()

    async def hook(
        self, line_bytes: int, pod: PodUid = POD, share_pct: int = 0, limit_pct: int = 100
    ) -> dict[str, str]:
        """Register one container on GPU 0; returns the environment of a program in it."""
        line = Line(gpu=GpuUuid(GPU_0), line_bytes=line_bytes, share_pct=share_pct, limit_pct=limit_pct)
        lines = ContainerLines(name=CONTAINER, lines=(line,))
        request = Register(pod=pod, namespace="default", name="train", containers=(lines,))
        (directories,) = (await self.client.register(request)).containers
        return {
            "LD_PRELOAD": str(LIBRARY),
            LIMITS_DIR_VARIABLE: directories.limits_dir,
            COUNTS_DIR_VARIABLE: directories.counts_dir,
        }


@contextlib.asynccontextmanager
async def brokering(root: Path, **settings: object) -> AsyncIterator[BrokerProcess]:
    """A running broker on its own root."""
    await asyncio.to_thread(root.mkdir, exist_ok=True)
    broker = BrokerProcess(root, settings)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.client.close()
        await broker.kill()


@contextlib.asynccontextmanager
async def monitoring(tmp_path: Path, url: str) -> AsyncIterator[tuple[MonitorProcess, dict[str, str]]]:
    """A monitor without timed samples: the hook's announcements cause its events."""
    environment = write_node(tmp_path)
    monitor = MonitorProcess(tmp_path, url, reconcile_s=3600, idle_period_s=3600)
    monitor.environment |= environment
    await monitor.start()
    try:
        yield monitor, environment
    finally:
        await monitor.kill()


async def test_events_of_a_hooked_program_have_its_pod_and_its_denial(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A program that starts, loads, is denied past its line and exits has each event once, with pod and container."""
    async with (
        brokering(tmp_path / "broker") as broker,
        monitoring(tmp_path, nats.url) as (_, environment),
        jetstream(nats.url) as context,
    ):
        hooked = {**environment, **await broker.hook(GIB)}
        async with program(hooked, at_once=["alloc 256"]) as one:
            messages = await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
            task = messages[-1].report.task
            assert task is not None
            assert (task.pod, task.container) == (POD, CONTAINER)
            assert task.used_bytes == (256 + 300) * MIB
            await one.do("refused 1024")
            messages = await until(context, lambda all_: all_[-1].what == "limit.denied")
            denied = msgspec.json.decode(messages[-1].event.data, type=Limit)
            assert (denied.pod, denied.gpu, denied.pid) == (POD, GPU_0, one.process.pid)
            assert (denied.requested_bytes, denied.line_bytes) == (1024 * MIB, GIB)
        messages = await until(
            context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded", "exited"]
        )
        assert [message.what for message in messages].count("limit.denied") == 1


async def test_hooked_programs_during_an_outage_of_monitor_and_broker_have_events(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A program that came and went while the monitor was dead has its events.

    A second program lives on, and a kill of the broker meanwhile adds no event.
    """
    async with (
        brokering(tmp_path / "broker") as broker,
        monitoring(tmp_path, nats.url) as (monitor, environment),
        jetstream(nats.url) as context,
    ):
        hooked = {**environment, **await broker.hook(GIB)}
        await until(context, bool)
        await monitor.kill()
        async with program(hooked) as gone:
            await gone.do("alloc 256")
        async with program(hooked) as living:
            await living.do("alloc 256")
            await broker.kill()
            await monitor.start()
            await broker.start()
            await until(context, lambda all_: tasks_of(all_, living.process) == ["started", "loaded"])
            messages = await until(
                context, lambda all_: tasks_of(all_, gone.process) == ["started", "exited"]
            )
            tasks = [message.report.task for message in messages if message.what.startswith("task")]
            assert {task.pod for task in tasks if task and task.pid == gone.process.pid} == {POD}
            # The monitor may see the task before the broker is back with its owner, and reports the owner later.
            await until(context, lambda all_: owners(all_[-1]) == {POD})
        await until(context, lambda all_: tasks_of(all_, living.process)[-1] == "exited")


def owners(message: Message) -> set[PodUid | None]:
    """The owner of each task in a report."""
    return {task.pod for gpu in message.report.state.gpus for task in gpu.tasks}
