"""Decisions in process: what one costs at 1000 and at 20 000 nodes, without API server and bus.

`python -m bench.placer.replay NODES PODS REDIS_URL` places pods one after another on nodes of eight GPUs, and prints
one JSON line. It runs in a process of its own, so that its memory is that of one size. The pods decide as the
Kubernetes front end does, taints, CPU and memory included, and count as bound at once.

GPUs looked at are counted: rooms that a decision computed or read.
"""

import asyncio
import gc
import json
import os
import random
import statistics
import sys
import time
from typing import Final

import msgspec

from bench.placer.binds import percentile
from bench.placer.ground import Json
from bench.placer.objects import GPUS, TOO_MANY_GIB, node_object, node_state, pod_object
from bench.placer.sides import resident_mib
from placer.core import plan as planning
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES
from placer.decide import Decider
from placer.kube.choice import NodeChoice, understood
from placer.kube.cluster import Cluster
from placer.metrics import Metrics
from placer.reports import ReportView
from placer.scores import ScoreList
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.kube.models import Node, Pod

SEED: Final = 11
SIZES_GIB: Final = (2, 4, 8, 12, 16, 24)
STRETCHES: Final = 20
"""The run is cut into so many stretches, whose medians show whether the cost grows as the cluster fills."""
HOPELESS: Final = 50


class Looked:
    """Counts the GPUs whose room a decision looked at."""

    def __init__(self) -> None:
        self.gpus = 0
        inner = planning.room_on  # type: ignore[attr-defined]

        def counting(*arguments: object, **named: object) -> object:
            self.gpus += 1
            return inner(*arguments, **named)  # type: ignore[arg-type]

        planning.room_on = counting  # type: ignore[attr-defined,assignment]


def pod(number: int, gib: float) -> Pod:
    """A pod as the watch shows it."""
    described = pod_object(f"p-{number}", SCHEDULER_NAME, gib)
    described["metadata"] |= {"uid": f"uid-{number}", "namespace": "replay"}
    return msgspec.convert(described, Pod)


async def replay(nodes: int, pods: int, redis_url: str) -> Json:
    """Place the pods, then ask for hopeless ones; returns the figures."""
    looked = Looked()
    ledger, reports = Ledger(), ReportView()
    scores = ScoreList(redis_url)
    cluster = Cluster(ledger)
    choice = NodeChoice(Decider(scores, reports, ledger, Metrics()), cluster)
    bare_mib = resident_mib(os.getpid())
    for number in range(nodes):
        state = node_state(number, 1)
        reports.apply(state)
        cluster.put_node(msgspec.convert(node_object(number), Node))
        cluster.observe(state)
    await scores.fill(reports.values())
    gc.collect()
    nodes_mib = resident_mib(os.getpid())
    draws = random.Random(SEED)
    costs_ms, gpus = await _place(choice, looked, [pod(n, draws.choice(SIZES_GIB)) for n in range(pods)])
    gc.collect()
    filled_mib = resident_mib(os.getpid())
    hopeless_ms, hopeless_gpus = await _refuse(choice, looked)
    await scores.close()
    return {
        "nodes": nodes,
        "pods": pods,
        "gpus": nodes * GPUS,
        "decision_ms_p50": round(percentile(costs_ms, 50), 4),
        "decision_ms_p99": round(percentile(costs_ms, 99), 4),
        "decision_ms_mean": round(statistics.mean(costs_ms), 4),
        "looked_at_mean": round(statistics.mean(gpus), 1),
        "looked_at_max": max(gpus),
        "stretches_ms": [round(value, 4) for value in _stretches(costs_ms)],
        "unplaceable_ms": round(percentile(hopeless_ms, 50), 4),
        "unplaceable_ms_max": round(max(hopeless_ms), 4),
        "unplaceable_looked_at": max(hopeless_gpus),
        "rss_mib": round(filled_mib, 1),
        "rss_kib_per_node": round((nodes_mib - bare_mib) * 1024 / nodes, 2),
        "rss_kib_per_pod": round((filled_mib - nodes_mib) * 1024 / pods, 2),
    }


async def _place(choice: NodeChoice, looked: Looked, pods: list[Pod]) -> tuple[list[float], list[int]]:
    """Place pods one after another; returns the milliseconds and the GPUs looked at of each decision."""
    costs_ms: list[float] = []
    gpus: list[int] = []
    for one in pods:
        before, began_s = looked.gpus, time.perf_counter()
        wanted = understood(one, POLICIES["headroom"])
        found = await choice.decide(wanted)
        costs_ms.append((time.perf_counter() - began_s) * 1000)
        gpus.append(looked.gpus - before)
        assert isinstance(found, Plan), "the pods of a replay fit"
        choice.cluster.assume(found.booking, wanted.needs)
    return costs_ms, gpus


async def _refuse(choice: NodeChoice, looked: Looked) -> tuple[list[float], list[int]]:
    """Decide over pods that fit nowhere, all different, with the reasons for people."""
    costs_ms: list[float] = []
    gpus: list[int] = []
    for number in range(HOPELESS):
        one = pod(10**9 + number, TOO_MANY_GIB + number)
        before, began_s = looked.gpus, time.perf_counter()
        wanted = understood(one, POLICIES["headroom"])
        found = await choice.decide(wanted)
        assert not isinstance(found, Plan), "a hopeless pod fits nowhere"
        choice.why_not(wanted, found)
        costs_ms.append((time.perf_counter() - began_s) * 1000)
        gpus.append(looked.gpus - before)
    return costs_ms, gpus


def _stretches(costs_ms: list[float]) -> list[float]:
    """The median of each of `STRETCHES` stretches of the run."""
    length = max(len(costs_ms) // STRETCHES, 1)
    return [percentile(costs_ms[at : at + length], 50) for at in range(0, len(costs_ms), length)]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(replay(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))))
