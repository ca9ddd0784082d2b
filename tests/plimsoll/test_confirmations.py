"""A resize is confirmed once every GPU of the container announced the requested values in the stream."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence

import nats as nats_client
import pytest
from nats.aio.client import Client

from plimsoll import envelope
from plimsoll.broker.wire import Line
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import limit_subject
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api import confirmations
from plimsoll.placer_api.rpc import Resize, Resizing
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.servers.waiting import PATIENCE_S

N1, POD, MAIN = NodeName("n.1"), PodUid("u"), ContainerName("main")
A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")
REQUEST = Resize(pod="p", gpu_memory="6Gi")
SHARES = Resize(pod="p", gpu_share="40", gpu_share_limit="80")
BOTH = Resize(pod="p", gpu_memory="1Gi", gpu_share="40")


def resizing(before_gib: int = 4) -> Resizing:
    """The placer's answer that grants 3 GiB on each of two GPUs."""
    before, after = (tuple(Line(gpu=gpu, line_bytes=gib * GIB) for gpu in (A, B)) for gib in (before_gib, 3))
    return Resizing(node=N1, pod=POD, container=MAIN, before=before, after=after)


def resharing() -> Resizing:
    """The placer's answer that grants 40 percent on GPU A, with a limit of 80 and the old line."""
    old = Line(gpu=A, line_bytes=GIB, share_pct=20, limit_pct=60)
    new = Line(gpu=A, line_bytes=GIB, share_pct=40, limit_pct=80)
    return Resizing(node=N1, pod=POD, container=MAIN, before=(old,), after=(new,))


def limit(gpu: GpuUuid, gib: int, pod: PodUid = POD, share: int = 0, most: int = 100) -> Limit:
    """The announcement of a line that holds now, with share and limit."""
    return Limit(
        node=N1,
        gpu=gpu,
        pod=pod,
        container=MAIN,
        used_bytes=GIB,
        line_bytes=gib * GIB,
        share_pct=share,
        limit_pct=most,
    )


@pytest.fixture
async def client(nats: EmbeddedServer) -> AsyncIterator[Client]:
    """A client of a bus with its stream."""
    client = await nats_client.connect(nats.url)
    await Stream().ensure(client.jetstream())
    yield client
    await client.close()


async def announce(client: Client, limits: Sequence[Limit]) -> None:
    """Publish announcements as monitors do."""
    for one in limits:
        body = envelope.encode(
            "limit.resized", os.urandom(8).hex(), "/nodes/n.1", "2026-01-01T00:00:00Z", one
        )
        await client.jetstream().publish(limit_subject("resized", N1), body)


EARLIER = (limit(A, 3), limit(B, 3))


@pytest.mark.parametrize(
    ("request_", "asked", "earlier", "noise", "last"),
    [
        pytest.param(
            REQUEST,
            resizing(),
            EARLIER,
            (limit(A, 3), limit(B, 3, PodUid("other")), limit(B, 9)),
            limit(B, 3),
            id="every GPU",
        ),
        pytest.param(
            SHARES,
            resharing(),
            (),
            (limit(A, 1, share=40, most=60), limit(A, 1, share=30, most=80)),
            limit(A, 9, share=40, most=80),
            id="a share, whatever else changes",
        ),
        pytest.param(
            BOTH,
            resharing(),
            (),
            (limit(A, 2, share=40), limit(A, 1, share=20)),
            limit(A, 1, share=40),
            id="line and share together",
        ),
        pytest.param(
            REQUEST,
            resizing(before_gib=3),
            (*EARLIER, limit(A, 5)),
            (limit(B, 5), limit(B, 3)),
            limit(A, 3),
            id="a repeated request whose value was changed since",
        ),
    ],
)
async def test_only_the_requested_values_on_every_gpu_confirm(
    client: Client,
    request_: Resize,
    asked: Resizing,
    earlier: Sequence[Limit],
    noise: Sequence[Limit],
    last: Limit,
) -> None:
    """Announcements from before, for other pods, or with other values confirm nothing; the last one does."""
    await announce(client, earlier)
    newest = await confirmations.newest(client.jetstream())
    await announce(client, noise)
    seen: dict[GpuUuid, Limit] = {}
    waiting = confirmations.until_confirmed(client.jetstream(), request_, asked, newest, seen)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(waiting)
        while noise[-1] not in seen.values():  # all noise has been read
            await asyncio.sleep(0.01)
            assert not task.done()
        await announce(client, [last])
    assert {line.gpu for line in asked.after} == seen.keys()
    assert seen[GpuUuid(str(last.gpu))] == last


async def test_a_line_set_before_is_confirmed_by_what_was_announced_then(client: Client) -> None:
    """A request repeated after a lost confirmation finds it in the stream, if no newer one is there."""
    await announce(client, EARLIER)
    newest = await confirmations.newest(client.jetstream())
    seen: dict[GpuUuid, Limit] = {}
    async with asyncio.timeout(PATIENCE_S):
        await confirmations.until_confirmed(client.jetstream(), REQUEST, resizing(3), newest, seen)
    assert seen == {A: EARLIER[0], B: EARLIER[1]}
