"""Reports go from real NATS into view and real Valkey. None is lost or applied twice, and none waits for another."""

import asyncio
import random
from functools import partial

import nats.errors
import pytest
import redis.asyncio as redis
from nats.js import JetStreamContext

from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.intake import intake
from plimsoll.bus.subjects import info_subject, state_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import NodeState, Report
from plimsoll.gpu_events import GpuInfo, NodeInfo
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.part.errors import SHOWN_CHARS
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.placer.arrivals import (
    CHECK_S,
    Running,
    bus,
    eventually,
    orders,
    publish,
    report,
    taking_in,
    unacknowledged,
)
from tests.placer.core.worlds import declared, gpu, request
from tests.placer.listed import listed_scores
from tests.servers.waiting import PATIENCE_S


async def outcomes(running: Running) -> dict[str, int]:
    """The numbers of applied, stale and damaged reports."""
    return {
        name: int(running.metrics.reports.taken.labels(name)._value.get())
        for name in ("applied", "stale", "damaged")
    }


async def test_reports_reach_view_and_list_and_are_acknowledged(
    jetstream: JetStreamContext, running: Running
) -> None:
    """Events of all report subjects arrive in view and list, and are acknowledged to JetStream."""
    newest = report("a.example", 3), report("b", 2)
    await publish(jetstream, report("a.example", 1), what="started")
    await publish(jetstream, report("b", 1), what="loaded")
    await publish(jetstream, newest[0], what="exited")
    await publish(jetstream, newest[1])
    await eventually(running.listed, orders(*newest))
    assert dict(running.reports) == {state.node: state for state in newest}
    await eventually(lambda: unacknowledged(jetstream), (0, 0))


async def test_a_report_alone_is_taken_at_once(
    jetstream: JetStreamContext, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single event is taken at once, without waiting for others or for the request's timeout."""
    monkeypatch.setattr(intake, "IDLE_S", 10 * PATIENCE_S)
    for seq in (1, 2):
        await publish(jetstream, report("a", seq))
        await eventually(running.listed, orders(report("a", seq)))


@pytest.mark.parametrize("error", [nats.errors.TimeoutError, TimeoutError])
async def test_a_quiet_bus_is_no_failure(
    nats: EmbeddedServer, valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A request for reports that finds none is no failure, whichever of its two errors nats-py raises."""
    requests = 0

    async def find_none(*_: object, **__: object) -> None:
        nonlocal requests
        requests += 1
        await asyncio.sleep(0.01)
        raise error

    async def has_asked_often() -> bool:
        return requests > 10

    with capture_logs() as logs:
        async with bus(nats), taking_in(nats, valkey):
            monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", find_none)
            await eventually(has_asked_often, expected=True)
    assert [line for line in logs if line["log_level"] == "warning"] == []


async def test_late_and_doubled_events_change_nothing(jetstream: JetStreamContext, running: Running) -> None:
    """For any delivery order, and for repeats, the report with the newest epoch and seq stays."""
    states = [
        report(node, seq, epoch=epoch) for node in ("a", "b") for epoch in (1, 2) for seq in range(1, 11)
    ]
    arrived = states + [state for state in states if state.seq % 3]
    random.Random(7).shuffle(arrived)  # noqa: S311 - repeatable
    for what in ("started", "exited"):
        await publish(jetstream, *arrived, what=what)
    await eventually(lambda: unacknowledged(jetstream), (0, 0))
    assert await running.listed() == {"a": (2, 10), "b": (2, 10)}
    assert {node: state.order for node, state in running.reports.items()} == await running.listed()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"\xff\x00 no json", "event"),
        (b'{"id":"1"}', "event"),
        (
            encode(
                "node.state",
                "1",
                "/nodes/a",
                "t",
                Report(state=report("a", gpus=(gpu("GPU-a", idle_pct=500),))),
            ),
            "state.gpus[GPU-a].idle_pct",
        ),
        (
            encode("node.state", "2", "/nodes/a", "t", Report(state=report("impostor"))),
            "data.state.node",
        ),
    ],
    ids=["no-json", "no-event", "impossible-number", "another-nodes-subject"],
)
async def test_damaged_event_is_named_dropped_and_passed_over(
    jetstream: JetStreamContext, running: Running, body: bytes, field: str
) -> None:
    """A damaged event is logged with field, value and remedy and not delivered again; the next one is taken."""
    with capture_logs() as logs:
        await jetstream.publish(state_subject(NodeName("a")), body)
        await publish(jetstream, report("a", 2))
        await eventually(running.listed, {NodeName("a"): (1, 2)})
    [told] = [entry for entry in logs if entry["event"] == "a damaged event is dropped"]
    assert told["field"] == field
    assert told["remedy"]
    assert told["value"]
    assert await outcomes(running) == {"applied": 1, "stale": 0, "damaged": 1}
    await eventually(lambda: unacknowledged(jetstream), (0, 0))


@pytest.mark.parametrize(
    ("hostile", "field"),
    [
        (report("a", epoch=2**53, gpus=()), "state.epoch"),
        (report("a", 2, gpus=(gpu("G" * 500_000),)), "state.gpus[0].uuid"),
    ],
    ids=["last-epoch", "endless-uuid"],
)
async def test_hostile_report_of_a_node_changes_nothing(
    jetstream: JetStreamContext, running: Running, hostile: NodeState, field: str
) -> None:
    """A report that no monitor can have sent is refused in few words, and the node's later reports count."""
    await publish(jetstream, report("a"))
    with capture_logs() as logs:
        await publish(jetstream, hostile)
        await publish(jetstream, report("a", 3))
        await eventually(running.listed, {NodeName("a"): (1, 3)})
    [told] = [entry for entry in logs if entry["event"] == "a damaged event is dropped"]
    assert told["field"] == field
    assert len(told["value"]) <= SHOWN_CHARS
    assert await outcomes(running) == {"applied": 2, "stale": 0, "damaged": 1}


async def test_reports_of_a_lower_epoch_are_counted_for_their_node(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A second monitor's reports are counted, and the messages that a placer reads at its start are not."""
    await publish(jetstream, report("b", 1), what="started")
    await publish(jetstream, report("b", 2))
    async with taking_in(nats, valkey) as running:
        await publish(jetstream, report("a", 1, epoch=5), report("a", 7, epoch=3), report("b", 3))
        await eventually(running.listed, orders(report("a", 1, epoch=5), report("b", 3)))
        late = [
            (sample.labels["node"], sample.value)
            for family in running.metrics.reports.late.collect()
            for sample in family.samples
        ]
        assert late == [("a", 1.0)]


async def test_damaged_last_event_does_not_hold_up_the_start(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer starts, and knows the other nodes, though one node's last message is damaged."""
    await publish(jetstream, report("b"))
    await jetstream.publish(state_subject(NodeName("a")), b"{")
    async with taking_in(nats, valkey) as running:
        assert await running.listed() == {"b": (1, 1)}


async def publish_hardware(jetstream: JetStreamContext, node: str, cpus: str, hour: int) -> None:
    """Publish a node's hardware as a monitor does, at some hour: one GPU near these CPUs."""
    one = GpuInfo(uuid=GpuUuid("GPU-a"), index=0, model="NVIDIA L4", pci="0000:17:00.0", cores=cpus)
    info = NodeInfo(node=NodeName(node), heartbeat_s=60, driver="580", gpus=(one,))
    time = f"2026-01-01T{hour:02}:00:00.000000Z"
    body = encode("node.info", fact_id(node, hour, cpus), f"/nodes/{node}", time, info)
    await jetstream.publish(info_subject(NodeName(node)), body)


async def test_hardware_reaches_decisions_and_survives_a_restart(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A node's latest hardware is in its view, also in a later placer's; late and damaged events change nothing."""
    node = NodeName("n1")

    async def cpus(running: Running) -> str:
        view = running.reports.view(node)
        hardware = view.hardware if view is not None else None
        return hardware.cpus_near([GpuUuid("GPU-a")]) if hardware is not None else ""

    await publish(jetstream, report(node))
    async with taking_in(nats, valkey) as running:
        assert await cpus(running) == ""
        await publish_hardware(jetstream, node, "0-3", hour=1)
        await eventually(lambda: cpus(running), "0-3")
        await publish_hardware(jetstream, node, "4-7", hour=3)
        await eventually(lambda: cpus(running), "4-7")
        await publish_hardware(jetstream, node, "0-3", hour=2)
        await publish_hardware(jetstream, node, "7-4", hour=4)
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
        assert await cpus(running) == "4-7"
        assert (await outcomes(running))["damaged"] == 1
        await publish_hardware(jetstream, node, "0-7", hour=5)
        await eventually(lambda: cpus(running), "0-7")
    async with taking_in(nats, valkey) as running:
        assert await cpus(running) == "0-7"


async def test_list_follows_promises_and_what_a_rebuild_gives(
    jetstream: JetStreamContext, running: Running, valkey: EmbeddedServer
) -> None:
    """Scores in the list sink with a booking, without any report, rise with its end, and equal a new list's."""
    states = [report(name, gpus=(gpu(f"GPU-{name}"),)) for name in ("a", "b")]
    await publish(jetstream, *states)
    await eventually(running.listed, orders(*states))
    decider, before = running.decider, await listed_scores(running.scores)

    async def by_gpu() -> dict[str, float]:
        return {
            node: round(score, 4) for (node, _), score in (await listed_scores(running.scores))[1].items()
        }

    for pod in ("p", "q"):
        assert isinstance(decider.decide(request(pod, declared("main", 18)), HEADROOM), Plan)
    await eventually(by_gpu, {"a": 0.25, "b": 0.25})
    decider.ledger.forget(PodUid("p"))
    decider.ledger.forget(PodUid("q"))
    await eventually(partial(listed_scores, running.scores), before)
    assert isinstance(decider.decide(request("p", declared("main", 12)), HEADROOM), Plan)
    await eventually(by_gpu, {"a": 1.0, "b": 0.5})
    kept = await listed_scores(running.scores)
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.flushall()
    await eventually(partial(listed_scores, running.scores), kept)


async def test_intake_ends_when_it_is_told_to(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """An intake that is cancelled in the middle of a flood of events ends, each time."""
    for attempt in range(1, 16):
        async with taking_in(nats, valkey):
            await publish(jetstream, *(report(f"n{i}", attempt) for i in range(20)))
            for _ in range(attempt):
                await asyncio.sleep(0)


async def test_two_placers_both_see_every_report(nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """Two placers with different names each receive all events."""
    async with (
        bus(nats) as jetstream,
        taking_in(nats, valkey, durable="placer-one") as one,
        taking_in(nats, valkey, durable="placer-two") as two,
    ):
        states = [report(f"n{i}") for i in range(10)]
        await publish(jetstream, *states)
        for running in (one, two):

            async def seen(running: Running = running) -> dict[NodeName, tuple[int, int]]:
                return orders(*running.reports.values())

            await eventually(seen, orders(*states))


async def test_follower_reads_reports_and_leaves_the_list_alone(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """The list belongs to the placer that leads. Once this one does, it completes the list."""
    leads = asyncio.Event()
    async with bus(nats) as jetstream, taking_in(nats, valkey, leads=leads) as running:
        await publish(jetstream, report("n1"), report("n2", 7))

        async def seen() -> set[str]:
            return set(running.reports)

        await eventually(seen, {"n1", "n2"})
        running.intake.forget(NodeName("n1"))
        await asyncio.sleep(5 * CHECK_S)  # the list would be filled in this time
        assert await running.scores.orders() is None
        leads.set()
        await eventually(running.listed, {"n2": (1, 7)})
