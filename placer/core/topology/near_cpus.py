"""The CPUs that a pod's containers are bound to: those near their GPUs.

Source: S. Song et al., "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §III.A: a GPU is bound to
the n nearest CPU cores. Deviation: n is not chosen. The driver names the CPUs of the GPU's own socket or part of it,
and a container gets all of them, because its CPU request and limit say how much it may use.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from placer.core.view import NodeView
from plimsoll.demand import PodDemand
from plimsoll.ids import ContainerName, GpuUuid


class NearCpus(NamedTuple):
    """CPUs by container as Linux lists them, and for people why some are missing; both empty if none are wanted."""

    cpus: Mapping[ContainerName, str]
    note: str


def near_cpus(
    demand: PodDemand, node: NodeView, gpus: Mapping[ContainerName, Collection[GpuUuid]]
) -> NearCpus:
    """The CPUs near the GPUs of each container, where the pod wants to be bound to them."""
    if not demand.cpu_affinity:
        return NearCpus({}, "")
    found = {
        name: cpus
        for name, given in gpus.items()
        if node.hardware is not None and (cpus := node.hardware.cpus_near(given))
    }
    missing = sorted(gpus.keys() - found.keys())
    note = f"not bound to CPUs, as node {node.node} names none near the GPUs: {', '.join(missing)}"
    return NearCpus(found, note if missing else "")
