"""Every event is in the stream once, though monitor, NATS, the watched process, or the broker's connection dies.

No GPU is needed: announcements start tasks, and the kernel ends them.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.announcements import MAIN, POD
from tests.monitor.announcer import Announcer, announcer
from tests.monitor.harness import (
    Message,
    MonitorProcess,
    jetstream,
    monitoring,
    sleeping,
    stored,
    tasks_of,
    until,
    until_true,
)

GPU = GpuUuid("GPU-00000000-0000-0000-0000-000000000001")


@contextlib.asynccontextmanager
async def node(
    tmp_path: Path, url: str, **settings: object
) -> AsyncIterator[tuple[MonitorProcess, Announcer, JetStreamContext]]:
    """A monitor, the announcing side of a broker, and a reader of the stream."""
    (tmp_path / "broker").mkdir()
    async with (
        announcer(tmp_path / "broker") as peer,
        jetstream(url) as context,
        monitoring(tmp_path, url, **settings) as monitor,
    ):
        yield monitor, peer, context


def both_told(*processes: ProcessKey) -> Callable[[list[Message]], bool]:
    """Whether each process has one `started` and one `exited`, in this order."""
    return lambda messages: all(tasks_of(messages, each) == ["started", "exited"] for each in processes)


async def until_logged(monitor: MonitorProcess, event: str, *, times: int) -> None:
    """Wait until the monitor has logged an event this many times."""
    await until_true(lambda: len(monitor.logged(event)) >= times)


async def until_epoch(context: JetStreamContext, epoch: int) -> None:
    """Wait until the newest event has this epoch."""
    await until(context, lambda messages: orders(messages)[-1][0] == epoch)


def orders(messages: list[Message]) -> list[tuple[int, int]]:
    """The epoch and seq of every event that carries a state."""
    return [message.report.state.order for message in messages if message.what != "limit.denied"]


async def test_an_announced_process_has_events_with_its_pod_and_its_death(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """An announced context becomes `started` with pod and container at once, and a kill -9 becomes `exited`."""
    async with node(tmp_path, nats.url) as (_, peer, context), sleeping() as (process, child):
        peer.announce("hello", process.pid, process.start_ticks)
        peer.announce("context", process.pid, process.start_ticks, GPU)
        messages = await until(context, lambda all_: tasks_of(all_, process) == ["started"])
        (task,) = [message.report.task for message in messages if message.what == "task.started"]
        assert task is not None
        assert (task.pod, task.container, task.gpu) == (POD, MAIN, GPU)
        await until_true(lambda: not peer.unacknowledged)
        child.kill()
        messages = await until(context, lambda all_: tasks_of(all_, process) == ["started", "exited"])
        assert orders(messages) == sorted(set(orders(messages)))
        assert {message.subject.split(".")[-1] for message in messages} == {"node-1_test"}


async def test_a_process_that_came_and_went_before_the_monitor_has_events(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Announcements that the broker journalled while no monitor ran become a start and an end."""
    (tmp_path / "broker").mkdir()
    async with announcer(tmp_path / "broker") as peer, jetstream(nats.url) as context:
        async with sleeping() as (process, _):
            peer.announce("context", process.pid, process.start_ticks, GPU)
        peer.announce("exited", process.pid, process.start_ticks)
        async with monitoring(tmp_path, nats.url):
            await until(context, both_told(process))


async def test_announcements_that_come_again_tell_nothing_again(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Repeated announcements, and a whole journal replayed after a disconnection, change nothing."""
    async with node(tmp_path, nats.url) as (monitor, peer, context), sleeping() as (process, _):
        peer.announce("context", process.pid, process.start_ticks, GPU)
        peer.repeat()
        peer.disconnect()
        await until_true(lambda: len(monitor.logged("listening to the broker")) == 1)
        await until(context, lambda messages: tasks_of(messages, process) == ["started"])
        peer.announce("denied", process.pid, process.start_ticks, GPU)
        peer.repeat()
        peer.repeat()
        peer.announce("exited", process.pid, process.start_ticks)
        messages = await until(context, both_told(process))
        assert [message.what for message in messages].count("limit.denied") == 1


async def test_a_damaged_line_is_ignored_with_a_log(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A damaged line is logged and skipped, and later announcements arrive."""
    async with node(tmp_path, nats.url) as (monitor, peer, context), sleeping() as (process, _):
        await until_true(lambda: monitor.logged("listening to the broker"))
        peer.damage(b'{"type":"announcement","seq":"one"}')
        peer.damage(b"\xff\x00 not json")
        peer.damage(b"x" * 3_000_000)
        peer.announce("context", process.pid, process.start_ticks, GPU)
        await until(context, lambda messages: tasks_of(messages, process) == ["started"])
        assert len(monitor.logged("damaged line")) == 3


async def test_an_announcement_that_only_a_newer_broker_knows_costs_a_log_line(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A bad announcement is logged once and acknowledged, also as the last of the journal; later ones count."""
    async with node(tmp_path, nats.url) as (monitor, peer, context), sleeping() as (process, _):
        peer.announce("melted", process.pid, process.start_ticks, GPU)
        await until_true(lambda: monitor.logged("a hooked process reports") and not peer.unacknowledged)
        peer.announce("context", process.pid, process.start_ticks, GPU)
        await until(context, lambda messages: tasks_of(messages, process) == ["started"])
        assert len(monitor.logged("a hooked process reports")) == 1
        assert not monitor.logged("damaged line")


async def test_the_monitor_killed_at_any_moment_publishes_each_event_once(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """After kills at any moment, while processes come and go, each event is published once and epochs grow."""
    async with node(tmp_path, nats.url) as (monitor, peer, context):
        processes: list[ProcessKey] = []
        for round_ in range(6):
            # A start takes a second. The kill comes after it, not during the imports.
            await until_logged(monitor, "listening", times=round_ + 1)
            for _ in range(4):
                async with sleeping() as (process, _child):
                    processes.append(process)
                    peer.announce("context", process.pid, process.start_ticks, GPU)
                    await asyncio.sleep(0.01 * round_)
                peer.announce("exited", process.pid, process.start_ticks)
            await monitor.kill()
            await monitor.start()
        await until_epoch(context, 7)
        messages = await until(context, both_told(*processes))
        ids = [message.event.id for message in messages]
        assert len(ids) == len(set(ids))


async def test_a_death_while_the_monitor_was_down_has_its_event_afterwards(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A death while the monitor was down has its event, as the table on disk holds the living tasks."""
    async with (
        node(tmp_path, nats.url) as (monitor, peer, context),
        sleeping() as (process, _),
        sleeping() as (living, _),
    ):
        for each in (process, living):
            peer.announce("context", each.pid, each.start_ticks, GPU)
        await until(context, lambda messages: tasks_of(messages, living) == ["started"])
        await monitor.kill()
        os.kill(process.pid, signal.SIGKILL)
        await monitor.start()
        messages = await until(context, both_told(process))
        assert tasks_of(messages, living) == ["started"]


async def test_events_stored_and_not_yet_published_outlive_a_kill(
    tmp_path: Path, own_nats: EmbeddedServer
) -> None:
    """Events in the outbox of a killed monitor are published by the next start, once and in order."""
    async with node(tmp_path, own_nats.url) as (monitor, peer, context), sleeping() as (process, _):
        await until(context, bool)
        await own_nats.kill()
        peer.announce("context", process.pid, process.start_ticks, GPU)
        # Acknowledged means stored: from here on only the outbox has the event.
        await until_true(lambda: not peer.unacknowledged)
        await monitor.kill()
        await own_nats.start()
        assert tasks_of(await stored(context), process) == []
        await monitor.start()
        messages = await until(context, lambda messages: tasks_of(messages, process) == ["started"])
        assert orders(messages) == sorted(set(orders(messages)))


async def test_nats_killed_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, own_nats: EmbeddedServer
) -> None:
    """NATS is killed several times while events flow, and every process has its events once, in order."""
    async with node(tmp_path, own_nats.url) as (_, peer, context):
        processes: list[ProcessKey] = []

        async def come_and_go() -> None:
            for _ in range(40):
                async with sleeping() as (process, _child):
                    processes.append(process)
                    peer.announce("context", process.pid, process.start_ticks, GPU)
                    await asyncio.sleep(0.02)
                peer.announce("exited", process.pid, process.start_ticks)

        coming = asyncio.create_task(come_and_go())
        for _ in range(3):
            await asyncio.sleep(0.3)
            await own_nats.kill()
            await own_nats.start()
        await coming
        messages = await until(context, both_told(*processes))
        assert orders(messages) == sorted(set(orders(messages)))
        ids = [message.event.id for message in messages]
        assert len(ids) == len(set(ids))


async def test_events_in_flight_when_nats_dies_are_sent_again(
    tmp_path: Path, own_nats: EmbeddedServer
) -> None:
    """Messages that a dying server did not store are sent again."""
    async with (
        node(tmp_path, own_nats.url) as (monitor, peer, context),
        sleeping() as (one, _),
        sleeping() as (two, _),
    ):
        await until_logged(monitor, "publishing", times=1)
        await until(context, bool)
        os.kill(own_nats.pid, signal.SIGSTOP)
        for each in (one, two):
            peer.announce("context", each.pid, each.start_ticks, GPU)
        await until_true(lambda: not peer.unacknowledged)
        await asyncio.sleep(0.5)  # The messages are now in the stopped server's socket.
        await own_nats.kill()
        await own_nats.start()
        messages = await until(
            context, lambda all_: all(tasks_of(all_, each) == ["started"] for each in (one, two))
        )
        assert orders(messages) == sorted(set(orders(messages)))


async def test_a_lost_epoch_begins_after_the_streams_last(tmp_path: Path, nats: EmbeddedServer) -> None:
    """After a wipe of its state directory a monitor begins with an epoch above the stream's last."""
    async with node(tmp_path, nats.url) as (monitor, _, context):
        for start in (1, 2, 3):
            await until_epoch(context, start)
            await monitor.kill()
            await (monitor.start() if start < 3 else asyncio.sleep(0))
        for path in (tmp_path / "state").iterdir():
            path.unlink()
        await monitor.start()
        await until_epoch(context, 4)


async def test_the_heartbeat_comes_without_any_event(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The state comes again and again with rising numbers, as readers take a silent node for dead."""
    async with node(tmp_path, nats.url, heartbeat_s=0.3) as (_, __, context):
        messages = await until(
            context, lambda messages: [message.what for message in messages].count("node.state") >= 4
        )
        assert orders(messages) == sorted(set(orders(messages)))


async def test_a_full_outbox_pauses_and_loses_nothing(tmp_path: Path, own_nats: EmbeddedServer) -> None:
    """While NATS is away and the outbox full, the broker keeps its journal; then every event comes once."""
    async with node(tmp_path, own_nats.url, outbox_bytes=10_000) as (monitor, peer, context):
        await until(context, bool)
        await own_nats.kill()
        processes: list[ProcessKey] = []
        for _ in range(10):
            async with sleeping() as (process, _child):
                processes.append(process)
                peer.announce("context", process.pid, process.start_ticks, GPU)
            peer.announce("exited", process.pid, process.start_ticks)
            await asyncio.sleep(0.05)
        await until_true(lambda: monitor.logged("the outbox is full"))
        assert peer.unacknowledged
        await own_nats.start()
        await until(context, both_told(*processes))
        await until_true(lambda: not peer.unacknowledged)


async def test_a_monitor_that_starts_before_nats_publishes_once_nats_is_there(
    tmp_path: Path, own_nats: EmbeddedServer
) -> None:
    """A monitor that starts before NATS logs one line, keeps events on disk, and publishes them later."""
    await own_nats.kill()
    (tmp_path / "broker").mkdir()
    async with announcer(tmp_path / "broker") as peer, monitoring(tmp_path, own_nats.url) as monitor:
        async with sleeping() as (process, _):
            peer.announce("context", process.pid, process.start_ticks, GPU)
            await until_true(lambda: monitor.logged("listening") and not peer.unacknowledged)
        peer.announce("exited", process.pid, process.start_ticks)
        await until_true(lambda: monitor.logged("events wait on disk"))
        await own_nats.start()
        async with jetstream(own_nats.url) as context:
            await until(context, both_told(process))
        assert len(monitor.logged("events wait on disk")) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_cleanly(tmp_path: Path, nats: EmbeddedServer, how: signal.Signals) -> None:
    """SIGTERM and SIGINT end the monitor with status 0, also without broker and GPU."""
    async with monitoring(tmp_path, nats.url) as monitor:
        await until_true(lambda: monitor.logged("no broker") and monitor.logged("no GPU"))
        assert await monitor.kill(how) == 0
        assert monitor.logged("stopped")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node": "Not_A_Node"}, ("PLIMSOLL_NODE", "Not_A_Node")),
        ({"nats_url": "nats://127.0.0.1:nope"}, ("PLIMSOLL_NATS_URL", "nope", "nats://host:port")),
        ({"nats_url_file": "/no/file"}, ("PLIMSOLL_NATS_URL_FILE", "/no/file", "nats://n1:password@host")),
        ({"nats_url_file": "/proc/version"}, ("PLIMSOLL_NATS_URL_FILE", "nats://host:port")),
        ({"reconcile_s": "soon"}, ("PLIMSOLL_RECONCILE_S", "soon")),
        ({"sharers_per_gpu": 0}, ("PLIMSOLL_SHARERS_PER_GPU", "0")),
        ({"settle_s": 1}, ("PLIMSOLL_SETTLE_S", "is no setting of Plimsoll")),
        ({"state_dir": "/proc/none"}, ("PLIMSOLL_STATE_DIR", "/proc/none", "writable")),
        ({"kubeconfig": "/does/not/exist"}, ("kubeconfig", "/does/not/exist", "readable kubeconfig")),
    ],
)
async def test_a_setting_that_cannot_work_is_refused_by_name(
    tmp_path: Path, nats: EmbeddedServer, settings: dict[str, object], words: tuple[str, ...]
) -> None:
    """A bad setting ends the monitor with status 2 and a line with variable, value and remedy."""
    monitor = MonitorProcess(tmp_path, nats.url, **settings)
    await monitor.start()
    assert await monitor.ended() == 2
    (line,) = monitor.logged("refused to start")
    assert all(word in line["problem"] for word in words)
