"""The pods that arrive in one replay, and the order of the nodes: both drawn by seed.

Protocol: the pods of the list are shuffled. While they ask for less than `ARRIVED` of the GPUs, pods drawn from the
list with replacement are appended; from a list that asks for more, pods are left out. Each node gets a random place
in the order of names, by which ties are broken.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from simulator.trace.lists import ListedNode, ListedPod, Trace

ARRIVED: Final = 1.3
"""The GPU that all pods ask for, in relation to the cluster's."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A draw: the nodes with their names, and the pods in the order of arrival."""

    nodes: tuple[ListedNode, ...]
    pods: tuple[ListedPod, ...]


def draw(trace: Trace, seed: int, arrived: float = ARRIVED) -> Arrivals:
    """Draw the arrivals of one seed."""
    random = Random(seed)
    pods = list(trace.pods)
    random.shuffle(pods)
    wanted = arrived * trace.capacity_milli
    total = sum(pod.total_milli for pod in pods)
    while total < wanted:
        pods.append(random.choice(trace.pods))
        total += pods[-1].total_milli
    while total - pods[-1].total_milli >= wanted:
        total -= pods.pop().total_milli
    places = list(range(len(trace.nodes)))
    random.shuffle(places)
    width = len(str(len(places)))
    nodes = (
        replace(node, name=f"{place:0{width}d}-{node.name}")
        for place, node in zip(places, trace.nodes, strict=True)
    )
    return Arrivals(tuple(nodes), tuple(pods))
