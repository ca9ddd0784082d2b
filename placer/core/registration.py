"""From what a broker has registered to the ledger's terms: pods that a placer finds when it starts."""

from collections.abc import Iterator

from placer.core.ledger import Booking, Grant
from plimsoll.broker.wire import ContainerLines, ContainerUse, Description
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.http import PodRow


def adopted(node: NodeName, description: Description) -> Iterator[tuple[PodRow, Booking]]:
    """Each registered pod as a running row and its booking.

    Which controller a pod belongs to is not registered, so nothing is learned from an adopted best-effort pod.
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
        yield row, Booking(uid, node, tuple(grant for use in uses for grant in _grants(use.container)))


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
        )
