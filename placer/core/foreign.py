"""Pods that run on a node without the placer's decision: bound by somebody else, static, or with a damaged decision.

Nobody knows which GPUs such a pod uses. So it counts against every GPU of its node, by its resources alone, because
its annotations are its owner's to edit.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from placer.core.booking import Booking, Doubt, grant_of
from placer.core.owners import owner_of
from plimsoll.demand import ContainerDemand, parse_pod
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

_EVERYTHING: Final = ContainerDemand(ContainerName(""), 1, None, 0, 100, whole=True)


def foreign_booking(pod: Pod, usable_bytes: Mapping[GpuUuid, int], why: str, unheld: str) -> Booking:
    """The booking of a bound pod whose GPUs are unknown.

    On each GPU it has what its containers request per GPU. A container that requests whole GPUs, or whose request
    cannot be read, takes every GPU whole.

    Args:
        pod: bound; requests one of our resources.
        usable_bytes: by GPU of the node, from its last report; empty before its first.
        why: the reason, for people, without an end.
        unheld: the reason why nothing holds the pod, likewise; empty where something does.
    """
    demands = _demands(pod)
    grants = tuple(
        grant_of(demand, gpu, size if demand.whole else 0)
        for gpu, size in usable_bytes.items()
        for demand in demands
    )
    node = NodeName(pod.spec.nodeName or "")
    reason = f"{why}; the pod counts against every GPU of {node}"
    if unheld:
        reason = f"held by nothing; {reason}. {unheld}"
    doubt = Doubt(pod.metadata.namespace, pod.metadata.name, reason, foreign=True, unheld=bool(unheld))
    return Booking(PodUid(pod.metadata.uid), node, grants, owner_of(pod), doubt)


def _demands(pod: Pod) -> tuple[ContainerDemand, ...]:
    bare = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=None))
    with suppress(InputError):
        return parse_pod(bare).containers
    return (_EVERYTHING,)
