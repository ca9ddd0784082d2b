"""The sorted list on a real Valkey: its order, newer reports only, and the detection of a lost list."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.stores.scores import ReportResult, ScoreList, ScoresAwayError, ScoresLostError
from plimsoll.ids import NodeName
from plimsoll.placer_api import redis_keys as keys
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import report
from tests.placer.core.worlds import declared, gpu, request
from tests.placer.listed import listed_scores
from tests.servers.waiting import PATIENCE_S
from tests.slow import examples


@pytest.fixture
async def scores(valkey: EmbeddedServer) -> AsyncIterator[ScoreList]:
    """A complete and empty list."""
    made = ScoreList(valkey.url)
    await made.fill([])
    try:
        yield made
    finally:
        await made.close()


async def best_first(scores: ScoreList) -> list[NodeName]:
    """Every node in the list, the best first."""
    return list((await listed_scores(scores))[0])


async def test_nodes_stand_best_first(scores: ScoreList) -> None:
    """The node whose best GPU has the most free memory and idle time comes first."""
    await scores.apply(
        [
            report("busy", gpus=(gpu("GPU-a", idle_pct=5),)),
            report("idle", gpus=(gpu("GPU-b", idle_pct=90),)),
            report("full", gpus=(gpu("GPU-c", other_bytes=23 * 2**30), gpu("GPU-d", idle_pct=50))),
        ]
    )
    assert await best_first(scores) == ["idle", "full", "busy"]


async def test_gpus_that_vanished_leave_the_list(scores: ScoreList) -> None:
    """A newer report without a GPU removes that GPU, and leaves other nodes' GPUs alone."""
    await scores.apply([report("n1", gpus=(gpu("GPU-a"), gpu("GPU-b"))), report("n2", gpus=(gpu("GPU-a"),))])
    await scores.apply([report("n1", seq=2, gpus=(gpu("GPU-b"),))])
    _, by_gpu = await listed_scores(scores)
    assert set(by_gpu) == {("n1", "GPU-b"), ("n2", "GPU-a")}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ((1, 9), (1, 10)),
        ((9, 1), (10, 1)),
        ((1, 500), (2, 1)),
        ((2**53, 1), (2**53 + 1, 1)),
        ((1, 1), (1, 2**63)),
    ],
)
async def test_order_is_numeric_and_exact(
    scores: ScoreList, older: tuple[int, int], newer: tuple[int, int]
) -> None:
    """Orders compare as exact numbers: ten comes after nine, and an epoch outweighs every seq."""
    old, new = (report("n1", epoch=epoch, seq=seq, gpus=()) for epoch, seq in (older, newer))
    assert await scores.apply([old]) == [ReportResult.APPLIED]
    assert await scores.apply([new]) == [ReportResult.APPLIED]
    assert await scores.apply([old]) == [ReportResult.STALE]
    assert await scores.orders() == {"n1": newer}


orders = st.tuples(st.integers(1, 3), st.integers(1, 12))
arrivals = st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), orders), min_size=1, max_size=40)


@given(arrivals, st.randoms(use_true_random=False))
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_newest_report_wins_in_any_order(
    scores: ScoreList, arrived: list[tuple[str, tuple[int, int]]], chance: random.Random
) -> None:
    """For shuffled, repeated and simultaneous reports the list ends with each node's newest report, whole."""
    for node in ("n1", "n2", "n3"):
        await scores.forget(NodeName(node))
    states = [report(node, epoch=epoch, seq=seq) for node, (epoch, seq) in arrived]
    doubled = states + chance.choices(states, k=len(states))
    chance.shuffle(doubled)
    async with asyncio.TaskGroup() as tasks:
        for start in range(0, len(doubled), 5):
            tasks.create_task(scores.apply(doubled[start : start + 5]))
    newest = {
        state.node: max((s for s in states if s.node == state.node), key=lambda s: s.order)
        for state in states
    }
    assert await scores.orders() == {node: state.order for node, state in newest.items()}
    assert await scores.reports(list(newest)) == newest
    by_node, by_gpu = await listed_scores(scores)
    assert set(by_node) == set(newest)
    assert set(by_gpu) == {(node, f"GPU-{node}") for node in newest}


async def test_lost_list_is_an_error_and_not_an_empty_cluster(
    scores: ScoreList, valkey: EmbeddedServer
) -> None:
    """After FLUSHALL reports and scores are refused until the list is filled."""
    states = [report("n1"), report("n2")]
    await scores.apply(states)
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.flushall()
    with pytest.raises(ScoresLostError):
        await scores.rescore([report("n1")])
    with pytest.raises(ScoresLostError):
        await scores.apply([report("n1", seq=2)])
    assert await scores.orders() is None
    await scores.fill(states)
    assert await scores.orders() == {"n1": (1, 1), "n2": (1, 1)}
    assert sorted(await best_first(scores)) == ["n1", "n2"]


async def test_filling_names_the_nodes_whose_scores_may_be_outdated(scores: ScoreList) -> None:
    """A fill of a list that is there writes what is newer, and names the nodes whose reports stood there already."""
    await scores.fill([report("n1", seq=5), report("n2")])
    states = [report("n1", seq=2), report("n2"), report("n3"), report("n2", seq=2)]
    assert await scores.fill(states[:3]) == {"n1", "n2"}
    assert await scores.fill(states[3:]) == set()
    assert await scores.orders() == {"n1": (1, 5), "n2": (1, 2), "n3": (1, 1)}


async def test_scores_follow_promises_and_never_a_superseded_report(valkey: EmbeddedServer) -> None:
    """New scores are written for the report that is in the list, and for no older or newer one."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    scores = ScoreList(valkey.url, rooms_of=decider.candidates.rooms_of)
    state = report("n1", seq=2, gpus=(gpu("GPU-a"),))
    try:
        await scores.fill([state])
        decider.reports.apply(state)
        assert isinstance(decider.decide(request("p", declared("main", 18)), HEADROOM), Plan)
        assert (await listed_scores(scores))[0] == {"n1": pytest.approx(1, abs=1e-5)}
        stale = [report("n1", seq=1, gpus=(gpu("GPU-a"),)), report("n1", seq=3, gpus=(gpu("GPU-a"),))]
        assert await scores.rescore(stale) == [ReportResult.STALE] * 2
        assert (await listed_scores(scores))[0] == {"n1": pytest.approx(1, abs=1e-5)}
        assert await scores.rescore([state]) == [ReportResult.APPLIED]
        by_node, by_gpu = await listed_scores(scores)
        assert by_node == {"n1": pytest.approx(0.25, abs=1e-5)}
        assert by_gpu == {("n1", "GPU-a"): by_node[NodeName("n1")]}
        assert await scores.reports([NodeName("n1")]) == {"n1": state}
    finally:
        await scores.close()


async def test_script_is_loaded_again_after_it_was_flushed(scores: ScoreList, valkey: EmbeddedServer) -> None:
    """After the server dropped the script, the next call loads it again without an error."""
    await scores.apply([report("n1")])
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.script_flush()
    assert await scores.apply([report("n1", seq=2)]) == [ReportResult.APPLIED]


async def test_forgotten_node_leaves_no_trace(scores: ScoreList, valkey: EmbeddedServer) -> None:
    """Forgetting removes node, GPUs, report and order. A later report, even an older one, brings the node back."""
    await scores.apply([report("n1", seq=7)])
    await scores.forget(NodeName("n1"))
    async with redis.Redis.from_url(valkey.url, protocol=2, decode_responses=True) as client:
        assert await client.keys("*") == [keys.GENERATION]
    assert await scores.apply([report("n1", seq=1)]) == [ReportResult.APPLIED]


async def test_damaged_contents_are_replaced(scores: ScoreList, valkey: EmbeddedServer) -> None:
    """A report and an order that somebody overwrote are named when read, and do not block a newer report."""
    await scores.apply([report("n1")])
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.hset(keys.REPORTS, "n1", "{not json")
        await client.hset(keys.ORDER, "n1", "soon")
    with pytest.raises(ScoresAwayError, match="damaged"):
        await scores.reports([NodeName("n1")])
    assert await scores.apply([report("n1", seq=2)]) == [ReportResult.APPLIED]
    assert await scores.reports([NodeName("n1")]) == {NodeName("n1"): report("n1", seq=2)}


async def test_absent_server_is_an_error_to_retry(own_valkey: EmbeddedServer) -> None:
    """While Redis is dead every method fails with the error to retry on; once it is back, all work."""
    scores = ScoreList(own_valkey.url, timeout_s=PATIENCE_S)
    try:
        await scores.fill([report("n1")])
        await own_valkey.kill()
        for attempt in (
            scores.apply([report("n1", seq=2)]),
            scores.fill([]),
            scores.orders(),
            scores.reports([NodeName("n1")]),
            scores.forget(NodeName("n1")),
            scores.rescore([report("n1")]),
        ):
            with pytest.raises(ScoresAwayError, match="Redis did not"):
                await attempt
        await own_valkey.restart()
        assert await scores.orders() is None
        await scores.fill([report("n1", seq=2)])
        assert await best_first(scores) == ["n1"]
    finally:
        await scores.close()


async def test_late_answer_is_not_taken_for_a_server_that_is_away(own_valkey: EmbeddedServer) -> None:
    """Where no answer was read in time, the error says just that: the server, or the caller's loop, may be slow."""
    scores = ScoreList(own_valkey.url, timeout_s=2)
    try:
        async with redis.Redis.from_url(own_valkey.url) as client:
            await client.client_pause(600_000)
        with pytest.raises(ScoresAwayError) as caught:
            await scores.orders()
        assert str(caught.value).endswith(": no answer was read within 2 s")
        await own_valkey.kill()
        with pytest.raises(ScoresAwayError, match="nothing listens there"):
            await scores.orders()
    finally:
        await scores.close()
