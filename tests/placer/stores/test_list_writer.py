"""The list writer makes the list in Redis what a rebuild gives, whatever other clients write into its keys."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
import redis.asyncio as redis

from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.stores.list_writer import COMPARED, ListWriter
from placer.stores.scores import ScoreList
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.placer_api import redis_keys as keys
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import CHECK_S, eventually, orders, report
from tests.placer.core.worlds import gpu
from tests.servers.waiting import PATIENCE_S

Client = redis.Redis
NODES = [report(f"n{index}", gpus=(gpu(f"GPU-{index}-a"), gpu(f"GPU-{index}-b"))) for index in range(3)]


@dataclass(frozen=True, slots=True)
class Written:
    """A list that a writer keeps, and a client of the same server."""

    client: Client
    reports: ReportView

    async def contents(self) -> dict[str, Any]:
        """All that stands in the keys of the list, but the generation's value."""
        found: dict[str, Any] = {}
        for key in (keys.NODES, keys.GPUS, keys.REPORTS, keys.ORDER, keys.GENERATION):
            kind = await self.client.type(key)
            if kind == "zset":
                entries: Any = await self.client.zrange(key, 0, -1, withscores=True)
                found[key] = dict(entries)
            else:
                found[key] = await self.client.hgetall(key) if kind == "hash" else kind
        return found


@contextlib.asynccontextmanager
async def writing(url: str, reports: ReportView) -> AsyncIterator[Written]:
    """A running list writer over these reports, once it has written all of them."""
    decider = Decider(reports, Ledger(), Metrics())
    scores = ScoreList(url, rooms_of=decider.candidates.rooms_of)
    writer = ListWriter(scores, decider, CHECK_S)
    async with redis.Redis.from_url(url, protocol=2, legacy_responses=True, decode_responses=True) as client:
        task = asyncio.create_task(writer.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await writer.complete.wait()
            yield Written(client, reports)
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await scores.close()


def view_of_nodes() -> ReportView:
    """A view that holds the reports of all nodes."""
    reports = ReportView()
    for state in NODES:
        reports.apply(state)
    return reports


async def replace_nodes(client: Client) -> None:
    """Put a text where the nodes' scores stand."""
    await client.delete(keys.NODES)
    await client.set(keys.NODES, "x")


async def replace_all(client: Client) -> None:
    """Put a list in the place of each key."""
    for key in (keys.NODES, keys.GPUS, keys.REPORTS, keys.ORDER, keys.GENERATION):
        await client.delete(key)
        await client.rpush(key, "x")


async def swap_a_member(client: Client) -> None:
    """Put a foreign node in the place of one of ours, so that the number of nodes stays the same."""
    await client.zrem(keys.NODES, "n1")
    await client.zadd(keys.NODES, {"evil": 1.0})


async def forge_a_report(client: Client) -> None:
    """Write a report without GPUs, and one whose GPUs are no objects."""
    await client.hset(keys.REPORTS, "n0", "{}")
    await client.hset(keys.REPORTS, "n1", '{"gpus":[1,"x",null]}')


DAMAGES: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "foreign node": lambda client: client.zadd(keys.NODES, {"evil": 1e308}),
    "many foreign nodes": lambda client: client.zadd(keys.NODES, {f"evil{i}": i for i in range(5000)}),
    "foreign GPU of a foreign node": lambda client: client.zadd(keys.GPUS, {"evil/GPU-1": 1}),
    "foreign GPU of a known node": lambda client: client.zadd(keys.GPUS, {"n1/GPU-1": 1}),
    "foreign report": lambda client: client.hset(keys.REPORTS, "evil", "x"),
    "foreign order": lambda client: client.hset(keys.ORDER, "evil", "1 1"),
    "foreign node in the place of ours": swap_a_member,
    "another score of a node": lambda client: client.zadd(keys.NODES, {"n1": 77}),
    "another score of a GPU": lambda client: client.zadd(keys.GPUS, {"n1/GPU-1-a": 77}),
    "no node": lambda client: client.delete(keys.NODES),
    "no GPU": lambda client: client.delete(keys.GPUS),
    "no report": lambda client: client.delete(keys.REPORTS),
    "no order": lambda client: client.delete(keys.ORDER),
    "no generation": lambda client: client.delete(keys.GENERATION),
    "one node less": lambda client: client.zrem(keys.NODES, "n1"),
    "one GPU less": lambda client: client.zrem(keys.GPUS, "n1/GPU-1-a"),
    "order from the future": lambda client: client.hset(keys.ORDER, "n1", "999 999"),
    "order from the past": lambda client: client.hset(keys.ORDER, "n1", "1 0"),
    "order that is none": lambda client: client.hset(keys.ORDER, "n1", "soon"),
    "forged report": forge_a_report,
    "text in the place of the nodes": replace_nodes,
    "lists in the place of all keys": replace_all,
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_list_becomes_what_a_rebuild_gives(valkey: EmbeddedServer, damage: str) -> None:
    """Whatever somebody else writes or deletes, the list is mended without any new report."""
    async with writing(valkey.url, view_of_nodes()) as written:
        whole = await written.contents()
        assert len(whole[keys.NODES]) == len(NODES)
        await DAMAGES[damage](written.client)
        await eventually(written.contents, whole)
        newer = report("n1", 2, gpus=(gpu("GPU-1-c"),))
        written.reports.apply(newer)
        await eventually(lambda: written.client.hget(keys.ORDER, "n1"), "1 2")
        assert await written.client.zscore(keys.GPUS, "n1/GPU-1-c") is not None


@pytest.mark.parametrize(
    "damage",
    [
        "order from the future",
        "lists in the place of all keys",
        "foreign node",
        "another score of a GPU",
        "forged report",
    ],
)
async def test_damage_from_before_the_start_is_mended(valkey: EmbeddedServer, damage: str) -> None:
    """A placer that starts over a damaged list makes it whole too."""
    async with writing(valkey.url, view_of_nodes()) as written:
        whole = await written.contents()
    async with redis.Redis.from_url(valkey.url, protocol=2, decode_responses=True) as client:
        await DAMAGES[damage](client)
    async with writing(valkey.url, view_of_nodes()) as written:
        await eventually(written.contents, whole)


async def test_each_entry_of_a_large_list_is_compared_in_turn(valkey: EmbeddedServer) -> None:
    """A check compares a bounded number of entries, and later checks compare the others."""
    reports = ReportView()
    for index in range(COMPARED + 500):
        reports.apply(report(f"n{index}"))
    async with writing(valkey.url, reports) as written:
        whole = await written.contents()
        await written.client.zadd(keys.NODES, {"n0": 77, f"n{COMPARED + 499}": 78})
        await eventually(written.contents, whole)


class SwallowingScores:
    """A list whose client loses a cancellation that comes with the answer, as redis-py does on Python 3.11."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def fill(self, _states: Sequence[NodeState]) -> set[NodeName]:
        """Write nothing."""
        return set()

    async def drop_wrong_types(self) -> bool:
        """Answer once the caller is cancelled."""
        self.asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return False

    async def orders(self) -> None:
        """The list is empty."""


async def test_a_node_that_came_back_before_the_list_was_filled_stays_in_it(valkey: EmbeddedServer) -> None:
    """Readers see every node from the moment at which a placer that takes over has filled the list."""
    reports, leads = ReportView(), asyncio.Event()
    decider = Decider(reports, Ledger(), Metrics())
    scores = ScoreList(valkey.url, rooms_of=decider.candidates.rooms_of)
    writer = ListWriter(scores, decider, check_s=3600, leads=leads)  # no check mends the list meanwhile
    task = asyncio.create_task(writer.run())
    for state in NODES:
        reports.apply(state)
        reports.forget(state.node)
        reports.apply(state)
    leads.set()
    async with asyncio.timeout(PATIENCE_S):
        await writer.complete.wait()
    newer = report("n0", 2)
    reports.apply(newer)
    try:
        await eventually(scores.orders, orders(newer, *NODES[1:]))
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await scores.close()


async def test_writer_whose_cancellation_was_swallowed_while_it_filled_the_list_ends() -> None:
    """The writer ends at the next step that heeds cancellations, before it waits for its own tasks."""
    scores = SwallowingScores()
    decider = Decider(ReportView(), Ledger(), Metrics())
    task = asyncio.create_task(ListWriter(cast("ScoreList", scores), decider, CHECK_S).run())
    await scores.asked.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
    assert done == {task}
    assert task.cancelled()
