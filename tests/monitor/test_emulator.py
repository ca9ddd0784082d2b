"""The whole monitor over the emulated driver: real processes, real NATS, and hooks only as announced by a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from nats.js import JetStreamContext

from plimsoll.events import Gpu, Phase, Task
from plimsoll.ids import GpuUuid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.announcements import MAIN, POD
from tests.monitor.announcer import announcer
from tests.monitor.emulated import GIB, GPU_0, GPU_1, MIB, Program, book, program, write_node
from tests.monitor.harness import Message, MonitorProcess, jetstream, tasks_of, until, until_true


@contextlib.asynccontextmanager
async def node(
    tmp_path: Path, url: str, **settings: object
) -> AsyncIterator[tuple[MonitorProcess, dict[str, str], JetStreamContext]]:
    """A monitor on an emulated node of two GPUs, and a reader of the stream."""
    environment = write_node(tmp_path)
    monitor = MonitorProcess(tmp_path, url, **settings)
    monitor.environment |= environment
    async with jetstream(url) as context:
        await monitor.start()
        try:
            yield monitor, environment, context
        finally:
            await monitor.kill()


def told_of(messages: list[Message], one: Program, what: str) -> Task:
    """The task in the newest `what` event of a program."""
    tasks = [
        message.report.task
        for message in messages
        if message.what == f"task.{what}" and message.report.task is not None
    ]
    return [task for task in tasks if task.pid == one.process.pid][-1]


def newest(messages: list[Message]) -> dict[str, Gpu]:
    """The node's GPUs in the stream's newest report."""
    reports = [each.report for each in messages if each.what.startswith("task.") or each.what == "node.state"]
    return {gpu.uuid: gpu for gpu in reports[-1].state.gpus} if reports else {}


async def test_a_task_without_the_hook_is_followed_through_its_life(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A task starts with its context, is loaded when its memory rests and after a reload, and exits at kill -9."""
    async with (
        node(tmp_path, nats.url) as (_, environment, context),
        program(environment, at_once=["alloc 800"]) as one,
    ):
        messages = await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        task = told_of(messages, one, "loaded")
        assert (task.gpu, task.phase, task.pod) == (GPU_0, Phase.LOADED, None)
        assert task.used_bytes == task.peak_bytes == 1100 * MIB
        await one.do("alloc 500")
        reloaded = ["started", "loaded", "loaded"]
        messages = await until(context, lambda all_: tasks_of(all_, one.process) == reloaded)
        assert told_of(messages, one, "loaded").used_bytes == 1600 * MIB
        await one.kill()
        messages = await until(context, lambda all_: tasks_of(all_, one.process) == [*reloaded, "exited"])
        gone = told_of(messages, one, "exited")
        assert (gone.used_bytes, gone.peak_bytes) == (0, 1600 * MIB)
        # The driver may free the memory a moment after the process has ended.
        await until(context, lambda all_: newest(all_)[GPU_0].used_bytes == 0)


async def test_each_report_carries_the_whole_node(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Each report has every GPU's usable and used memory and every task, so it is enough to rescore the node."""
    async with (
        node(tmp_path, nats.url) as (_, environment, context),
        program(environment, 0, ["alloc 100"]) as one,
        program(environment, 1, ["alloc 200"]) as two,
    ):
        messages = await until(
            context,
            lambda all_: all(tasks_of(all_, each.process)[-1:] == ["loaded"] for each in (one, two)),
        )
        gpus = newest(messages)
        assert list(gpus) == [GPU_0, GPU_1]
        assert gpus[GpuUuid(GPU_0)].usable_bytes == 24 * GIB - 512 * MIB
        assert gpus[GpuUuid(GPU_1)].usable_bytes == 16 * GIB - 256 * MIB
        assert gpus[GpuUuid(GPU_0)].used_bytes == 400 * MIB
        assert gpus[GpuUuid(GPU_1)].used_bytes == 500 * MIB
        assert {task.pid for gpu in gpus.values() for task in gpu.tasks} == {
            one.process.pid,
            two.process.pid,
        }


async def test_the_heartbeat_carries_the_whole_state(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A heartbeat without any task event has all GPUs and tasks."""
    async with (
        node(tmp_path, nats.url, heartbeat_s=0.5) as (_, environment, context),
        program(environment) as one,
    ):
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        messages = await until(context, lambda all_: all_[-1].what == "node.state")
        (task,) = newest(messages)[GPU_0].tasks
        assert (task.pid, task.phase, task.used_bytes) == (one.process.pid, Phase.LOADED, 300 * MIB)


async def test_an_announced_context_has_an_event_with_bytes_and_owner(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """An announcement causes a sample: `started` has pod and container although no timer samples."""
    (tmp_path / "broker").mkdir()
    slow = {"reconcile_s": 3600, "idle_period_s": 3600}
    async with (
        announcer(tmp_path / "broker") as peer,
        node(tmp_path, nats.url, **slow) as (monitor, environment, context),
    ):
        await until_true(lambda: monitor.logged("listening"))
        await until(context, bool)
        async with program(environment) as one:
            pid, ticks = one.process.pid, one.process.start_ticks
            peer.announce("context", pid, ticks, GpuUuid(GPU_0))
            messages = await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
            task = told_of(messages, one, "loaded")
            assert (task.pod, task.container, task.used_bytes) == (POD, MAIN, 300 * MIB)
        await until(context, lambda all_: tasks_of(all_, one.process)[-1] == "exited")


async def test_a_killed_monitor_takes_up_a_task_where_it_was(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A monitor killed during and after loading repeats no event, and an end during the outage has its event."""
    async with node(tmp_path, nats.url) as (monitor, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process)[:1] == ["started"])
        await monitor.kill()
        await one.do("alloc 400")
        await monitor.start()
        before = await until(context, lambda all_: told_of_bytes(all_, one) == 700 * MIB)
        await monitor.kill()
        await monitor.start()
        await until(context, lambda all_: all_[-1].report.state.epoch == 3)
        assert (await until(context, bool))[-1].what == "node.state"
        await monitor.kill()
        await one.kill()
        await monitor.start()
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1] == "exited")
        assert tasks_of(messages, one.process) == [*tasks_of(before, one.process), "exited"]


def told_of_bytes(messages: list[Message], one: Program) -> int:
    """The bytes in a program's newest `loaded`; 0 before the first."""
    return told_of(messages, one, "loaded").used_bytes if "loaded" in tasks_of(messages, one.process) else 0


async def test_a_context_left_and_made_again_is_two_tasks_in_a_row(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A living process that leaves the GPU exits there; when it returns it starts again, under another id."""
    async with node(tmp_path, nats.url) as (_, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        await one.do("leave")
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded", "exited"])
        await one.do("return")
        twice = ["started", "loaded", "exited", "started", "loaded"]
        messages = await until(context, lambda all_: tasks_of(all_, one.process) == twice)
        ids = [message.event.id for message in messages]
        assert len(ids) == len(set(ids))


async def test_work_lowers_the_idle_average_and_rest_raises_it(tmp_path: Path, nats: EmbeddedServer) -> None:
    """State events without any task event show the idle average of a GPU that works and then rests."""
    async with (
        node(tmp_path, nats.url, idle_period_s=0.3) as (_, environment, context),
        program(environment, at_once=["alloc 1"]) as one,
    ):
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        is_seen = asyncio.Event()

        async def work() -> None:
            while not is_seen.is_set():
                await one.do("copy 500")  # two seconds, beside which a busy machine's pauses are short

        working = asyncio.create_task(work())
        await until(context, lambda all_: newest(all_)[GPU_0].idle_pct < 40)
        is_seen.set()
        await working
        messages = await until(context, lambda all_: newest(all_)[GPU_0].idle_pct > 85)
        assert messages[-1].what == "node.state"
        assert newest(messages)[GPU_1].idle_pct > 85


async def test_a_lost_gpu_leaves_the_state_and_ends_nothing(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A GPU off the bus leaves the state and ends no task, and the other GPU is still reported."""
    async with (
        node(tmp_path, nats.url) as (monitor, environment, context),
        program(environment) as one,
    ):
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        await book(environment, "lose", "0")
        messages = await until(context, lambda all_: list(newest(all_)) == [GPU_1])
        assert monitor.logged("a GPU cannot be read")
        await book(environment, "find", "0")
        messages = await until(context, lambda all_: list(newest(all_)) == [GPU_0, GPU_1])
        assert tasks_of(messages, one.process) == ["started", "loaded"]


async def test_a_driver_that_comes_late_is_found(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A monitor that finds no GPU says so, and goes on once the driver answers."""
    async with node(tmp_path, nats.url) as (monitor, environment, context):
        await until(context, bool)
        await monitor.kill()
        path = Path(environment["PLIMSOLL_EMULATOR"])
        text = path.read_text()  # noqa: ASYNC240 - a test may block
        path.write_text("nonsense")  # noqa: ASYNC240 - a test may block
        await monitor.start()
        await until(context, lambda all_: newest(all_) == {})
        assert monitor.logged("no GPU")
        path.write_text(text)  # noqa: ASYNC240 - a test may block
        await until(context, lambda all_: list(newest(all_)) == [GPU_0, GPU_1])
