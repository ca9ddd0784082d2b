"""Decisions in process: their cost at 1000 and at 20 000 nodes, without API server, bus and Redis.

`python -m bench.placer.replay NODES PODS` places pods one after another on nodes of eight GPUs, and prints one JSON
line. It runs in a process of its own, so that its memory is that of one size. The pods are decided as by the
Kubernetes front end, taints, CPU and memory included, and count as bound at once.

Times are CPU times of the thread, because a decision waits for nothing, and the machine may be busy with other work.
The decider counts its work: the GPUs that it read, and the parts of its order that it passed over.
"""

import asyncio
import gc
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from bench.measures.percentile import percentile
from bench.measures.process_cost import resident_mib
from bench.placer.objects import GPUS, TOO_MANY_GIB, node_object, node_state, pod_object
from bench.placer.servers import Json
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import Profile, understood
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.kube.models import Node, Pod, decode_pod

SEED: Final = 11
SIZES_GIB: Final = (2, 4, 8, 12, 16, 24)
STRETCHES: Final = 20
"""The number of stretches of a run. Their medians show whether the cost grows as the cluster fills."""
HOPELESS: Final = 50


def pod(number: int, gib: float) -> Pod:
    """A pod as the watch shows it."""
    described = pod_object(f"p-{number}", SCHEDULER_NAME, gib)
    described["metadata"] |= {"uid": f"uid-{number}", "namespace": "replay"}
    return decode_pod(msgspec.json.encode(described))


def cluster_of(nodes: int) -> PodScheduling:
    """A cluster of idle nodes that have all reported."""
    ledger, reports = Ledger(), ReportView()
    profile = Profile(ledger)
    scheduling = PodScheduling(Decider(reports, ledger, Metrics()), profile)
    scheduling.decider.candidates.prepare(
        POLICIES["headroom"]
    )  # as the placer does; it ranks as reports come
    for number in range(nodes):
        state = node_state(number, 1)
        reports.apply(state)
        profile.cache.put_node(msgspec.convert(node_object(number), Node))
        profile.cache.bookings.observe(state)
    return scheduling


def replay(nodes: int, pods: int) -> Json:
    """Place the pods, then ask for hopeless ones; returns the figures."""
    bare_mib = _resident_mib()
    scheduling = cluster_of(nodes)
    first = _placed(scheduling, pod(0, SIZES_GIB[0]))  # ranks every GPU
    nodes_mib = _resident_mib()
    draws = random.Random(SEED)
    watched = [pod(1 + number, draws.choice(SIZES_GIB)) for number in range(pods)]  # the watch keeps them too
    placed = [_placed(scheduling, one) for one in watched]
    filled_mib = _resident_mib()
    hopeless = [pod(1 + len(watched) + number, TOO_MANY_GIB + number) for number in range(HOPELESS)]
    refused = [_refused(scheduling, one) for one in hopeless]
    explained_ms = asyncio.run(_explained(scheduling, hopeless[0]))
    return {
        "nodes": nodes,
        "pods": pods,
        "gpus": nodes * GPUS,
        "first_decision_ms": round(first.ms, 1),
        **_placed_figures(placed),
        **_refused_figures(refused),
        "explained_first_ms": round(explained_ms[0], 3),
        "explained_again_ms": round(explained_ms[1], 3),
        "rss_mib": round(filled_mib, 1),
        "rss_kib_per_node": round((nodes_mib - bare_mib) * 1024 / nodes, 2),
        "rss_kib_per_pod": round((filled_mib - nodes_mib) * 1024 / pods, 2),
    }


def _resident_mib() -> float:
    gc.collect()
    return resident_mib(os.getpid())


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a decision: milliseconds of CPU, and the GPUs that the decision read."""

    ms: float
    looked_at: int


def _decided(scheduling: PodScheduling, one: Pod) -> tuple[Cost, PodInfo, Plan | Refusal]:
    before, began_s = scheduling.decider.gpus_read, time.thread_time()
    wanted = understood(one, POLICIES["headroom"])
    found = scheduling.decide(wanted)
    cost = Cost((time.thread_time() - began_s) * 1000, scheduling.decider.gpus_read - before)
    return cost, wanted, found


def _placed(scheduling: PodScheduling, one: Pod) -> Cost:
    """Place a pod that fits."""
    cost, wanted, found = _decided(scheduling, one)
    assert isinstance(found, Plan), "the pods of a replay fit"
    scheduling.cache.assume(found.booking, wanted.needs, wanted.pod)
    return cost


def _refused(scheduling: PodScheduling, one: Pod) -> Cost:
    """Decide over a pod that fits nowhere, the first of its kind."""
    cost, _, found = _decided(scheduling, one)
    assert not isinstance(found, Plan), "a hopeless pod fits nowhere"
    return cost


async def _explained(scheduling: PodScheduling, one: Pod) -> tuple[float, float]:
    """Milliseconds until every node's reason is known, for the first pod of a kind and for the next one."""
    costs_ms = []
    for _ in range(2):
        began_s = time.thread_time()
        assert await scheduling.explain(understood(one, POLICIES["headroom"])) is not None
        costs_ms.append((time.thread_time() - began_s) * 1000)
    return costs_ms[0], costs_ms[1]


def _placed_figures(placed: list[Cost]) -> Json:
    costs_ms = [one.ms for one in placed]
    return {
        "decision_ms_p50": round(percentile(costs_ms, 50), 4),
        "decision_ms_p99": round(percentile(costs_ms, 99), 4),
        "decision_ms_mean": round(statistics.mean(costs_ms), 4),
        "looked_at_mean": round(statistics.mean(one.looked_at for one in placed), 1),
        "looked_at_max": max(one.looked_at for one in placed),
        "stretches_ms": [round(value, 4) for value in _stretches(costs_ms)],
    }


def _refused_figures(refused: list[Cost]) -> Json:
    return {
        "unplaceable_ms": round(percentile([one.ms for one in refused], 50), 4),
        "unplaceable_ms_max": round(max(one.ms for one in refused), 4),
        "unplaceable_looked_at": max(one.looked_at for one in refused),
    }


def _stretches(costs_ms: list[float]) -> list[float]:
    """The median of each of `STRETCHES` stretches of the run."""
    length = max(len(costs_ms) // STRETCHES, 1)
    return [percentile(costs_ms[at : at + length], 50) for at in range(0, len(costs_ms), length)]


if __name__ == "__main__":
    print(json.dumps(replay(int(sys.argv[1]), int(sys.argv[2]))))
