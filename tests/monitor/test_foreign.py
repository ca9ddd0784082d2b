"""Two monitors under one name: both notice, in log, metric and an event, and neither is silent for good."""

import re
from pathlib import Path

import aiohttp
import msgspec

from monitor.foreign import ForeignNaming, ForeignReport
from plimsoll.events import Foreign
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.harness import Message, MonitorProcess, jetstream, monitoring, until, until_true
from tests.servers.waiting import until as until_async


def foreign(messages: list[Message]) -> set[tuple[int, int]]:
    """The pairs of epochs in the events about another monitor: of the publisher, and of the other one."""
    found = [
        msgspec.json.decode(message.event.data, type=Foreign)
        for message in messages
        if message.what == "node.foreign"
    ]
    return {(each.epoch, each.foreign_epoch) for each in found}


async def foreign_reports(monitor: MonitorProcess) -> int:
    """The monitor's metric."""
    (served,) = monitor.logged("metrics")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served['port']}/metrics") as answer,
    ):
        text = await answer.text()
    [value] = re.findall(r'^plimsoll_foreign_reports_total\{node="node-1.test"\} (\S+)$', text, re.MULTILINE)
    return int(float(value))


async def test_two_monitors_of_one_name_name_each_other(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The second monitor begins after the first one's epoch; both name the other, and go on."""
    settings = {"heartbeat_s": 0.3, "http_port": 0}
    async with jetstream(nats.url) as context, monitoring(tmp_path / "one", nats.url, **settings) as one:
        await until(context, bool)
        assert not one.logged("another monitor")
        async with monitoring(tmp_path / "two", nats.url, **settings) as two:
            messages = await until(context, lambda all_: foreign(all_) >= {(1, 2), (2, 1)})
            [named] = [line for line in one.logged("another monitor") if line["foreign_epoch"] == 2]
            assert "readers drop this monitor's reports" in named["reason"]
            for monitor in (one, two):
                await until_async(lambda monitor=monitor: foreign_reports(monitor))  # type: ignore[misc]
            subjects = {message.subject for message in messages if message.what == "node.foreign"}
            assert subjects == {"plimsoll.v1.node.foreign.node-1_test"}


async def test_a_silenced_monitor_counts_again_after_its_restart(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A monitor whose reports readers drop begins, at its next start, after the other one's epoch.

    That holds though its own reports are the last ones in the stream.
    """
    async with jetstream(nats.url) as context, monitoring(tmp_path / "one", nats.url, heartbeat_s=0.3) as one:
        await until(context, bool)
        async with monitoring(tmp_path / "two", nats.url, heartbeat_s=0.3):
            await until(context, lambda all_: all_[-1].what == "node.state" and epoch(all_[-1]) == 2)
        seen = len(await until(context, bool))
        await until(context, lambda all_: len(all_) > seen and epoch(all_[-1]) == 1)
        await one.kill()
        await one.start()
        await until(context, lambda all_: epoch(all_[-1]) > 2)
        await until_true(lambda: one.logged("the epoch begins after"))


async def test_a_silenced_monitor_counts_again_once_the_other_one_has_ended(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A monitor whose reports readers drop needs no restart: it begins a new epoch once the other one is silent."""
    async with jetstream(nats.url) as context, monitoring(tmp_path / "one", nats.url, heartbeat_s=0.3):
        await until(context, bool)
        async with monitoring(tmp_path / "two", nats.url, heartbeat_s=0.3):
            await until(context, lambda all_: (1, 2) in foreign(all_))
        await until(context, lambda all_: epoch(all_[-1]) > 2)


def test_no_monitor_outbids_one_that_reports() -> None:
    """Two monitors that both report keep their epochs; the passed one begins anew after three silent heartbeats."""
    naming = ForeignNaming(NodeName("node-1"))
    assert naming.outlived(4, 1e9, 60) is None
    for now_s in range(0, 1000, 100):
        naming.event(ForeignReport(5, ()), 4, (), now_s)
        assert naming.outlived(4, now_s + 179, 60) is None
    assert naming.outlived(4, 900 + 181, 60) == 5
    assert naming.outlived(6, 900 + 181, 60) is None


def epoch(message: Message) -> int:
    """A report's epoch; 0 for any other event."""
    return message.report.state.epoch if message.what.startswith(("task.", "node.state")) else 0
