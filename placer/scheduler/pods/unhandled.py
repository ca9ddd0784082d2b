"""The policy for features of Kubernetes that this scheduler does not have: a pod that uses one is refused by name.

Such a pod must never be placed as if it did not use the feature, because that would silently break its author's rule.
Preferences are not rules. They score nodes: by the node alone (`placer.core.node_scores`), and by the pods of a
domain (`constraints`). Rules about other pods are handled, unless a pod has too many.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from placer.scheduler.pods.constraints import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from plimsoll.contract import asks_gpu
from plimsoll.kube.models import Container, Pod
from plimsoll.part.errors import InputError

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
