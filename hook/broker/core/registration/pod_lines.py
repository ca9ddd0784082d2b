"""The registration of a bound pod, made from the placer's decision; `plimsoll run` registers the same."""

from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.contract import DECISION, asks_gpu
from plimsoll.decision import GpuGrant, decision_of
from plimsoll.ids import ContainerName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.lifespan import Lifespan
from plimsoll.part.errors import InputError


def registration(pod: Pod) -> Register | None:
    """A bound pod's registration; None for a pod without a GPU.

    Raises:
        InputError: the placer's decision cannot be read, or the pod requests a GPU and has none.
    """
    decision = decision_of(pod)
    if decision is None:
        if asks_gpu(pod):
            remedy = "let Plimsoll's placer bind it (schedulerName: plimsoll)"
            raise InputError(f"metadata.annotations[{DECISION}]", None, "is missing", remedy)
        return None
    return Register(
        pod=PodUid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        containers=tuple(
            _container(name, grants, decision.start.lifespan(name), decision.cpus.get(name, ""))
            for name, grants in sorted(decision.containers.items())
        ),
    )


def _container(
    name: ContainerName, grants: tuple[GpuGrant, ...], lifespan: Lifespan, cpus: str
) -> ContainerLines:
    lines = (
        Line(gpu=one.gpu, line_bytes=one.line_bytes, share_pct=one.share_pct, limit_pct=one.limit_pct)
        for one in grants
    )
    whole = any(one.whole for one in grants)
    best_effort = not whole and any(one.memory_bytes is None for one in grants)
    return ContainerLines(
        name=name, lines=tuple(lines), whole=whole, best_effort=best_effort, lifespan=lifespan, cpus=cpus
    )
