"""A round of a scheduler: pods that were all made before its start, or pods that arrive at a fixed rate.

Both schedulers work in turn on the same server and nodes. Each round has a namespace of its own, whose pods are
deleted before the next round. A scheduler's process lives for one round.
"""

import asyncio
import statistics
from dataclasses import dataclass
from typing import Final

from bench.measures.percentile import percentile
from bench.placer.binds import watching
from bench.placer.objects import delete_pods, make_namespace, make_pod, make_pods, pod_object
from bench.placer.schedulers import Scheduler, started
from bench.placer.servers import Json, Servers

SETTLE_LOOK_S: Final = 0.25
"""The pause between two counts of the events: the counts must not keep the API server busy."""
SHORTEST_S: Final = 0.001
"""Binds that the watch shows in one piece count as this far apart: in a small run all of them may come so."""
SETTLED_AFTER_S: Final = 5.0
"""Once no event has come for this time, the missing events count as dropped."""


@dataclass(frozen=True, slots=True)
class Before:
    """A round with pods that were made before.

    Attributes:
        pods_per_s: pods ÷ the time from the first bind to the last.
        settled_per_s: pods ÷ the time from the first bind until every pod has its event, or no more events come.
        events_ratio: events ÷ pods at the end; below 1, the scheduler dropped events.
        cpu_ms_per_pod: CPU time of the scheduler's process from the first bind to the settled end.
        bound_cpu_ms_per_pod: CPU time of scheduler, kube-apiserver and etcd together, from first bind to last.
        all_cpu_ms_per_pod: the CPU time per pod until the settled end.
        nodes_used: nodes that got a pod.
        rss_mib: resident memory of the process at the end.
    """

    pods_per_s: float
    settled_per_s: float
    events_ratio: float
    cpu_ms_per_pod: float
    bound_cpu_ms_per_pod: float
    all_cpu_ms_per_pod: float
    nodes_used: int
    rss_mib: float


async def pods_before(servers: Servers, scheduler: Scheduler, pods: int, name: str) -> Before:
    """Make the pods, start the scheduler, and measure until all are bound and have their events."""
    namespace = await make_namespace(servers, f"{name}-{scheduler.name}".replace("_", "-"))
    await make_pods(
        servers, namespace, (pod_object(f"p-{n:05d}", scheduler.scheduler_name) for n in range(pods))
    )
    async with watching(servers, namespace) as binds:
        await binds.until_seen(pods)
        async with started(scheduler, servers, name) as process:
            cpu_s: list[tuple[float, float]] = []  # at the first bind, the last one, and the settled end

            def note_cpu() -> None:
                cpu_s.append((process.cpu_s(), process.cpu_s() + servers.api_cpu_s()))

            binds.on_first = note_cpu
            await binds.until_bound(pods)
            note_cpu()
            events, settled_s = await _settled(servers, namespace, pods)
            note_cpu()
            rss_mib = process.rss_mib()
    await delete_pods(servers, namespace)
    (own_s, all_s), (_, bound_s), (own_end_s, all_end_s) = cpu_s
    return Before(
        pods_per_s=(pods - 1) / max(binds.span_s(), SHORTEST_S),
        settled_per_s=(pods - 1) / max(settled_s - min(binds.bound_s.values()), SHORTEST_S),
        events_ratio=events / pods,
        cpu_ms_per_pod=(own_end_s - own_s) * 1000 / pods,
        bound_cpu_ms_per_pod=(bound_s - all_s) * 1000 / pods,
        all_cpu_ms_per_pod=(all_end_s - all_s) * 1000 / pods,
        nodes_used=len(set(binds.node.values())),
        rss_mib=rss_mib,
    )


async def _settled(servers: Servers, namespace: str, pods: int) -> tuple[int, float]:
    """Wait until there are as many events as pods, or no more come; returns their number and when it was reached."""
    loop = asyncio.get_running_loop()
    events, reached_s = await _events(servers, namespace), loop.time()
    while events < pods and loop.time() - reached_s < SETTLED_AFTER_S:
        await asyncio.sleep(SETTLE_LOOK_S)
        if (now := await _events(servers, namespace)) != events:
            events, reached_s = now, loop.time()
    return events, reached_s


async def _events(servers: Servers, namespace: str) -> int:
    """The number of events in a namespace, of which only one is read."""
    listed = await servers.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?limit=1")
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))


@dataclass(frozen=True, slots=True)
class Arriving:
    """A round with pods that arrive at a fixed rate.

    Attributes:
        per_s: the rate.
        pending_ms: from a pod's appearance in the watch until it has a node, for each pod.
        created_ms: the same from the moment at which its creation was sent.
    """

    per_s: float
    pending_ms: list[float]
    created_ms: list[float]


async def pods_arriving(
    servers: Servers, scheduler: Scheduler, pods: int, per_s: float, name: str
) -> Arriving:
    """Start the scheduler, wait until it places a pod, and let pods arrive."""
    namespace = await make_namespace(servers, f"{name}-{scheduler.name}".replace("_", "-"))
    async with watching(servers, namespace) as binds, started(scheduler, servers, name):
        await make_pod(servers, namespace, pod_object("first", scheduler.scheduler_name))
        await binds.until_bound(1)
        sent_s = await _arrive(servers, namespace, scheduler, pods, per_s)
        await binds.until_bound(pods + 1)
    await delete_pods(servers, namespace)
    return Arriving(
        per_s=per_s,
        pending_ms=binds.waits_ms(list(sent_s)),
        created_ms=[(binds.bound_s[pod] - at_s) * 1000 for pod, at_s in sent_s.items()],
    )


async def _arrive(
    servers: Servers, namespace: str, scheduler: Scheduler, pods: int, per_s: float
) -> dict[str, float]:
    """Create pods at a fixed rate; returns when each creation was sent."""
    loop = asyncio.get_running_loop()
    sent_s: dict[str, float] = {}
    begin_s = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(pods):
            await asyncio.sleep(
                begin_s + number / per_s - loop.time()
            )  # the rate of arrivals is the experiment's
            name = f"p-{number:05d}"
            sent_s[name] = loop.time()
            group.create_task(make_pod(servers, namespace, pod_object(name, scheduler.scheduler_name)))
    return sent_s


def before_figures(rounds: list[Before]) -> Json:
    """The medians of a scheduler's rounds with pods that were made before."""
    return {
        "pods_per_s": round(statistics.median(one.pods_per_s for one in rounds), 1),
        "settled_per_s": round(statistics.median(one.settled_per_s for one in rounds), 1),
        "events_ratio": round(min(one.events_ratio for one in rounds), 4),
        "cpu_ms_per_pod": round(statistics.median(one.cpu_ms_per_pod for one in rounds), 3),
        "bound_cpu_ms_per_pod": round(statistics.median(one.bound_cpu_ms_per_pod for one in rounds), 3),
        "all_cpu_ms_per_pod": round(statistics.median(one.all_cpu_ms_per_pod for one in rounds), 3),
        "nodes_used": min(one.nodes_used for one in rounds),
        "rss_mib": round(max(one.rss_mib for one in rounds), 1),
    }


def arriving_figures(rounds: list[Arriving]) -> Json:
    """The percentiles over all pods of a scheduler's rounds with arriving pods."""
    pending = [wait for one in rounds for wait in one.pending_ms]
    created = [wait for one in rounds for wait in one.created_ms]
    return {
        "arriving_per_s": round(statistics.median(one.per_s for one in rounds), 1),
        "pending_bound_ms_p50": round(percentile(pending, 50), 2),
        "pending_bound_ms_p99": round(percentile(pending, 99), 2),
        "created_bound_ms_p50": round(percentile(created, 50), 2),
        "created_bound_ms_p99": round(percentile(created, 99), 2),
    }
