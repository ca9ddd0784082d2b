"""Refuses pods that cannot be read in time, and pods with a feature of Kubernetes that this scheduler does not have.

A pod must never be placed as if it did not use such a feature, because that would silently break its author's rule.
Preferences are not rules. They score nodes: by the node alone (`placer.core.node_scores`), and by the pods of a
domain (`constraints`). Rules about other pods are handled, unless a pod has too many.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import UNSET

from placer.scheduler.pods.constraints import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from plimsoll.contract import asks_gpu
from plimsoll.kube.models import Container, Pod
from plimsoll.part.errors import InputError

MOST_BYTES: Final = 2**16
"""The most bytes of each field, as JSON: the names of a thousand nodes, or some hundred containers. No field of this
length takes more than some 10 ms."""


def refuse_long(pod: Pod) -> None:
    """Refuse a pod with a field that is longer than `MOST_BYTES`: while it is read, every other pod waits.

    The API server stores objects of more than a megabyte. A selector of that size takes up to a second of the event
    loop, longer than the placer may stand still without losing its Lease.

    Raises:
        InputError: naming the first such field.
    """
    read = _read(pod)
    if _length(read) <= MOST_BYTES:
        return  # as nearly all pods
    for where, value in read.items():
        if (length := _length(value)) > MOST_BYTES:
            problem = f"as JSON are more than the {MOST_BYTES} that are read"
            raise InputError(where, f"{length} bytes", problem, "write less")


def _read(pod: Pod) -> dict[str, object]:
    """The fields that a decision reads, by their paths."""
    spec, affinity = pod.spec, pod.spec.affinity
    return {
        "metadata.labels": pod.metadata.labels,
        "spec.affinity.nodeAffinity": affinity and affinity.nodeAffinity,
        "spec.affinity.podAffinity": affinity and affinity.podAffinity,
        "spec.affinity.podAntiAffinity": affinity and affinity.podAntiAffinity,
        "spec.nodeSelector": spec.nodeSelector,
        "spec.tolerations": spec.tolerations,
        "spec.topologySpreadConstraints": spec.topologySpreadConstraints,
        "spec.volumes": spec.volumes,
        "spec.containers": [_read_of(one) for one in spec.containers],
        "spec.initContainers": [_read_of(one) for one in spec.initContainers or ()],
    }


def _read_of(container: Container) -> tuple[object, ...]:
    """The parts of a container that are read: a program's arguments and environment may be as long as they like."""
    return container.name, container.resources, container.ports


def _length(value: object) -> int:
    return len(msgspec.json.encode(value))


# An allow-list: a volume kind that is not considered here is refused, not overlooked.
PLACELESS_VOLUMES: Final = frozenset(
    {"emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "csi", "image"}
)
"""Volume kinds that any node can mount."""
TIED_VOLUMES: Final = frozenset({"persistentVolumeClaim", "ephemeral", "iscsi", "rbd"})
"""Volume kinds that tie a pod to nodes by rules which are kept here (`placer.scheduler.plugins.volumes`)."""
MOST_CLAIMS: Final = 256
"""The most claims of one pod. Each claim is read for each node. 256 claims take 10 ms after a volume's change, and no
driver attaches as many to a node."""
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of resources for which kube-scheduler makes a resource claim by itself."""
_NO_REMEDY: Final = "remove it, or let kube-scheduler place the pod (spec.schedulerName)"
_GPU_REMEDY: Final = "remove it"
"""Another scheduler knows nothing of the pod's GPUs, so this is the only remedy for a pod that asks for some."""


def refuse_unhandled(pod: Pod) -> None:
    """Refuse a pod that uses a feature that this scheduler lacks.

    Raises:
        InputError: the pod uses such a feature; the message names the first field.
    """
    for where, value in _used(pod):
        remedy = _GPU_REMEDY if asks_gpu(pod) else _NO_REMEDY
        raise InputError(where, value, "is not handled by the plimsoll scheduler", remedy)


def _used(pod: Pod) -> Iterator[tuple[str, str]]:
    for constraint in pod.spec.topologySpreadConstraints or ():
        if constraint.get("whenUnsatisfiable") not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
            yield "spec.topologySpreadConstraints", str(constraint.get("topologyKey"))
    if pod.spec.resourceClaims:
        yield "spec.resourceClaims", f"{len(pod.spec.resourceClaims)} claim(s)"
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        yield from _claims(container)
    yield from _volumes(pod)
    if pod.spec.schedulingGroup is not UNSET:
        yield "spec.schedulingGroup", "gang scheduling"
    if pod.spec.workloadRef is not UNSET:
        yield "spec.workloadRef", "gang scheduling"


def _volumes(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes or ():
        for kind in sorted(volume.keys() - {"name"} - PLACELESS_VOLUMES - TIED_VOLUMES):
            yield f"spec.volumes[{volume.get('name')}]", kind
    claims = sum("persistentVolumeClaim" in one or "ephemeral" in one for one in pod.spec.volumes or ())
    if claims > MOST_CLAIMS:
        yield "spec.volumes", f"{claims} claims"


def _claims(container: Container) -> Iterator[tuple[str, str]]:
    if container.resources is None:
        return
    where = f"spec.containers[{container.name}].resources"
    if container.resources.claims:
        yield f"{where}.claims", "resource claims"
    for name in {**(container.resources.requests or {}), **(container.resources.limits or {})}:
        if name.startswith(DEVICE_CLASS):
            yield where, name
