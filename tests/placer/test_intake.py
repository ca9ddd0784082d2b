"""Reports go from real NATS into view and real Valkey. None is lost or applied twice, and none waits for another."""

import asyncio
import random

import nats.errors
import pytest
import redis.asyncio as redis
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from structlog.testing import capture_logs

from placer import intake
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.envelope import encode, fact_id
from plimsoll.events import NodeState, Report
from plimsoll.gpu_events import GpuInfo, NodeInfo
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.part.errors import SHOWN_CHARS
from plimsoll.subjects import REPORTS, STREAM, info_subject, state_subject
from tests.placer.arrivals import (
    CHECK_S,
    PATIENCE_S,
    Running,
    bus,
    eventually,
    publish,
    report,
    taking_in,
    unacknowledged,
)
from tests.placer.core.worlds import declared, gpu, request


def orders(*states: NodeState) -> dict[NodeName, tuple[int, int]]:
    """The orders that the list should hold for these reports."""
    return {state.node: state.order for state in states}


async def outcomes(running: Running) -> dict[str, int]:
    """The numbers of applied, stale and damaged reports."""
    return {
        name: int(running.metrics.reports.labels(name)._value.get())
        for name in ("applied", "stale", "damaged")
    }


async def test_reports_reach_view_and_list_and_are_acknowledged(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """Events of all report subjects arrive in view and list, and are acknowledged to JetStream."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
        newest = report("a.example", 3), report("b", 2)
        await publish(jetstream, report("a.example", 1), what="started")
        await publish(jetstream, report("b", 1), what="loaded")
        await publish(jetstream, newest[0], what="exited")
        await publish(jetstream, newest[1])
        await eventually(running.listed, orders(*newest))
        assert dict(running.reports) == {state.node: state for state in newest}
        await eventually(lambda: unacknowledged(jetstream), (0, 0))


async def test_a_report_alone_is_taken_at_once(
    nats: EmbeddedServer, valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single event is taken at once, without waiting for others or for the request's timeout."""
    monkeypatch.setattr(intake, "IDLE_S", 10 * PATIENCE_S)
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
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


async def test_late_and_doubled_events_change_nothing(nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """For any delivery order, and for repeats, the report with the newest epoch and seq stays."""
    states = [
        report(node, seq, epoch=epoch) for node in ("a", "b") for epoch in (1, 2) for seq in range(1, 11)
    ]
    arrived = states + [state for state in states if state.seq % 3]
    random.Random(7).shuffle(arrived)  # noqa: S311 - repeatable
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
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
    nats: EmbeddedServer, valkey: EmbeddedServer, body: bytes, field: str
) -> None:
    """A damaged event is logged with field, value and remedy and not delivered again; the next one is taken."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
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
    nats: EmbeddedServer, valkey: EmbeddedServer, hostile: NodeState, field: str
) -> None:
    """A report that no monitor can have sent is refused in few words, and the node's later reports count."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
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
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A second monitor's reports are counted, and the messages that a placer reads at its start are not."""
    async with bus(nats) as jetstream:
        await publish(jetstream, report("b", 1), what="started")
        await publish(jetstream, report("b", 2))
        async with taking_in(nats, valkey) as running:
            await publish(jetstream, report("a", 1, epoch=5), report("a", 7, epoch=3), report("b", 3))
            await eventually(running.listed, orders(report("a", 1, epoch=5), report("b", 3)))
            late = [
                (sample.labels["node"], sample.value)
                for family in running.metrics.late_reports.collect()
                for sample in family.samples
            ]
            assert late == [("a", 1.0)]


async def test_damaged_last_event_does_not_hold_up_the_start(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer starts, and knows the other nodes, though one node's last message is damaged."""
    async with bus(nats) as jetstream:
        await publish(jetstream, report("b"))
        await jetstream.publish(state_subject(NodeName("a")), b"{")
        async with taking_in(nats, valkey) as running:
            assert await running.listed() == {"b": (1, 1)}


async def test_start_rebuilds_the_list_from_the_last_messages(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer that starts with an empty Redis rebuilds the whole list before it is ready.

    Every event was acknowledged before.
    """
    nodes = [report(f"n{i}", 2) for i in range(300)]
    async with bus(nats) as jetstream:
        await publish(jetstream, *(report(f"n{i}", 1) for i in range(300)), what="started")
        await publish(jetstream, *nodes)
        async with taking_in(nats, valkey) as running:
            await eventually(lambda: unacknowledged(jetstream), (0, 0))
        async with redis.Redis.from_url(valkey.url, protocol=2) as client:
            await client.flushall()
        async with taking_in(nats, valkey) as running:
            assert await running.listed() == orders(*nodes)
            assert dict(running.reports) == {state.node: state for state in nodes}


async def publish_hardware(jetstream: JetStreamContext, node: str, cpus: str, hour: int) -> None:
    """Publish a node's hardware as a monitor does, at some hour: one GPU near these CPUs."""
    one = GpuInfo(uuid=GpuUuid("GPU-a"), index=0, model="NVIDIA L4", pci="0000:17:00.0", cores=cpus)
    info = NodeInfo(node=NodeName(node), heartbeat_s=60, driver="580", gpus=(one,))
    time = f"2026-01-01T{hour:02}:00:00.000000Z"
    body = encode("node.info", fact_id(node, hour, cpus), f"/nodes/{node}", time, info)
    await jetstream.publish(info_subject(NodeName(node)), body)


async def test_hardware_reaches_decisions_and_survives_a_restart(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A node's latest hardware is in its view, also in a later placer's; late and damaged events change nothing."""
    node = NodeName("n1")

    async def cpus(running: Running) -> str:
        view = running.reports.view(node)
        hardware = view.hardware if view is not None else None
        return hardware.cpus_near([GpuUuid("GPU-a")]) if hardware is not None else ""

    async with bus(nats) as jetstream:
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


async def test_a_consumer_of_an_earlier_version_gets_hardware_too(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A durable consumer that was made for reports alone gets the events about hardware after an upgrade."""
    earlier = ConsumerConfig(
        durable_name="placer-test",
        filter_subjects=list(REPORTS),
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=10,
        inactive_threshold=3600,
    )
    async with bus(nats) as jetstream:
        await jetstream.add_consumer(STREAM, earlier)
        async with taking_in(nats, valkey) as running:

            async def is_known() -> bool:
                view = running.reports.view(NodeName("n1"))
                return view is not None and view.hardware is not None

            await publish(jetstream, report("n1"))
            await publish_hardware(jetstream, "n1", "0-3", hour=1)
            await eventually(is_known, expected=True)


async def test_killed_redis_is_filled_again_without_any_event(
    nats: EmbeddedServer, own_valkey: EmbeddedServer
) -> None:
    """After SIGKILL and an empty restart of Valkey the list is complete again without any new event."""
    nodes = [report(f"n{i}") for i in range(20)]
    async with bus(nats) as jetstream, taking_in(nats, own_valkey) as running:
        await publish(jetstream, *nodes)
        await eventually(running.listed, orders(*nodes))
        await own_valkey.kill()
        await own_valkey.restart()
        await eventually(running.listed, orders(*nodes))
        by_node, _ = await running.scores.scores()
        assert sorted(by_node) == sorted(state.node for state in nodes)


async def test_flushed_list_is_filled_before_the_next_event_is_taken(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """After FLUSHALL the next event fills the whole list first, so no reader finds half a list."""
    nodes = [report(f"n{i}") for i in range(20)]
    async with bus(nats) as jetstream, taking_in(nats, valkey, check_s=3600) as running:
        await publish(jetstream, *nodes)
        await eventually(running.listed, orders(*nodes))
        async with redis.Redis.from_url(valkey.url, protocol=2) as client:
            await client.flushall()
        await publish(jetstream, report("n0", 2))
        await eventually(running.listed, orders(*nodes) | {NodeName("n0"): (1, 2)})


async def test_list_that_went_back_in_time_is_brought_forward(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A list restored from an old snapshot, complete but stale, is noticed and repaired without any event."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
        await publish(jetstream, report("a", 1), report("b", 1))
        await eventually(running.listed, {NodeName("a"): (1, 1), NodeName("b"): (1, 1)})
        async with redis.Redis.from_url(valkey.url, protocol=2) as client:
            snapshot = {key: await client.dump(key) for key in await client.keys("*")}
            await publish(jetstream, report("a", 2), report("b", 2))
            await eventually(running.listed, {NodeName("a"): (1, 2), NodeName("b"): (1, 2)})
            await client.flushall()
            for key, value in snapshot.items():
                assert value is not None
                await client.restore(key, 0, value)
        await eventually(running.listed, {NodeName("a"): (1, 2), NodeName("b"): (1, 2)})


async def test_reports_go_on_while_redis_is_dead(nats: EmbeddedServer, own_valkey: EmbeddedServer) -> None:
    """Events published while Valkey is dead reach the view and are acknowledged; the list has them afterwards."""
    async with bus(nats) as jetstream, taking_in(nats, own_valkey) as running:
        await publish(jetstream, report("a", 1))
        await eventually(running.listed, {NodeName("a"): (1, 1)})
        await own_valkey.kill()
        for seq in (2, 3):
            await publish(jetstream, report("a", seq), report("b", seq))

            async def seen() -> dict[NodeName, tuple[int, int]]:
                return orders(*running.reports.values())

            await eventually(seen, orders(report("a", seq), report("b", seq)))
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
        await own_valkey.restart()
        await eventually(running.listed, {NodeName("a"): (1, 3), NodeName("b"): (1, 3)})


async def test_list_follows_promises_and_what_a_rebuild_gives(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """Scores in the list sink with a booking, without any report, rise with its end, and equal a new list's."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
        states = [report(name, gpus=(gpu(f"GPU-{name}"),)) for name in ("a", "b")]
        await publish(jetstream, *states)
        await eventually(running.listed, orders(*states))
        decider, before = running.decider, await running.scores.scores()

        async def by_gpu() -> dict[str, float]:
            return {node: round(score, 4) for (node, _), score in (await running.scores.scores())[1].items()}

        for pod in ("p", "q"):
            assert isinstance(decider.decide(request(pod, declared("main", 18)), HEADROOM), Plan)
        await eventually(by_gpu, {"a": 0.25, "b": 0.25})
        decider.ledger.forget(PodUid("p"))
        decider.ledger.forget(PodUid("q"))
        await eventually(running.scores.scores, before)
        assert isinstance(decider.decide(request("p", declared("main", 12)), HEADROOM), Plan)
        await eventually(by_gpu, {"a": 1.0, "b": 0.5})
        kept = await running.scores.scores()
        async with redis.Redis.from_url(valkey.url, protocol=2) as client:
            await client.flushall()
        await eventually(running.scores.scores, kept)


async def test_list_that_outlived_its_placer_gets_the_scores_of_the_next_one(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer that starts with a complete list writes its own scores, though each report is in the list already."""
    async with bus(nats) as jetstream:
        async with taking_in(nats, valkey) as running:
            await publish(jetstream, report("a", gpus=(gpu("GPU-a"),)))
            await eventually(running.listed, {NodeName("a"): (1, 1)})
            before = await running.scores.scores()
            decided = running.decider.decide(request("p", declared("main", 18)), HEADROOM)
            assert isinstance(decided, Plan)

            async def changed() -> bool:
                return await running.scores.scores() != before

            await eventually(changed, expected=True)
        async with taking_in(nats, valkey) as running:
            await eventually(running.scores.scores, before)


async def test_killed_nats_loses_nothing(own_nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """After SIGKILL of NATS in the middle of a stream of events, every acknowledged event arrives."""
    async with bus(own_nats) as jetstream, taking_in(own_nats, valkey) as running:
        for seq in range(1, 41):
            if seq == 20:
                await own_nats.kill()
                await own_nats.restart()
            await publish_until_stored(jetstream, report(f"n{seq % 5}", seq))
        await eventually(running.listed, {NodeName(f"n{seq % 5}"): (1, seq) for seq in range(36, 41)})
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
        state = (await jetstream.stream_info(STREAM)).state
        assert state.messages == 40


async def publish_until_stored(jetstream: JetStreamContext, state: NodeState) -> None:
    """Publish as a monitor does, with one id until the event is acknowledged."""
    event_id = fact_id("state", state.node, state.epoch, state.seq)
    body = encode("node.state", event_id, f"/nodes/{state.node}", state.time, Report(state=state))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await jetstream.publish(
                    state_subject(state.node), body, timeout=1, headers={"Nats-Msg-Id": event_id}
                )
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.1)
            else:
                return


async def test_deleted_consumer_is_made_again(nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """After an operator deletes the consumer the placer makes it again, and no report is lost."""
    async with bus(nats) as jetstream, taking_in(nats, valkey) as running:
        await publish(jetstream, report("a", 1))
        await eventually(running.listed, {NodeName("a"): (1, 1)})
        await jetstream.delete_consumer(STREAM, "placer-test")
        await publish(jetstream, report("a", 2))
        await eventually(running.listed, {NodeName("a"): (1, 2)})


async def test_start_waits_for_absent_servers(own_nats: EmbeddedServer, own_valkey: EmbeddedServer) -> None:
    """A placer that starts while Valkey is dead gets ready once it is back."""
    async with bus(own_nats) as jetstream:
        await publish(jetstream, report("a"))
    await own_valkey.kill()

    async def revive() -> None:
        await asyncio.sleep(0.3)
        await own_valkey.restart()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(revive())
        async with taking_in(own_nats, own_valkey) as running:
            assert await running.listed() == {"a": (1, 1)}


async def test_intake_ends_when_it_is_told_to(nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """An intake that is cancelled in the middle of a flood of events ends, each time."""
    async with bus(nats) as jetstream:
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


async def test_node_that_left_while_no_placer_ran_is_dropped(
    nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A node that is in Redis but no longer in the stream is gone once the next placer is ready."""
    async with bus(nats) as jetstream:
        await publish(jetstream, report("a"), report("left"))
        async with taking_in(nats, valkey) as running:
            assert set(await running.listed()) == {"a", "left"}
        await jetstream.purge_stream(STREAM, subject=state_subject(NodeName("left")))
        async with taking_in(nats, valkey) as running:
            assert set(await running.listed()) == set(running.reports) == {"a"}


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
