"""A node that no longer reports is silent after three heartbeats, and forgotten after a longer time."""

import asyncio
from datetime import datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from nats.js import JetStreamContext

from placer.intake import intake
from placer.intake.intake import FORGET_NODE_S
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import (
    Running,
    bus,
    eventually,
    publish,
    report,
    taking_in,
    unacknowledged,
)
from tests.servers.relay import relay


def pass_time(running: Running, node: str, seconds: float) -> None:
    """Make a node's newest report this much older: however slow the machine, no node is forgotten before."""
    running.intake._reported_s[NodeName(node)] -= seconds


async def test_silent_node_is_forgotten(jetstream: JetStreamContext, running: Running) -> None:
    """A node without reports leaves view and list after a time, and comes back with its next report."""
    await publish(jetstream, report("a"))
    await eventually(running.listed, {NodeName("a"): (1, 1)})
    pass_time(running, "a", FORGET_NODE_S)
    await eventually(running.listed, {})
    assert not running.reports
    await publish(jetstream, report("a", 2))
    await eventually(running.listed, {NodeName("a"): (1, 2)})


async def test_speaking_node_is_not_forgotten(jetstream: JetStreamContext, running: Running) -> None:
    """A node that goes on reporting stays in list and view while another node is forgotten."""
    await publish(jetstream, report("silent"), report("a"))
    await eventually(running.listed, {NodeName("silent"): (1, 1), NodeName("a"): (1, 1)})
    for node in ("silent", "a"):
        pass_time(running, node, FORGET_NODE_S / 2)
    await publish(jetstream, report("a", 2))
    await eventually(running.listed, {NodeName("silent"): (1, 1), NodeName("a"): (1, 2)})
    for node in ("silent", "a"):
        pass_time(running, node, FORGET_NODE_S * 3 / 4)
    await eventually(running.listed, {NodeName("a"): (1, 2)})
    assert set(running.reports) == {"a"}


def beating(node: str, seq: int, heartbeat_s: float) -> NodeState:
    """A report of a node with so fast a heartbeat."""
    return msgspec.structs.replace(report(node, seq), heartbeat_s=heartbeat_s)


async def test_node_is_silent_after_three_heartbeats_until_it_reports(
    jetstream: JetStreamContext, running: Running
) -> None:
    """A silent node stays in view and list, is counted, reaches listeners once, and is back with its next report."""
    told: list[tuple[NodeName, bool]] = []
    running.reports.on_change(lambda node: told.append((node, node in running.reports.silent)))

    async def silent() -> set[NodeName]:
        assert running.metrics.reports.silent_nodes._value.get() == len(running.reports.silent)
        [family] = running.metrics.reports.node_silent.collect()
        shown = {sample.labels["node"] for sample in family.samples if sample.value}
        assert shown == running.reports.silent
        return set(running.reports.silent)

    await publish(jetstream, report("steady"), beating("a", 1, 0.2))
    await eventually(silent, {"a"})
    await eventually(running.listed, {"steady": (1, 1), "a": (1, 1)})
    assert set(running.reports) == {"steady", "a"}
    await publish(jetstream, beating("a", 2, 3600))
    await eventually(silent, set())
    assert [silent for node, silent in told if node == "a"] == [False, True, False]


async def test_restart_knows_silent_nodes_by_their_age_in_the_stream(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer that starts after a node died never takes that node for a candidate."""
    await publish(jetstream, beating("dead", 1, 0.1), beating("alive", 1, 3600))
    await asyncio.sleep(0.5)  # the report must be older than three heartbeats
    async with taking_in(nats, valkey) as running:
        assert set(running.reports.silent) == {"dead"}
        assert set(running.reports) == {"dead", "alive"}


@pytest.mark.parametrize("pause_s", [1, 6], ids=["the request stays", "the server sends it again"])
async def test_reports_that_waited_in_the_stream_do_not_end_a_silence(
    nats: EmbeddedServer, valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, pause_s: int
) -> None:
    """After a pause of the reading, a node that fell silent meanwhile is never a candidate."""
    monkeypatch.setattr(intake, "BATCH", 1)  # so that the reports of the pause come in several answers
    monkeypatch.setattr(intake, "IDLE_S", 0.5)
    monkeypatch.setattr(intake, "FRESH_S", 0.5)
    async with bus(nats) as jetstream, relay(nats.url) as network, taking_in(network, valkey) as running:
        await publish(jetstream, beating("dead", 1, 0.1), beating("gone", 1, 0.1), report("alive"))

        async def silent() -> set[NodeName]:
            return set(running.reports.silent)

        await eventually(silent, {"dead", "gone"})
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
        seen = set[tuple[NodeName, int, bool]]()

        async def look() -> None:
            """Note all that decisions could see: they too run between two steps of the intake."""
            while True:
                seen.update(
                    (node, it.seq, node in running.reports.silent) for node, it in running.reports.items()
                )
                await asyncio.sleep(0)

        with network.held():
            await publish(jetstream, beating("dead", 2, 0.1), report("alive", 2))
            await asyncio.sleep(1)  # the server's answer to the placer's request ends meanwhile
            await publish(jetstream, beating("gone", 2, 0.1))
            await asyncio.sleep(
                pause_s
            )  # the reports must be older than three heartbeats, and than `FRESH_S`
            looking = asyncio.create_task(look())
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
        looking.cancel()
        assert {(node, is_silent) for node, _, is_silent in seen} == {
            ("dead", True),
            ("gone", True),
            ("alive", False),
        }
        assert {(node, seq) for node, seq, _ in seen} >= {("dead", 2), ("gone", 2), ("alive", 2)}
        await publish(jetstream, beating("dead", 3, 3600), beating("gone", 3, 3600))
        await eventually(silent, set())


async def test_age_of_a_report_is_that_of_the_servers_clock(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A placer whose machine's clock is a day ahead takes no live node for a silent one."""

    ahead = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=1))
    monkeypatch.setattr(intake, "datetime", ahead)
    monkeypatch.setattr(intake, "FRESH_S", 0.0)
    await publish(jetstream, beating("a", 1, 600))
    async with taking_in(nats, valkey) as running:
        await publish(jetstream, beating("b", 1, 600))
        await eventually(running.listed, {"a": (1, 1), "b": (1, 1)})
        assert not running.reports.silent


async def test_forgotten_node_is_silent_no_longer(jetstream: JetStreamContext, running: Running) -> None:
    """A silent node that is forgotten is neither in the view nor among the silent nodes."""
    await publish(jetstream, beating("a", 1, 0.1))

    async def seen() -> tuple[set[NodeName], set[NodeName]]:
        return set(running.reports), set(running.reports.silent)

    await eventually(seen, ({"a"}, {"a"}))
    pass_time(running, "a", FORGET_NODE_S)
    await eventually(seen, (set(), set()))
