"""The stream: every node once, then changes; slow readers, many readers, and the end of the server."""

import asyncio

import aiohttp
import msgspec
import pytest

from placer.live.streams import ONCE_AT_MOST, READERS_AT_MOST
from plimsoll.ids import NodeName, PodUid
from plimsoll.placer_api.client import PlacerRefusedError
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.live import LIVE_PATH, LiveNode, News, Status, WaitingPod, WaitingPods
from plimsoll_cli.live import snapshot
from tests.placer.live.test_news import denied
from tests.placer.live.world import Stream, card, decoded, reading, serving, state, world
from tests.servers.waiting import PATIENCE_S, until_true


async def test_a_reader_gets_every_node_once_and_then_what_changed() -> None:
    """The first messages are the whole state; a report, a waiting pod, an event and a loss follow as they happen."""
    made = await world(*(state(f"n{i:02}", card(f"GPU-{i}")) for i in range(40)))
    made.missing.append("NATS is out of reach")
    async with serving(made) as url, reading(url) as stream:
        kind, data = await stream.next()
        status = decoded(data, Status)
        assert (kind, status.nodes, status.missing) == ("status", 40, ("NATS is out of reach",))
        before, _ = await stream.until("synced")
        assert before == {"nodes": 3}
        made.report(state("n07", card("GPU-7"), seq=2))
        _, data = await stream.until("nodes")
        assert [node.node for node in decoded(data, list[LiveNode])] == ["n07"]
        made.pods.without_node.append(WaitingPod(pod=PodUid("p"), namespace="team", name="p"))
        while decoded((await stream.until("waiting"))[1], WaitingPods).total != 1:
            pass
        made.page.news.note(denied())
        _, data = await stream.until("news")
        assert [one.id for one in decoded(data, list[News])] == ["id-0"]
        made.decider.reports.forget(NodeName("n07"))
        _, data = await stream.until("gone")
        assert decoded(data, list[str]) == ["n07"]


async def test_a_slow_reader_gets_the_newest_state_alone() -> None:
    """While a reader takes nothing, changes pile up nowhere: the next message has the last of a thousand reports."""
    made = await world(state("n1", card("GPU-1")))
    rows = made.page.streams.rows
    async with serving(made) as url, reading(url) as stream:
        await stream.until("synced")
        for seq in range(2, 1002):
            made.report(state("n1", card("GPU-1", index=seq), seq=seq))
        _, data = await stream.until("nodes")
        [node] = decoded(data, list[LiveNode])
        assert node.gpus[0].index == 1001
        assert rows.encoded == 2


async def test_readers_are_limited_and_their_places_come_free() -> None:
    """One reader more than allowed is refused with a reason; once another has left, it is served."""
    made = await world(state("n1", card("GPU-1")))
    streams = made.page.streams
    async with serving(made) as url, aiohttp.ClientSession() as session:
        streams._port.taken = READERS_AT_MOST - 1
        async with reading(url) as stream:
            await stream.until("synced")
            async with session.get(url + LIVE_PATH) as refused:
                assert refused.status == 503
                assert "pages are open" in msgspec.json.decode(await refused.read(), type=Problem).message

        def left() -> bool:
            # The server notices at its next message that the reader has left.
            made.report(state("n1", card("GPU-1"), seq=made.decider.reports[NodeName("n1")].seq + 1))
            return streams._port.taken == READERS_AT_MOST - 1

        await until_true(left)
        streams._port.taken = 0
        async with reading(url) as stream:
            await stream.until("synced")


async def test_one_whole_state_needs_no_page_s_place() -> None:
    """While every place is taken, a reader of one state is answered; such readers are bounded too."""
    made = await world(state("n1", card("GPU-1")))
    streams = made.page.streams
    async with serving(made) as url, aiohttp.ClientSession() as session:
        streams._port.taken = READERS_AT_MOST
        assert list((await snapshot(url)).nodes) == ["n1"]
        async with session.get(url + LIVE_PATH + "?once=1") as response:
            await Stream(response).ended()
        streams._once.taken = ONCE_AT_MOST
        with pytest.raises(PlacerRefusedError, match="readers are being answered"):
            await snapshot(url)


async def test_open_pages_do_not_delay_the_end_of_the_server() -> None:
    """The server ends all streams itself, so that it waits for none and cuts none off."""
    made = await world(state("n1", card("GPU-1")))
    ended: asyncio.Task[None] | None = None
    async with aiohttp.ClientSession() as session:
        async with serving(made) as url:
            response = await session.get(url + LIVE_PATH)
            await response.content.readline()
            ended = asyncio.create_task(_rest(response))
        await ended
        assert made.page.streams._port.taken == 0


async def _rest(response: aiohttp.ClientResponse) -> None:
    """Read to the proper end; a connection that was cut off raises `ClientPayloadError`."""
    async with asyncio.timeout(PATIENCE_S):
        while await response.content.readline():
            pass
    response.release()


async def test_head_is_answered_without_a_stream() -> None:
    """A probe with HEAD gets headers and no endless body."""
    made = await world()
    async with (
        serving(made) as url,
        aiohttp.ClientSession() as session,
        session.head(url + LIVE_PATH) as head,
    ):
        assert (head.status, await head.read()) == (200, b"")
