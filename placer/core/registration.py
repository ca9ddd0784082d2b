"""Turns a plan into the registration with the node's broker, and a registration back into a booking.

What always holds: a booking that is read back from a broker grants what the registration of its plan granted. The
pod's owner and its labels of locality are not registered, so they are not read back.
"""

from collections.abc import Iterator

from placer.core.booking import Booking, Grant
from placer.core.plan import Plan
from plimsoll.broker.wire import ContainerLines, ContainerUse, Description, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.placer_api.http import PodRow


def registration(pod: Pod, plan: Plan) -> Register:
    """The request that registers a placed pod with the broker of its node."""
    metadata = pod.metadata
    return Register(
        pod=plan.booking.pod,
        namespace=metadata.namespace,
        name=metadata.name,
        gpu_name=plan.booking.gpu_name,
        containers=tuple(_container_lines(name, plan.booking, plan.cpus.get(name, "")) for name in plan.gpus),
    )


def registered(description: Description, pod: PodUid) -> Register | None:
    """The request that would register a pod as the broker has it now; None for a pod that is not registered."""
    uses = [use for use in description.containers if use.pod == pod]
    if not uses:
        return None
    containers = tuple(use.container for use in uses)
    return Register(
        pod=pod,
        namespace=uses[0].namespace,
        name=uses[0].pod_name,
        gpu_name=uses[0].gpu_name,
        containers=containers,
    )


def adopted(node: NodeName, description: Description) -> Iterator[tuple[PodRow, Booking]]:
    """Each registered pod of a node as a running row and its booking, for a placer that starts.

    The controller of a pod is not registered, so nothing is learned from an adopted best-effort pod.
    """
    pods: dict[PodUid, list[ContainerUse]] = {}
    for use in description.containers:
        pods.setdefault(use.pod, []).append(use)
    for uid, uses in pods.items():
        gpus: dict[str, tuple[GpuUuid, ...]] = {
            use.container.name: tuple(line.gpu for line in use.container.lines) for use in uses
        }
        row = PodRow(
            namespace=uses[0].namespace,
            name=uses[0].pod_name,
            uid=uid,
            phase="Running",
            node=node,
            gpus=gpus,
        )
        grants = tuple(grant for use in uses for grant in _grants(use.container))
        yield row, Booking(uid, node, grants, gpu_name=uses[0].gpu_name)


def _container_lines(name: ContainerName, booking: Booking, cpus: str) -> ContainerLines:
    grants = [grant for grant in booking.grants if grant.container == name]
    return ContainerLines(
        name=name,
        lines=tuple(
            Line(gpu=g.gpu, line_bytes=g.line_bytes, share_pct=g.share_pct, limit_pct=g.limit_pct)
            for g in grants
        ),
        whole=any(grant.whole for grant in grants),
        best_effort=any(grant.memory_bytes is None and not grant.whole for grant in grants),
        lifespan=grants[0].lifespan,
        cpus=cpus,
    )


def _grants(container: ContainerLines) -> Iterator[Grant]:
    declared = not container.whole and not container.best_effort
    for line in container.lines:
        yield Grant(
            container=container.name,
            gpu=line.gpu,
            memory_bytes=line.line_bytes if declared else None,
            share_pct=line.share_pct,
            limit_pct=line.limit_pct,
            whole=container.whole,
            line_bytes=line.line_bytes,
            lifespan=container.lifespan,
        )
