"""The resources that a pod takes of its node: Kubernetes' arithmetic over containers, init containers and resizes.

What always holds: the result is kube-scheduler's own. Follows Kubernetes 1.36, `PodRequests` in
`component-helpers/resource/helpers.go`. Pure.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

from plimsoll.kube.models import Container, ContainerStatus, Pod, Quantities, ResourceRequirements
from plimsoll.quantity import parse_exact, parse_milli

Amounts = Mapping[str, int]

_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")


def effective_requests(pod: Pod) -> dict[str, int]:
    """The pod's requests: max(init containers, containers), sidecars in both, the pod's own level, then overhead.

    CPU is in thousandths, other resources in their own units. Sums are rounded up at the end, not for each container.

    Raises:
        InputError: an amount is no quantity, or negative.
    """
    actual = _actual(pod)
    running: Counter[str] = Counter()
    for container in pod.spec.containers:
        running.update(_requests(container, "spec.containers", actual))
    if not pod.spec.initContainers and pod.spec.resources is None and not pod.spec.overhead:
        return _rounded(running)  # as for nearly all pods
    starting: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    for container in pod.spec.initContainers or ():
        asked = Counter(_requests(container, "spec.initContainers", actual if is_sidecar(container) else {}))
        if is_sidecar(container):
            sidecars.update(asked)
            asked = Counter()
        starting = _greater(starting, sidecars + asked)
    total = _greater(running + sidecars, starting)
    total |= {name: amount for name, amount in _own_requests(pod).items() if name.startswith(_POD_LEVEL)}
    return _rounded(Counter(total) + Counter(_thousandths(pod.spec.overhead, "spec.overhead")))


def amounts_of(quantities: Quantities | None, field_name: str) -> dict[str, int]:
    """Quantities as whole numbers, rounded up; CPU in thousandths.

    Raises:
        InputError: a value is no quantity.
    """
    return {name: _amount(name, value, f"{field_name}[{name}]") for name, value in (quantities or {}).items()}


def _amount(name: str, value: str | float, field_name: str) -> int:
    if name == "cpu":
        return parse_milli(value, field_name)
    return math.ceil(parse_exact(value, field_name))


def _requests(
    container: Container, where: str, actual: Mapping[str, tuple[dict[str, int], bool]]
) -> dict[str, int]:
    """A container's requests in thousandths, filled in from its limits as the API server does.

    During a resize in place, a running container takes the greatest of the amounts that it is meant to have, was
    promised, and has.
    """
    asked = _stated(container.resources, f"{where}[{container.name}].resources")
    if container.name not in actual:
        return asked
    has, is_infeasible = actual[container.name]
    return has if is_infeasible else _greater(asked, has)


def _own_requests(pod: Pod) -> dict[str, int]:
    """The requests of the pod's own level, in thousandths; as `_requests` during a resize."""
    asked = _stated(pod.spec.resources, "spec.resources")
    if pod.spec.resources is None or pod.status.resources is None:
        return asked
    has = _held(pod.status.resources, pod.status.allocatedResources, "status")
    effective = has if _is_infeasible(pod) else _greater(asked, has)
    return {name: effective.get(name, 0) for name in asked}


def _actual(pod: Pod) -> dict[str, tuple[dict[str, int], bool]]:
    """The resources that running containers have, by name, in thousandths; and whether the node refused a resize."""
    statuses = (*(pod.status.containerStatuses or ()), *(pod.status.initContainerStatuses or ()))
    if not statuses:
        return {}
    is_infeasible = _is_infeasible(pod)
    return {one.name: (_of_status(one), is_infeasible) for one in statuses if one.resources is not None}


def _of_status(status: ContainerStatus) -> dict[str, int]:
    return _held(status.resources, status.allocatedResources, f"status.containerStatuses[{status.name}]")


def _held(resources: ResourceRequirements | None, allocated: Quantities | None, where: str) -> dict[str, int]:
    requests = resources.requests if resources is not None else None
    return _greater(_thousandths(requests, where), _thousandths(allocated, where))


def _is_infeasible(pod: Pod) -> bool:
    return any(
        one.type == "PodResizePending" and one.reason == "Infeasible" for one in pod.status.conditions or ()
    )


def _stated(resources: ResourceRequirements | None, where: str) -> dict[str, int]:
    if resources is None:
        return {}
    return _thousandths({**(resources.limits or {}), **(resources.requests or {})}, where)


def _thousandths(quantities: Quantities | None, where: str) -> dict[str, int]:
    return {name: parse_milli(value, f"{where}[{name}]") for name, value in (quantities or {}).items()}


def _rounded(thousandths: Amounts) -> dict[str, int]:
    """Amounts in their own units, rounded up; CPU stays in thousandths."""
    return {name: amount if name == "cpu" else -(-amount // 1000) for name, amount in thousandths.items()}


def _greater(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def is_sidecar(container: Container) -> bool:
    """Whether an init container goes on beside the pod's containers."""
    return container.restartPolicy == "Always"
