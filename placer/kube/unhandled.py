"""The policy for features of Kubernetes that this scheduler does not have: a pod that uses one is refused by name.

Such a pod must never be placed as if it did not use the feature, because that would silently break its author's rule.
Preferences are not rules: those about nodes are wishes (`placer.core.wishes`), those about other pods are ignored.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from plimsoll.kube.models import Container, Pod
from plimsoll.part.errors import InputError

# An allow-list: a volume kind that is not considered here is refused, not overlooked.
PLACELESS_VOLUMES: Final = frozenset(
    {"emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "csi", "image"}
)
"""Volume kinds that any node can mount. All others tie a pod to a zone, a node or a count."""
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of resources for which kube-scheduler makes a resource claim by itself."""
_NO_REMEDY: Final = "remove it, or let kube-scheduler place the pod (spec.schedulerName)"


def refuse_unhandled(pod: Pod) -> None:
    """Refuse a pod that uses a feature this scheduler does not have.

    Raises:
        InputError: the pod uses such a feature; the message names the first field.
    """
    for where, value in _used(pod):
        raise InputError(where, value, "is not handled by the plimsoll scheduler", _NO_REMEDY)


def _used(pod: Pod) -> Iterator[tuple[str, str]]:
    yield from _inter_pod(pod)
    for constraint in pod.spec.topologySpreadConstraints or ():
        if constraint.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield "spec.topologySpreadConstraints", str(constraint.get("topologyKey"))
    if pod.spec.resourceClaims:
        yield "spec.resourceClaims", f"{len(pod.spec.resourceClaims)} claim(s)"
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        yield from _claims(container)
    for volume in pod.spec.volumes or ():
        for kind in sorted(volume.keys() - {"name"} - PLACELESS_VOLUMES):
            yield f"spec.volumes[{volume.get('name')}]", kind
    if pod.spec.schedulingGroup is not UNSET:
        yield "spec.schedulingGroup", "gang scheduling"
    if pod.spec.workloadRef is not UNSET:
        yield "spec.workloadRef", "gang scheduling"


def _claims(container: Container) -> Iterator[tuple[str, str]]:
    if container.resources is None:
        return
    where = f"spec.containers[{container.name}].resources"
    if container.resources.claims:
        yield f"{where}.claims", "resource claims"
    for name in {**(container.resources.requests or {}), **(container.resources.limits or {})}:
        if name.startswith(DEVICE_CLASS):
            yield where, name


def _inter_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for name, rules in (("podAffinity", affinity.podAffinity), ("podAntiAffinity", affinity.podAntiAffinity)):
        if rules is not None and rules.requiredDuringSchedulingIgnoredDuringExecution:
            yield f"spec.affinity.{name}", "requiredDuringSchedulingIgnoredDuringExecution"
