"""The module publishes reports as monitors do, and waits for the state that the placer derives from them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import nats as nats_client
from nats.js import JetStreamContext
from nats.js.api import Header

from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.intake import Intake, IntakeOptions
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.stores.list_writer import ListWriter
from placer.stores.scores import ScoreList, ScoresAwayError
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM, state_subject, task_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Gpu, NodeState, Report
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.core.worlds import gpu
from tests.servers.clusters import SentinelValkey
from tests.servers.relay import Relay
from tests.servers.waiting import PATIENCE_S

CHECK_S = 0.1


def report(node: str, seq: int = 1, *, epoch: int = 1, gpus: tuple[Gpu, ...] | None = None) -> NodeState:
    """A node's report. Without `gpus` it holds one GPU, whose use differs from report to report."""
    if gpus is None:
        gpus = (gpu(f"GPU-{node}", other_bytes=epoch * 1_000_000 + seq),)
    return NodeState(node=NodeName(node), epoch=epoch, seq=seq, time="2026-01-01T00:00:00Z", gpus=gpus)


async def publish(jetstream: JetStreamContext, *states: NodeState, what: str = "state") -> None:
    """Publish reports as a monitor does; `what` is `state`, `started`, `loaded` or `exited`."""
    for state in states:
        event_id = fact_id(what, state.node, state.epoch, state.seq)
        middle = "node.state" if what == "state" else f"task.{what}"
        body = encode(middle, event_id, f"/nodes/{state.node}", state.time, Report(state=state))
        subject = state_subject(state.node) if what == "state" else task_subject(what, state.node)
        await jetstream.publish(subject, body, headers={Header.MSG_ID.value: event_id})


@contextlib.asynccontextmanager
async def bus(server: EmbeddedServer) -> AsyncIterator[JetStreamContext]:
    """A monitor's connection, with the stream made."""
    client = await nats_client.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=1)
    try:
        jetstream = client.jetstream(timeout=PATIENCE_S)
        await Stream().ensure(jetstream)
        yield jetstream
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A running intake and list writer, and their surroundings."""

    intake: Intake
    scores: ScoreList
    decider: Decider

    @property
    def reports(self) -> ReportView:
        """The reports that were taken in."""
        return self.decider.reports

    @property
    def metrics(self) -> Metrics:
        """The metrics of both."""
        return self.decider.metrics

    async def listed(self) -> dict[NodeName, tuple[int, int]]:
        """Each node's order in Redis; empty while Redis is away or has lost the list."""
        with contextlib.suppress(ScoresAwayError):
            return await self.scores.orders() or {}
        return {}


@contextlib.asynccontextmanager
async def taking_in(
    nats: EmbeddedServer | Relay,
    valkey: EmbeddedServer | SentinelValkey,
    *,
    durable: str = "placer-test",
    check_s: float = CHECK_S,
    leads: asyncio.Event | None = None,
) -> AsyncIterator[Running]:
    """An intake and a list writer over these servers, until the context ends, of a placer that leads or will."""
    client = await nats_client.connect(nats.url, max_reconnect_attempts=-1, reconnect_time_wait=1)
    decider = Decider(ReportView(), Ledger(), Metrics())
    scores = ScoreList(valkey.url, rooms_of=decider.candidates.rooms_of, timeout_s=5)
    options = IntakeOptions(durable, check_s)
    running = Running(Intake(client, decider.reports, decider.metrics.reports, options), scores, decider)
    writer = ListWriter(scores, decider, check_s, leads)
    tasks = [asyncio.create_task(running.intake.run())]
    try:
        async with asyncio.timeout(PATIENCE_S):
            await running.intake.ready.wait()
            tasks.append(asyncio.create_task(writer.run()))
            if leads is None:
                await writer.complete.wait()
            streams = client.jetstream(timeout=PATIENCE_S)
            # The server does not announce changes of its consumers.
            while durable not in [one.name for one in await streams.consumers_info(STREAM)]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield running
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await scores.close()
        await client.close()
    for task in tasks:
        assert task.cancelled(), task.exception()


async def unacknowledged(jetstream: JetStreamContext, durable: str = "placer-test") -> tuple[int, int]:
    """The number of a consumer's messages that are delivered and unacknowledged, or still to come."""
    info = await jetstream.consumer_info(STREAM, durable)
    return info.num_ack_pending or 0, info.num_pending or 0


async def eventually(look: Callable[[], Awaitable[object]], expected: object) -> None:
    """Check until the expected state is there; on timeout, fail with the last state."""
    seen: list[object] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                seen[:] = [await look()]
                if seen[0] == expected:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"expected {expected}, saw {seen} last") from None


def orders(*states: NodeState) -> dict[NodeName, tuple[int, int]]:
    """The orders that the list should hold for these reports."""
    return {state.node: state.order for state in states}
