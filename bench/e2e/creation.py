"""Pods of both kinds are created in turn, one and many at once, and each one's time until it is ready is taken.

KubeShare (HPDC '20), Figure 10, has 15 % more for its pods than for Kubernetes' own where no vGPU is created, for 1
to 20 requests at once. ConVGPU (CLUSTER '17), Figure 5, has 15 % for a container.
"""

import asyncio
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from bench.e2e.effort import per_pod_ms, used_ticks
from bench.e2e.sides import NATIVE, PLIMSOLL, SIDES, Side
from bench.e2e.timeline import STAGES, Timeline
from tests.node.node import Node

Json = dict[str, Any]

SETTLE_S: Final = 1.5
"""After the last pod of a round is gone, the kubelet still removes its volumes and its sandbox."""


@dataclass(slots=True)
class Times:
    """The times of all pods of one kind and count, in milliseconds from the request that created the pod.

    Attributes:
        by_stage: see `timeline.STAGES`.
        effort_ticks: CPU time of the node's programs while the pods started, in all rounds.
    """

    by_stage: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    effort_ticks: Counter[str] = field(default_factory=Counter)

    def figures(self) -> Json:
        """The median of each stage, and the mean CPU time of each program for each pod."""
        stages = {f"{stage}_ms": round(statistics.median(times)) for stage, times in self.by_stage.items()}
        return {**stages, "cpu_ms": per_pod_ms(self.effort_ticks, len(self.by_stage["ready"]))}


async def compare(node: Node, namespace: str, timeline: Timeline, count: int, rounds: int) -> Json:
    """Start `count` pods at once of one kind and then of the other, in so many rounds; returns the figures.

    The kind that begins changes with each round, so that a drift of the machine meets both.
    """
    times = {side: Times() for side in SIDES}
    for at in range(rounds):
        for side in SIDES if at % 2 else reversed(SIDES):
            await _round(
                node,
                namespace,
                timeline,
                side,
                [f"{side.name}-{count}-{at}-{i}" for i in range(count)],
                times[side],
            )
    found = {side.name: times[side].figures() for side in SIDES}
    ratio = statistics.median(times[PLIMSOLL].by_stage["ready"]) / statistics.median(
        times[NATIVE].by_stage["ready"]
    )
    print(f"{count} at once, {rounds} rounds: ratio {ratio:.3f}", file=sys.stderr)
    for name, figures in found.items():
        print(f"  {name}: {figures}", file=sys.stderr)
    return {"ratio": round(ratio, 3), "rounds": rounds, **found}


async def _round(
    node: Node, namespace: str, timeline: Timeline, side: Side, names: list[str], times: Times
) -> None:
    asked_s: dict[str, float] = {}

    async def create(name: str) -> None:
        asked_s[name] = time.monotonic()
        await node.create(namespace, side.pod(name, "sleep", "3000"))

    before = used_ticks()
    await asyncio.gather(*map(create, names))
    await timeline.until_ready(names)
    times.effort_ticks += used_ticks() - before
    for name in names:
        for stage in STAGES:
            times.by_stage[stage].append(1000 * (timeline.reached_s[name][stage] - asked_s[name]))
    await node.api.must("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=1")
    await timeline.until_gone(names)
    await asyncio.sleep(SETTLE_S)  # no part tells when its work for the gone pods is over
