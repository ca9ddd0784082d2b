"""Zones of nodes in memory, and replicas of an app that have wishes about each other."""

from collections import Counter

from placer.scheduler.pods.pod_info import PodInfo
from tests.placer.kube.memory_cluster import MemoryCluster, pod
from tests.placer.kube.objects import Object, pod_of

APP = {"app": "x"}


def zones(free_gib: int = 20, cpu: str = "50", **zones: int) -> MemoryCluster:
    """This many nodes in each zone, each with a GPU of 24 GiB that has this much free memory."""
    made = MemoryCluster()
    for zone, nodes in zones.items():
        for number in range(nodes):
            name = f"{zone}{number:03}"
            made.node(name, cpu, labels={"zone": zone, "host": name})
            made.report(name, free_gib)
    return made


def resident(made: MemoryCluster, name: str, node: str, app: str = "x") -> None:
    """A pod of an app that has a node, by whichever scheduler."""
    made.cluster.confirm(pod_of(name, {}, {"app": app}, nodeName=node))


def replica(name: str, memory: str | None, spec: Object, **labels: str) -> PodInfo:
    """A pod of the app `x`."""
    return pod(name, memory, labels=APP | labels, **spec)


async def zones_of(made: MemoryCluster, pods: int, memory: str | None, spec: Object) -> Counter[str]:
    """The zones of this many replicas that are placed one after another."""
    nodes = [await made.place(replica(f"p{number}", memory, spec)) for number in range(pods)]
    return Counter(str(node)[0] for node in nodes)
