"""The registration of a bound pod, made from its annotations; `plimsoll run` registers the same."""

from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.contract import (
    ContainerDemand,
    Decision,
    assigned_gpus,
    decision_of,
    parse_pod,
)
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.resizes import Resized, resized_of


def registration(pod: Pod) -> Register | None:
    """A bound pod's registration; None for a pod without a GPU.

    Raises:
        InputError: the pod's demand or the placer's answer cannot be read, or they contradict each other.
    """
    assigned = assigned_gpus(pod)
    if not assigned:
        return None
    demands = {demand.container: demand for demand in parse_pod(pod).containers}
    decision, resized = decision_of(pod), resized_of(pod)
    return Register(
        pod=PodUid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        containers=tuple(
            _container(name, gpus, demands, decision, resized) for name, gpus in sorted(assigned.items())
        ),
    )


def _container(
    name: ContainerName,
    gpus: tuple[GpuUuid, ...],
    demands: dict[ContainerName, ContainerDemand],
    decision: Decision | None,
    resized: Resized,
) -> ContainerLines:
    field = f"metadata.annotations[gpus.plimsoll.dev/{name}]"
    demand = demands.get(name)
    if demand is None or demand.gpus != len(gpus):
        wanted = "no GPU" if demand is None else f"{demand.gpus} GPU(s)"
        raise InputError(
            field, ",".join(gpus), f"does not match the container, which asks for {wanted}", "recreate it"
        )
    return ContainerLines(
        name=name,
        lines=tuple(_line(resized.of(demand, gpu), gpu, decision) for gpu in gpus),
        whole=demand.whole,
        best_effort=demand.best_effort,
    )


def _line(demand: ContainerDemand, gpu: GpuUuid, decision: Decision | None) -> Line:
    return Line(
        gpu=gpu,
        line_bytes=_line_bytes(demand, gpu, decision),
        share_pct=100 if demand.whole else demand.share_pct,
        limit_pct=demand.limit_pct,
    )


def _line_bytes(demand: ContainerDemand, gpu: GpuUuid, decision: Decision | None) -> int:
    """The line of a resize or of the declaration; where neither exists, the bytes that the placer found free.

    Without the placer's answer the line is 0: the broker never guesses a line.
    """
    if demand.memory_bytes is not None:
        return demand.memory_bytes
    return 0 if decision is None else decision.lines.get(demand.container, {}).get(gpu, 0)
