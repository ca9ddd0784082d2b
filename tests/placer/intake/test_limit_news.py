"""The last events about each pod's limits: read from a real NATS, recent, and bounded."""

import asyncio
import contextlib

import nats as nats_client
import pytest
from nats.aio.client import Client

from placer.intake import limit_news
from placer.intake.limit_news import RECENT_S, LimitView
from plimsoll.bus.subjects import limit_subject
from plimsoll.envelope import encode
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import eventually

NODE = NodeName("n.1")


def event(what: str, pod: str = "p") -> bytes:
    """An event about a pod's container."""
    limit = Limit(node=NODE, gpu=GpuUuid("G"), pod=PodUid(pod), container=ContainerName("main"))
    return encode(f"limit.{what}", f"{what}-{pod}", f"/nodes/{NODE}", "2026-01-01T00:00:00Z", limit)


def view(now_s: list[float]) -> LimitView:
    """A view whose clock is the list's last number, without a connection."""
    return LimitView(Client(), lambda: now_s[-1])


def kinds(known: LimitView, pod: str = "p") -> list[str]:
    """The kinds of a pod's recent events, the latest first."""
    return [one.what for one in known.of(PodUid(pod))]


def test_the_last_event_of_each_kind_counts_while_it_is_recent() -> None:
    """Later events of a kind replace earlier ones, a finished wait is dropped, and old events are ignored."""
    now_s = [0.0]
    known = view(now_s)
    for what in ("denied", "paused", "violated", "denied"):
        now_s.append(now_s[-1] + 1)
        known.note(event(what))
    assert kinds(known) == ["denied", "paused"]
    assert known.of(PodUid("p"))[1].age_s == 2
    known.note(event("resumed"))
    assert kinds(known) == ["denied"]
    now_s.append(now_s[-1] + RECENT_S + 1)
    assert kinds(known) == []
    assert kinds(known, "unknown") == []


def test_damaged_events_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands on the bus, the view goes on; the number of pods is bounded."""
    monkeypatch.setattr(limit_news, "PODS_AT_MOST", 3)
    known = view([0.0])
    for message in (
        b"",
        b"\xff",
        b"[" * 10_000,
        b"{}",
        event("denied")[:-5],
        event("denied").replace(b'"pod"', b'"x"'),
    ):
        known.note(message)
    for number in range(5):
        known.note(event("unmet", f"p{number}"))
    assert [kinds(known, f"p{number}") for number in range(5)] == [[], [], ["unmet"], ["unmet"], ["unmet"]]


async def test_events_come_from_the_bus(nats: EmbeddedServer) -> None:
    """An event that a monitor publishes is known shortly afterwards."""
    client = await nats_client.connect(nats.url)
    known = LimitView(client)
    task = asyncio.create_task(known.run())
    try:

        async def seen() -> list[str]:
            await client.publish(limit_subject("denied", NODE), event("denied"))
            return kinds(known)

        await eventually(seen, ["denied"])
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()
