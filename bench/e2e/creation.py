"""Pods of both kinds are created in turn, one and many at once, and each one's time until it is ready is taken.

KubeShare (HPDC '20), Figure 10, has 15 % more for its pods than for Kubernetes' own where no vGPU is created, for 1
to 20 requests at once. ConVGPU (CLUSTER '17), Figure 5, has 15 % for a container.
"""

import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bench.e2e.cpu_time import per_pod_ms, used_ticks
from bench.e2e.pod_kinds import NATIVE, PLIMSOLL, PodKind
from bench.e2e.timeline import STAGES, PodTimeline
from tests.node.node import Node

Json = dict[str, Any]

SETTLE_S: Final = 1.5
"""After the last pod of a round is gone, the kubelet still removes its volumes and its sandbox."""


@dataclass(slots=True)
class Times:
    """The times of all pods of one kind and count, in milliseconds from the request that created the pod.

    Attributes:
        by_stage: see `timeline.STAGES`.
        cpu_ticks: CPU time of the node's programs while the pods started, in all rounds.
    """

    by_stage: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    cpu_ticks: Counter[str] = field(default_factory=Counter)

    def figures(self) -> Json:
        """The median of each stage, and the mean CPU time of each program for each pod."""
        stages = {f"{stage}_ms": round(statistics.median(times)) for stage, times in self.by_stage.items()}
        return {**stages, "cpu_ms": per_pod_ms(self.cpu_ticks, len(self.by_stage["ready"]))}


async def settle() -> None:
    """Give the kubelet time; no part reports when its work for the gone pods is over."""
    await asyncio.sleep(SETTLE_S)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The node and the pods of a comparison.

    Attributes:
        node: the node.
        namespace: the namespace of the pods.
        timeline: watches that namespace.
        native: the kind beside which ours stands.
        settled: returns once the node is as it was before a round.
    """

    node: Node
    namespace: str
    timeline: PodTimeline
    native: PodKind = NATIVE
    settled: Callable[[], Awaitable[None]] = settle

    async def compare(self, count: int, rounds: int) -> Json:
        """Start `count` pods at once of one kind and then of the other, in this many rounds; returns the figures.

        The kinds take turns in going first, so that a drift of the machine affects both alike.
        """
        kinds = (self.native, PLIMSOLL)
        times = {kind.name: Times() for kind in kinds}
        for at in range(rounds):
            for kind in kinds if at % 2 else reversed(kinds):
                names = [f"{kind.name}-{count}-{at}-{i}" for i in range(count)]
                await self._round(kind, names, times[kind.name])
        found = {name: taken.figures() for name, taken in times.items()}
        ours, theirs = (times[kind.name].by_stage["ready"] for kind in (PLIMSOLL, self.native))
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{count} at once, {rounds} rounds: ratio {ratio:.3f}", file=sys.stderr)
        for name, figures in found.items():
            print(f"  {name}: {figures}", file=sys.stderr)
        return {"ratio": round(ratio, 3), "rounds": rounds, **found}

    async def _round(self, kind: PodKind, names: list[str], times: Times) -> None:
        asked_s: dict[str, float] = {}

        async def create(name: str) -> None:
            asked_s[name] = time.monotonic()
            await self.node.create(self.namespace, kind.pod(name, "sleep", "3000"))

        before = used_ticks()
        await asyncio.gather(*map(create, names))
        await self.timeline.until_ready(names)
        times.cpu_ticks += used_ticks() - before
        for name in names:
            for stage in STAGES:
                times.by_stage[stage].append(1000 * (self.timeline.reached_s[name][stage] - asked_s[name]))
        await self.node.api.must("DELETE", f"/api/v1/namespaces/{self.namespace}/pods?gracePeriodSeconds=1")
        await self.timeline.until_gone(names)
        await self.settled()
