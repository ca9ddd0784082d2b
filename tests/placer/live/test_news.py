"""Events in a few words: bounded, each once, and damage changes nothing."""

import asyncio

import nats as nats_client

from placer.live.news import KEPT, LONGEST_TEXT, RecentNews
from placer.live.pods import PodName
from plimsoll.bus.client import BusClient
from plimsoll.bus.subjects import limit_subject, pod_subject
from plimsoll.envelope import encode
from plimsoll.events import Limit, Phase, Placement, Report
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.live.world import card, loading, state
from tests.servers.waiting import PATIENCE_S, until_true

DENIED = Limit(
    node=NodeName("n1"),
    gpu=GpuUuid("GPU-1"),
    pod=PodUid("p"),
    container=ContainerName("main"),
    requested_bytes=2 * GIB,
    used_bytes=7 * GIB,
    line_bytes=8 * GIB,
)


def room() -> RecentNews:
    """A room without a bus that knows one pod."""
    return RecentNews(BusClient(), lambda uid: PodName("team", "trainer") if uid == "p" else None)


def denied(number: int = 0) -> bytes:
    """An event of its own."""
    return encode("limit.denied", f"id-{number}", "/nodes/n1", "2026-01-01T00:00:00Z", DENIED)


def test_an_event_is_told_in_a_few_words() -> None:
    """A refusal names the pod, the sizes and the line."""
    news = room()
    news.note(denied())
    [one] = news.since(0)
    assert (one.what, one.node, one.namespace, one.name) == ("limit.denied", "n1", "team", "trainer")
    assert one.text == "main: 2Gi more were refused; it holds 7Gi of 8Gi"


def test_the_event_of_a_task_comes_from_its_report() -> None:
    """A report with a task is an event, a report without one is none; the same again changes nothing."""
    news = room()
    task = loading("p", "GPU-1", 3)
    reported = state("n1", card("GPU-1", task))
    news.note_report(Report(state=reported))
    assert news.since(0) == []
    for _ in range(2):
        news.note_report(Report(state=reported, task=task))
    [one] = news.since(0)
    assert (one.what, one.name, one.text) == (f"task.{Phase.LOADED.value}", "trainer", "3Gi on GPU 0")


def test_the_number_of_events_is_bounded_and_each_is_kept_once() -> None:
    """The oldest go first; a repeated event has no second number; texts are cut."""
    news = room()
    for number in range(KEPT + 10):
        news.note(denied(number))
        news.note(denied(number))
    kept = news.since(0)
    assert (len(kept), kept[0].id, kept[-1].id, news.number) == (KEPT, "id-10", f"id-{KEPT + 9}", KEPT + 10)
    assert [one.id for one in news.since(news.number - 1)] == [f"id-{KEPT + 9}"]
    placement = Placement(namespace="team", name="p", pod=PodUid("p"), reason="x" * 5000)
    news.note(encode("pod.unplaceable", "long", "/placer", "2026-01-01T00:00:00Z", placement))
    assert len(news.since(0)[-1].text) == LONGEST_TEXT


def test_an_event_of_the_placer_itself_is_shown_as_any_other() -> None:
    """An event is shown once, also if the bus brings it too."""
    news = room()
    placement = Placement(namespace="team", name="p", pod=PodUid("p"), reason="x" * 5000)
    message = encode("pod.unplaceable", "own", "/placer", "2026-01-01T00:00:00Z", placement)
    news.note_own("own", message)
    news.note(denied())
    news.note(message)
    for _ in range(2):
        own, other = news.since(0)
        assert (own.id, own.what, own.name, other.id) == ("own", "pod.unplaceable", "p", "id-0")
        assert len(own.text) == LONGEST_TEXT
    news.note_own("damaged", b"{}")
    assert len(news.since(0)) == 2


def test_damage_changes_nothing() -> None:
    """Whatever a stranger publishes, the news room keeps its events."""
    news = room()
    for message in (b"", b"\xff", b"[" * 5000, b"{}", denied()[:-3], denied().replace(b'"main"', b"{}")):
        news.note(message)
    assert news.since(0) == []


async def test_events_are_read_from_the_bus(nats: EmbeddedServer) -> None:
    """Events of limits and of pods arrive from the subjects to which the parts publish them."""
    client = BusClient()
    await client.connect(nats.url)
    news = RecentNews(client, lambda _: None)
    reading = asyncio.create_task(news.run())
    publisher = await nats_client.connect(nats.url)
    placement = Placement(namespace="team", name="q", pod=PodUid("q"), reason="no room")
    unplaceable = encode("pod.unplaceable", "other", "/placer", "2026-01-01T00:00:00Z", placement)

    async def publish() -> bool:
        # A subscription may not be there yet, so the same events are published until they have arrived.
        await publisher.publish(limit_subject("denied", NodeName("n1")), denied())
        await publisher.publish(pod_subject("unplaceable"), unplaceable)
        await publisher.flush()
        return news.number == 2

    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await publish():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        await until_true(lambda: {one.what for one in news.since(0)} == {"limit.denied", "pod.unplaceable"})
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        await publisher.close()
        await client.close()
