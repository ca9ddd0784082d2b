"""The cost of one decision in process, without any server: time, and the nodes and GPUs that it reads.

A cluster of idle nodes is made from reports and node objects. Then pods are decided one after another, each counted
on its node: pods that find a place, pods that no GPU has the memory for, and pods that no node has the CPU for.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

import msgspec

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.decide import Decider
from placer.kube.choice import NodeChoice, Wanted, understood
from placer.kube.cluster import Cluster
from placer.metrics import Metrics
from placer.reports import ReportView
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.kube.models import Node, Pod
from plimsoll.quantity import GIB

GPUS: Final = 8
USABLE_BYTES: Final = 24 * GIB


def node(number: int) -> Node:
    """A node object with room for 110 pods."""
    labels = {"kubernetes.io/hostname": f"node-{number:05}", "topology.kubernetes.io/zone": f"z{number % 3}"}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": f"node-{number:05}", "labels": labels}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


def report(number: int, seq: int = 1, gpus: int = GPUS) -> NodeState:
    """A node's report of idle GPUs."""
    cards = tuple(
        Gpu(
            uuid=GpuUuid(f"GPU-{number:05}-{index}"),
            index=index,
            model="NVIDIA L4",
            usable_bytes=USABLE_BYTES,
            used_bytes=0,
            idle_pct=100.0,
        )
        for index in range(gpus)
    )
    name = NodeName(f"node-{number:05}")
    return NodeState(node=name, epoch=1, seq=seq, time="2026-01-01T00:00:00Z", gpus=cards)


def pod(name: str, memory: str | None = "4Gi", cpu: str = "100m") -> Pod:
    """A pod with one container."""
    limits = {"cpu": cpu} | ({"plimsoll.dev/gpu-memory": memory} if memory else {})
    container = {"name": "main", "resources": {"limits": limits}}
    return msgspec.convert(
        {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}, Pod
    )


@dataclass(slots=True)
class World:
    """A cluster in memory, with the decisions over it."""

    nodes: int
    decider: Decider = field(init=False)
    cluster: Cluster = field(init=False)
    choice: NodeChoice = field(init=False)

    def __post_init__(self) -> None:
        ledger = Ledger()
        self.decider = Decider(ReportView(), ledger, Metrics())
        self.cluster = Cluster(ledger)
        self.choice = NodeChoice(self.decider, self.cluster)
        for number in range(self.nodes):
            self.cluster.put_node(node(number))
            self.decider.reports.apply(report(number))

    def decide(self, wanted: Wanted) -> bool:
        """Decide on a pod and count it on its node; whether it has one."""
        decided = self.choice.decide(wanted)
        if isinstance(decided, Plan):
            self.cluster.assume(decided.booking, wanted.needs)
        return isinstance(decided, Plan)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a decision: milliseconds, and the nodes and GPUs that one decision reads on average."""

    p50_ms: float
    p99_ms: float
    nodes_read: float
    gpus_read: float


def measure(world: World, pods: int, make: Callable[[int], Pod], *, placed: bool) -> Cost:
    """Decide on pods one after another.

    Args:
        world: the cluster; placed pods stay there.
        pods: their number.
        make: makes a pod by its number.
        placed: whether each pod must find a place, or none.
    """
    wanted = [understood(make(number), HEADROOM) for number in range(pods)]
    nodes, gpus = world.decider.nodes_read, world.decider.gpus_read
    times: list[float] = []
    for one in wanted:
        began = time.perf_counter()
        found = world.decide(one)
        times.append(time.perf_counter() - began)
        assert found is placed, one.pod.metadata.name
    times.sort()
    return Cost(
        statistics.median(times) * 1000,
        times[int(len(times) * 0.99)] * 1000,
        (world.decider.nodes_read - nodes) / pods,
        (world.decider.gpus_read - gpus) / pods,
    )


async def explained(world: World, one: Pod) -> tuple[float, float]:
    """Milliseconds of the first and of a second explanation of a refusal."""
    took: list[float] = []
    for _ in range(2):
        began = time.perf_counter()
        assert await world.choice.explain(understood(one, HEADROOM)) is not None
        took.append((time.perf_counter() - began) * 1000)
    return took[0], took[1]


def on(nodes: int, pods: int) -> dict[str, float]:
    """All figures of one cluster size."""
    began = time.perf_counter()
    world = World(nodes)
    world.decide(understood(pod("first"), HEADROOM))  # ranks all GPUs
    figures = {"build_s": time.perf_counter() - began}
    gc.collect()
    gc.freeze()  # a collection of the whole cluster is no part of one decision
    costs = {
        "placed": measure(world, pods, lambda n: pod(f"gpu-{n}"), placed=True),
        "no_gpu": measure(world, pods, lambda n: pod(f"cpu-{n}", None), placed=True),
        "no_memory": measure(world, 200, lambda n: pod(f"large-{n}", "25Gi"), placed=False),
        "no_cpu_first": measure(world, 1, lambda n: pod(f"busy-{n}", cpu="65"), placed=False),
    }
    first_ms, again_ms = asyncio.run(explained(world, pod("busy", cpu="65")))
    costs["no_cpu_again"] = measure(world, 200, lambda n: pod(f"busy-{n}", cpu="65"), placed=False)
    for name, cost in costs.items():
        figures |= {f"{name}_{what}": value for what, value in asdict(cost).items()}
    figures |= {"explain_first_ms": first_ms, "explain_again_ms": again_ms}
    figures["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def main() -> None:
    """Measure each size, the smaller ones first, as the memory that is reported is the most so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 20_000])
    parser.add_argument("--pods", type=int, default=5000)
    given = parser.parse_args()
    found = {nodes: on(nodes, given.pods) for nodes in sorted(given.nodes)}
    for nodes, figures in found.items():
        print(f"{nodes} nodes × {GPUS} GPUs")
        for name, value in figures.items():
            print(f"  {name:28}{value:12.3f}")
    print(json.dumps({f"n{nodes}": figures for nodes, figures in found.items()}))


if __name__ == "__main__":
    main()
