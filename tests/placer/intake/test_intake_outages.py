"""No report is lost and the list is complete again after Redis, NATS or the placer itself was away."""

import asyncio
from functools import partial

import nats.errors
import redis.asyncio as redis
from nats.js import JetStreamContext

from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from plimsoll.bus.subjects import STREAM, state_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import NodeState, Report
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import (
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


async def test_start_rebuilds_the_list_from_the_last_messages(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer that starts with an empty Redis rebuilds the whole list before it is ready.

    Every event was acknowledged before.
    """
    nodes = [report(f"n{i}", 2) for i in range(300)]
    await publish(jetstream, *(report(f"n{i}", 1) for i in range(300)), what="started")
    await publish(jetstream, *nodes)
    async with taking_in(nats, valkey) as running:
        await eventually(lambda: unacknowledged(jetstream), (0, 0))
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.flushall()
    async with taking_in(nats, valkey) as running:
        assert await running.listed() == orders(*nodes)
        assert dict(running.reports) == {state.node: state for state in nodes}


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


async def test_list_that_outlived_its_placer_gets_the_scores_of_the_next_one(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A placer that starts with a complete list writes its own scores, though each report is in the list already."""
    async with taking_in(nats, valkey) as running:
        await publish(jetstream, report("a", gpus=(gpu("GPU-a"),)))
        await eventually(running.listed, {NodeName("a"): (1, 1)})
        before = await listed_scores(running.scores)
        decided = running.decider.decide(request("p", declared("main", 18)), HEADROOM)
        assert isinstance(decided, Plan)

        async def changed() -> bool:
            return await listed_scores(running.scores) != before

        await eventually(changed, expected=True)
    async with taking_in(nats, valkey) as running:
        await eventually(partial(listed_scores, running.scores), before)


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


async def test_deleted_consumer_is_made_again(jetstream: JetStreamContext, running: Running) -> None:
    """After an operator deletes the consumer the placer makes it again, and no report is lost."""
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


async def test_node_that_left_while_no_placer_ran_is_dropped(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A node that is in Redis but no longer in the stream is gone once the next placer is ready."""
    await publish(jetstream, report("a"), report("left"))
    async with taking_in(nats, valkey) as running:
        assert set(await running.listed()) == {"a", "left"}
    await jetstream.purge_stream(STREAM, subject=state_subject(NodeName("left")))
    async with taking_in(nats, valkey) as running:
        assert set(await running.listed()) == set(running.reports) == {"a"}
