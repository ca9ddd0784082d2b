"""The judgement at the end, without faults: every pod is placed or explained, all copies of the truth are equal."""

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import nats
import nats.errors
import redis.asyncio as redis
from nats.js.errors import NotFoundError

from plimsoll.bus.subjects import STREAM, pod_subject, state_subject, task_subject
from plimsoll.envelope import decode_report
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.placer_api import redis_keys as keys
from tests.chaos.answers import ANSWER, ENDED
from tests.chaos.fleet import FLEET
from tests.chaos.room import node_for
from tests.chaos.world import NAMESPACE, Placer, World
from tests.servers.waiting import until

CALM_S: Final = 240.0
"""Far longer than any backoff, timeout or interval of a placer, so only a pod that is forgotten waits that long. The
longest is 70 s; a bind without a clear answer may still arrive that late."""

Object = dict[str, Any]


async def settle(world: World, *, calm_s: float = CALM_S) -> None:
    """Wait until every copy of the truth is right. Each difference that is left after `calm_s` is a finding."""
    for name, look in (
        ("pods", pods_in_doubt),
        ("redis", redis_differs),
        ("state", states_differ),
        ("metrics", metrics_differ),
        ("events", events_differ),
    ):
        for problem in await _left(partial(look, world), calm_s):
            world.journal.find(problem)
        world.journal.note("settled", part=name)
    for problem in await crashes(world):
        world.journal.find(problem)


async def _left(look: Callable[[], Awaitable[list[str]]], calm_s: float) -> list[str]:
    """Wait until `look` finds no problem. Returns the problems that are left after `calm_s`."""
    seen: list[str] = []

    async def is_right() -> bool:
        seen[:] = await look()
        return not seen

    with contextlib.suppress(AssertionError):
        await until(is_right, timeout_s=calm_s)
    return seen


def waiting(world: World) -> list[Object]:
    """The pods that Plimsoll should place and has not."""
    return [
        pod
        for pod in world.witness.pods.values()
        if not pod["spec"].get("nodeName")
        and pod["metadata"]["namespace"] == NAMESPACE
        and pod["spec"].get("schedulerName") == "plimsoll"
        and pod["status"].get("phase") not in ENDED
        and not pod["metadata"].get("deletionTimestamp")
    ]


async def pods_in_doubt(world: World) -> list[str]:
    """Pods that wait although a node has room, or without a reason."""
    problems = []
    bound = [
        pod
        for pod in world.witness.pods.values()
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED
    ]
    for pod in waiting(world):
        name = pod["metadata"]["name"]
        conditions = pod["status"].get("conditions") or []
        why: Object = next((one for one in conditions if one["type"] == "PodScheduled"), {})
        if not (why.get("status") == "False" and why.get("reason") and why.get("message")):
            problems.append(f"pod {name} waits and nothing says why: {why}")
        closed = world.witness.labels.closed()
        if (node := node_for(pod, world.witness.sums, bound, closed)) is not None:
            problems.append(f"pod {name} waits, and {node} has room: {why.get('message')}")
    return problems


async def rebuilt(world: World) -> dict[str, NodeState]:
    """The newest report of each node by the stream's last message on each of its subjects."""
    newest: dict[str, NodeState] = {}
    client = await nats.connect(world.nats.url)
    try:
        jetstream = client.jetstream()
        for machine in FLEET:
            name = NodeName(machine.name)
            for subject in (
                state_subject(name),
                *(task_subject(what, name) for what in ("started", "loaded", "exited")),
            ):
                try:
                    message = await jetstream.get_last_msg(STREAM, subject)
                except NotFoundError:
                    continue
                assert message.data is not None
                state = decode_report(message.data).state
                if name not in newest or state.order > newest[name].order:
                    newest[name] = state
    finally:
        await client.close()
    return newest


def _redis(world: World) -> redis.Redis:
    url = world.valkey.url.replace("valkey://", "redis://")
    return redis.Redis.from_url(url, protocol=2, legacy_responses=True, decode_responses=True)


async def _scores(client: redis.Redis) -> dict[str, float]:
    pairs: Any = await client.zrange(keys.NODES, 0, -1, withscores=True)
    return {name: float(score) for name, score in pairs}


async def redis_differs(world: World) -> list[str]:
    """Differences between Redis and what a rebuild from the stream gives."""
    expected = await rebuilt(world)
    async with _redis(world) as client:
        complete = await client.exists(keys.GENERATION)
        nodes = await _scores(client)
        listed: Any = await client.zrange(keys.GPUS, 0, -1)
        orders: Any = await client.hgetall(keys.ORDER)
        reports: Any = await client.hgetall(keys.REPORTS)
    problems = [] if complete else ["Redis has no generation: its list is not complete"]
    if nodes.keys() != expected.keys():
        problems.append(f"Redis lists {sorted(nodes)}, and the stream has {sorted(expected)}")
    gpus = set(listed)
    if gpus != {f"{name}/{gpu.uuid}" for name, state in expected.items() for gpu in state.gpus}:
        problems.append(f"Redis lists other GPUs than the stream: {sorted(gpus)}")
    for name, state in expected.items():
        if orders.get(name) != f"{state.epoch} {state.seq}":
            problems.append(f"Redis has order {orders.get(name)} of {name}, the stream {state.order}")
        elif json.loads(reports.get(name, "{}")).get("seq") != state.seq:
            problems.append(f"Redis has another report of {name} than its order says")
        if not 0 <= nodes.get(name, 0.0) <= 1.01:
            problems.append(f"Redis scores {name} {nodes[name]}")
    return problems


async def states_differ(world: World) -> list[str]:
    """Differences between the sums and the state that each placer shows, and between placers and Redis."""
    problems: list[str] = []
    async with _redis(world) as client:
        listed = await _scores(client)
    for placer in world.placers:
        answer = await placer.fetch("/v1/state")
        if answer is None or await placer.fetch("/readyz") is None:
            problems.append(f"{placer.name} is not ready")
            continue
        rows = {row["node"]: row for row in json.loads(answer)["nodes"]}
        problems += _state_problems(world, placer, rows)
        metrics = (await placer.fetch("/metrics") or b"").decode()
        # A placer that follows reads what was learned of best-effort pods only once it leads.
        unsure = set() if "plimsoll_placer_leader 1.0" in metrics else _guessed(world)
        problems += (
            f"{placer.name} scores {name} {row['score']}, and Redis has {listed.get(name)}"
            for name, row in rows.items()
            if name not in unsure and not math.isclose(row["score"], listed.get(name, -1.0), abs_tol=1e-9)
        )
    return problems


def _guessed(world: World) -> set[str]:
    """The nodes with pods for which placers guess how much they will need."""
    return {
        machine.name
        for machine in FLEET
        for card in machine.cards
        if any(promise.best_effort or promise.whole for promise in world.witness.sums.on(card.uuid))
    }


def _state_problems(world: World, placer: Placer, rows: Mapping[str, Object]) -> list[str]:
    sums = world.witness.sums
    problems: list[str] = []
    for machine in FLEET:
        shown = {gpu["uuid"]: gpu for gpu in rows.get(machine.name, {}).get("gpus", ())}
        for card in machine.cards:
            gpu = shown.get(card.uuid)
            if gpu is None:
                problems.append(f"{placer.name} shows no {card.uuid}")
                continue
            promises = sums.on(card.uuid)
            free_share = 100 - sums.share_on(card.uuid)
            free_bytes = card.usable_bytes - sums.bytes_on(card.uuid)
            if gpu["free_share_pct"] != free_share:
                problems.append(
                    f"{placer.name} shows {gpu['free_share_pct']} % free on {card.uuid}, not {free_share}"
                )
            # The placer guesses by itself how much a container without a line will need.
            guessed = any(promise.best_effort or promise.whole for promise in promises)
            if gpu["free_bytes"] != free_bytes and (not guessed or gpu["free_bytes"] > free_bytes):
                problems.append(
                    f"{placer.name} shows {gpu['free_bytes']} bytes free on {card.uuid}, not {free_bytes}"
                )
    return problems


async def metrics_differ(world: World) -> list[str]:
    """Metrics of drift that are not 0."""
    problems: list[str] = []
    for placer in world.placers:
        text = (await placer.fetch("/metrics") or b"").decode()
        problems += (
            f"{placer.name}: {line}"
            for line in text.splitlines()
            if "drift" in line and not line.startswith("#") and float(line.split()[-1]) != 0
        )
    return problems


async def crashes(world: World) -> list[str]:
    """Placers that met an error which their code did not expect."""
    found = {placer.name: await asyncio.to_thread(placer.crashes) for placer in world.placers}
    return [f"{name} has {count} tracebacks in its log" for name, count in found.items() if count]


async def events_differ(world: World) -> list[str]:
    """The `placed` events on the bus that differ from the API server."""
    problems = []
    client = await nats.connect(world.nats.url)
    try:
        jetstream = client.jetstream()
        subscription = await jetstream.subscribe(pod_subject("placed"), stream=STREAM, ordered_consumer=True)
        left = (await subscription.consumer_info()).num_pending or 0
        while left:
            message = await subscription.next_msg(timeout=5)
            left = message.metadata.num_pending
            placed = json.loads(message.data)["data"]
            bound = world.witness.bound.get(placed["pod"])
            gpus = {f"{ANSWER}{name}": ",".join(uuids) for name, uuids in placed["gpus"].items()}
            if bound is None or bound.node != placed["node"] or not gpus.items() <= bound.answers.items():
                problems.append(
                    f"an event says that {placed['name']} was placed: {placed}, and it has {bound}"
                )
    finally:
        await client.close()
    return problems
