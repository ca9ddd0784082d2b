"""The check that a node can take a pod, apart from its GPUs: the rules of kube-scheduler's filters and the kubelet.

A pod that is bound against these rules does not wait: the kubelet fails it for good (`OutOfcpu`, `NodeAffinity`,
`NodePorts`, …). What always holds: every pod on a node counts, whichever scheduler placed it. Amounts are whole
numbers (CPU in thousandths), rounded up. Reasons are kube-scheduler's own texts. Order and arithmetic follow
Kubernetes 1.36: `pkg/scheduler/framework/plugins/{tainttoleration,nodeaffinity,nodeports,noderesources}` and
`component-helpers/resource`.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll.contract import RESOURCES
from plimsoll.kube.models import (
    Container,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Quantities,
    ResourceRequirements,
    Taint,
    Toleration,
)
from plimsoll.quantity import parse_exact, parse_milli, plain_int

UNSCHEDULABLE: Final = "node(s) were unschedulable"
NOT_READY: Final = "node(s) were not ready"
NODE_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
OPERATING_SYSTEM: Final = "node(s) didn't match Pod's operating system"
PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS: Final = "Too many pods"
UNKNOWN_NODE: Final = "node(s) were not known to the API server"
"""The reason against a node that has no object. kube-scheduler never sees such a node."""

_OS_LABEL: Final = "kubernetes.io/os"
_UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, never listened on

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container opens."""

    protocol: str
    address: str
    port: int

    def clashes(self, other: "HostPort") -> bool:
        """Whether one node cannot open both ports."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or _ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources of its node that a pod takes while it lives there.

    Attributes:
        amounts: by resource; CPU in thousandths, the others in their own unit.
        ports: the ports of the node that the pod opens.
    """

    amounts: Amounts
    ports: frozenset[HostPort]


@dataclass(slots=True)
class Load:
    """The resources that the pods on one node take together; `add` and `remove` keep it up to date."""

    amounts: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    pods: int = 0

    def add(self, needs: Needs) -> None:
        """Count a pod."""
        self.amounts.update(needs.amounts)
        self.ports.update(needs.ports)
        self.pods += 1

    def remove(self, needs: Needs) -> None:
        """Stop counting a pod that was added."""
        self.amounts.subtract(needs.amounts)
        self.ports.subtract(needs.ports)
        self.ports = +self.ports
        self.pods -= 1


def needs_of(pod: Pod) -> Needs:
    """The resources of its node that a pod takes.

    Raises:
        InputError: an amount is no quantity, or negative.
    """
    return Needs(_effective_requests(pod), frozenset(_host_ports(pod)))


def amounts_of(quantities: Quantities | None, field_name: str) -> dict[str, int]:
    """Quantities as whole numbers, rounded up; CPU in thousandths.

    Raises:
        InputError: a value is no quantity.
    """
    return {name: _amount(name, value, f"{field_name}[{name}]") for name, value in (quantities or {}).items()}


def misfits(pod: Pod, needs: Needs, node: Node, allocatable: Amounts, load: Load) -> tuple[str, ...]:
    """The reasons why a node is unfit for a pod, in kube-scheduler's texts; empty for a fit node.

    As in kube-scheduler, only the first kind of reason that applies is given; of resources, every one that is short.

    Args:
        pod: the pod; its `spec.nodeName` is not read.
        needs: `needs_of(pod)`.
        node: the candidate.
        allocatable: `amounts_of` the node's allocatable.
        load: the load of every pod assigned to the node that has not ended, the assumed ones included.
    """
    reason = _repelled(pod, node) or _mismatched(pod, node)
    if reason is not None:
        return (reason,)
    if any(wanted.clashes(taken) for wanted in needs.ports for taken in load.ports):
        return (PORTS,)
    return tuple(_shortages(needs.amounts, allocatable, load))


def _repelled(pod: Pod, node: Node) -> str | None:
    tolerations = pod.spec.tolerations or ()
    if node.spec.unschedulable and not _tolerated(_UNSCHEDULABLE_TAINT, tolerations):
        return UNSCHEDULABLE
    for taint in node.spec.taints or ():
        if taint.effect in _REPELLING and not _tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}"
    # kube-scheduler relies on a controller that turns the condition into a taint, which takes a while.
    ready = next((one.status for one in node.status.conditions or () if one.type == "Ready"), "True")
    return None if ready == "True" else NOT_READY


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    # Operators newer than Equal (Lt, Gt: alpha) tolerate nothing here. Such a pod waits, but is never misplaced.
    return toleration.operator in (None, "", "Equal") and (toleration.value or "") == (taint.value or "")


def _mismatched(pod: Pod, node: Node) -> str | None:
    labels = node.metadata.labels or {}
    selector = pod.spec.nodeSelector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return NODE_AFFINITY
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    if required is not None and not _selects(required, node):
        return NODE_AFFINITY
    wanted_os = (pod.spec.os or {}).get("name")
    if wanted_os and labels.get(_OS_LABEL, wanted_os) != wanted_os:
        return OPERATING_SYSTEM
    return None


def _selects(selector: NodeSelector, node: Node) -> bool:
    return any(_term_holds(term, node) for term in selector.nodeSelectorTerms)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    expressions, fields = term.matchExpressions or (), term.matchFields or ()
    if not expressions and not fields:
        return False  # Kubernetes: an empty term matches nothing
    labels = node.metadata.labels or {}
    names = {"metadata.name": node.metadata.name}
    return all(holds(one, labels) for one in expressions) and all(holds(one, names) for one in fields)


def holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str], *, unknown: bool = False) -> bool:
    """Whether labels meet a requirement; `unknown` is the result for an operator that is not known here."""
    label, values = labels.get(requirement.key), requirement.values or []
    known = {
        "In": label in values,
        "NotIn": label not in values,  # codespell:ignore notin
        "Exists": label is not None,
        "DoesNotExist": label is None,
        "Gt": _compares(label, values, operator.gt),
        "Lt": _compares(label, values, operator.lt),
    }
    return known.get(requirement.operator, unknown)


def _compares(label: str | None, values: list[str], compare: Callable[[int, int], bool]) -> bool:
    if label is None or len(values) != 1:
        return False
    actual, bound = plain_int(label), plain_int(values[0])
    return actual is not None and bound is not None and compare(actual, bound)


def _shortages(wanted: Amounts, allocatable: Amounts, load: Load) -> Iterable[str]:
    if load.pods + 1 > allocatable.get("pods", 0):
        yield TOO_MANY_PODS
    for name, amount in wanted.items():
        # The kubelet ignores extended resources that its node does not advertise. Plimsoll's may be advertised late,
        # or not at all; the ledger decides on them.
        if name in RESOURCES and name not in allocatable:
            continue
        if amount > 0 and amount > allocatable.get(name, 0) - load.amounts[name]:
            yield f"Insufficient {name}"


def _effective_requests(pod: Pod) -> dict[str, int]:
    """The pod's requests: max(init containers, containers), sidecars in both, the pod's own level, then overhead."""
    running: Counter[str] = Counter()
    for container in pod.spec.containers:
        running.update(_requests(container.resources, f"spec.containers[{container.name}]"))
    if not pod.spec.initContainers and pod.spec.resources is None and not pod.spec.overhead:
        return dict(running)  # as for nearly all pods
    starting: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    for container in pod.spec.initContainers or ():
        asked = Counter(_requests(container.resources, f"spec.initContainers[{container.name}]"))
        if _is_sidecar(container):
            sidecars.update(asked)
            asked = Counter()
        starting = _greater(starting, sidecars + asked)
    total = _greater(running + sidecars, starting)
    total |= {
        name: amount
        for name, amount in _requests(pod.spec.resources, "spec").items()
        if name.startswith(_POD_LEVEL)
    }
    overhead = Counter(amounts_of(pod.spec.overhead, "spec.overhead"))
    return dict(Counter(total) + overhead)


def _requests(resources: ResourceRequirements | None, where: str) -> dict[str, int]:
    """A container's requests, filled in from its limits as the API server does."""
    if resources is None:
        return {}
    given = {**(resources.limits or {}), **(resources.requests or {})}
    return amounts_of(given, f"{where}.resources")


def _greater(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _amount(name: str, value: str | float, field_name: str) -> int:
    if name == "cpu":
        return parse_milli(value, field_name)
    return -int(-parse_exact(value, field_name) // 1)


def _is_sidecar(container: Container) -> bool:
    return container.restartPolicy == "Always"


def _host_ports(pod: Pod) -> Iterable[HostPort]:
    sidecars = [container for container in pod.spec.initContainers or () if _is_sidecar(container)]
    for container in [*pod.spec.containers, *sidecars]:
        for port in container.ports or ():
            # The API server fills in the host port of pods on the host's network. A plain manifest lacks it.
            number = port.hostPort or (port.containerPort if pod.spec.hostNetwork else None)
            if number:
                yield HostPort(port.protocol or "TCP", port.hostIP or _ANY_ADDRESS, number)
