"""The check that a node can take a pod, apart from its GPUs: the rules of kube-scheduler's filters and the kubelet.

A pod that is bound against these rules does not wait: the kubelet fails it for good (`OutOfcpu`, `NodeAffinity`,
`NodePorts`, …). What always holds: every pod on a node counts, whichever scheduler placed it. Amounts are whole
numbers (CPU in thousandths), rounded up. Reasons are kube-scheduler's own texts. Order and arithmetic follow
Kubernetes 1.36: `pkg/scheduler/framework/plugins/{tainttoleration,nodeaffinity,nodeports,noderesources}` and
`component-helpers/resource`.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from placer.core import declared_features, supplemental_groups
from placer.core.mounts import NO_MOUNTS, Mounts, mounts_of
from placer.core.requests import Amounts, effective_requests, is_sidecar
from placer.core.selector import Selector, Traits, selector_of, traits_of
from placer.core.standing import OPEN, REPELLING, Standing, readiness_of, standing_of
from plimsoll import cordons
from plimsoll.broker.volume import uses_volume
from plimsoll.contract import RESOURCES
from plimsoll.kube.models import Node, Pod, Quantities, Taint
from plimsoll.quantity import parse_exact, parse_milli

UNSCHEDULABLE: Final = "node(s) were unschedulable"
NOT_READY: Final = "node(s) were not ready"
NODE_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
OPERATING_SYSTEM: Final = "node(s) didn't match Pod's operating system"
PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS: Final = "Too many pods"
OPTED_OUT: Final = "node(s) had opted out of Plimsoll by label"
PAUSED: Final = f"node(s) take no pods while placing is paused by {cordons.PAUSED} of the placer's namespace"
UNKNOWN_NODE: Final = "node(s) were not known to the API server"
"""The reason against a node that has no object. kube-scheduler never sees such a node."""

K = TypeVar("K", bound=Hashable)

_OS_LABEL: Final = "kubernetes.io/os"
_UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_NOT_READY_TAINT: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_UNREACHABLE_TAINT: Final = Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, never listened on

MOST_SHORTAGES: Final = 32
"""The most resources that one refusal names. A tenant may ask for thousands that no node has."""


class HostPort(NamedTuple):
    """A port of the node that a container opens."""

    protocol: str
    address: str
    port: int

    @property
    def number(self) -> tuple[str, int]:
        """The port on any address."""
        return self.protocol, self.port


class Tolerations:
    """A pod's tolerations; a look-up costs the same however many there are."""

    def __init__(self, pod: Pod) -> None:
        """Read them from the pod."""
        given = pod.spec.tolerations or ()
        self._of_any_value = {(one.key or "", one.effect or "") for one in given if one.operator == "Exists"}
        # Operators newer than Equal (Lt, Gt: alpha) tolerate nothing here. Such a pod waits, but is never misplaced.
        self._of_value = {
            (one.key or "", one.effect or "", one.value or "")
            for one in given
            if one.operator in (None, "", "Equal")
        }

    def tolerate(self, taint: Taint) -> bool:
        """Whether one of them tolerates a taint; a toleration without key or effect tolerates any."""
        return any(
            (key, effect) in self._of_any_value or (key, effect, taint.value or "") in self._of_value
            for key in ("", taint.key)
            for effect in ("", taint.effect)
        )


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A pod's own rules about its node.

    Attributes:
        tolerations: the taints that the node may have.
        selector: the labels and the name that the node must have.
        systems: the operating systems that the pod names, in its spec and by its label: the kubelet refuses the pod
            unless its node has each of them. Empty for any.
        strict_groups: see `placer.core.supplemental_groups`.
        features: the features that the node must declare, see `placer.core.declared_features`.
        uses_volume: the pod has our inline volume, so the node needs our CSI driver.
    """

    tolerations: Tolerations
    selector: Selector
    systems: frozenset[str]
    strict_groups: bool
    features: frozenset[str]
    uses_volume: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A node as pods are checked against it.

    Attributes:
        node: the node as the watch showed it.
        allocatable: `amounts_of` its allocatable.
        traits: its labels and its name.
        standing: its standing for new pods.
    """

    node: Node
    allocatable: Amounts
    traits: Traits
    standing: Standing = OPEN


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources of its node that a pod takes while it lives there.

    Attributes:
        amounts: by resource; CPU in thousandths, the others in their own unit.
        ports: the ports of the node that the pod opens.
        mounts: the volumes that tie the pod to nodes; the rules about them are Kubernetes' alone.
    """

    amounts: Amounts
    ports: frozenset[HostPort]
    mounts: Mounts = NO_MOUNTS


@dataclass(slots=True)
class NodeLoad:
    """The resources that the pods on one node take together; `add` and `remove` keep it up to date."""

    amounts: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    numbers: Counter[tuple[str, int]] = field(default_factory=Counter)
    pods: int = 0

    def add(self, needs: Needs) -> None:
        """Count a pod."""
        amounts = self.amounts
        for name, amount in needs.amounts.items():
            amounts[name] += amount
        if needs.ports:
            self.ports.update(needs.ports)
            self.numbers.update(port.number for port in needs.ports)
        self.pods += 1

    def remove(self, needs: Needs) -> None:
        """Stop counting a pod that was added."""
        amounts = self.amounts
        for name, amount in needs.amounts.items():
            amounts[name] -= amount
        for port in needs.ports:
            _decrease(self.ports, port)
            _decrease(self.numbers, port.number)
        self.pods -= 1

    def copy(self) -> "NodeLoad":
        """A load of its own, equal to this one."""
        return NodeLoad(self.amounts.copy(), self.ports.copy(), self.numbers.copy(), self.pods)

    def clashes(self, port: HostPort) -> bool:
        """Whether the node cannot open this port beside those that are taken."""
        if port.number not in self.numbers:
            return False
        return (
            port.address == _ANY_ADDRESS
            or port in self.ports
            or port._replace(address=_ANY_ADDRESS) in self.ports
        )


def needs_of(pod: Pod) -> Needs:
    """The resources of its node that a pod takes.

    Raises:
        InputError: an amount is no quantity, or negative.
    """
    return Needs(effective_requests(pod), frozenset(_host_ports(pod)), mounts_of(pod))


def amounts_of(quantities: Quantities | None, field_name: str) -> dict[str, int]:
    """Quantities as whole numbers, rounded up; CPU in thousandths.

    Raises:
        InputError: a value is no quantity.
    """
    return {name: _amount(name, value, f"{field_name}[{name}]") for name, value in (quantities or {}).items()}


def rules_of(pod: Pod) -> NodeRules:
    """The rules of a pod about its node."""
    named = ((pod.spec.os or {}).get("name"), (pod.metadata.labels or {}).get(_OS_LABEL))
    return NodeRules(
        tolerations=Tolerations(pod),
        selector=selector_of(pod),
        systems=frozenset(name for name in named if name),
        strict_groups=supplemental_groups.is_strict(pod),
        features=declared_features.features_of(pod),
        uses_volume=uses_volume(pod.spec.volumes),
    )


def offer_of(node: Node) -> Offer:
    """A node as pods are checked against it.

    Raises:
        InputError: the node's allocatable cannot be read.
    """
    where = f"nodes/{node.metadata.name}: status.allocatable"
    allocatable = amounts_of(node.status.allocatable, where)
    return Offer(node, allocatable, traits_of(node), standing_of(node))


def misfits(rules: NodeRules, needs: Needs, offer: Offer, load: NodeLoad) -> tuple[str, ...]:
    """The reasons why a node is unfit for a pod, in kube-scheduler's texts; empty for a fit node.

    As in kube-scheduler, only the first kind of reason that applies is given. Every resource that is short gets a
    reason, up to `MOST_SHORTAGES`.

    Args:
        rules: `rules_of` the pod.
        needs: `needs_of` the pod.
        offer: the candidate.
        load: the load of every pod assigned to the node that has not ended, the assumed ones included.
    """
    if offer.standing.is_off:
        return (OPTED_OUT,)
    reason = _repelled(rules.tolerations, offer.node) or _mismatched(rules, offer)
    if reason is not None:
        return (reason,)
    return shortages(needs, offer, load)


def shortages(needs: Needs, offer: Offer, load: NodeLoad) -> tuple[str, ...]:
    """The reasons that the load of a node gives against a pod: its ports and resources; see `misfits`."""
    if load.ports and any(map(load.clashes, needs.ports)):
        return (PORTS,)
    return tuple(islice(_shortages(needs.amounts, offer.allocatable, load), MOST_SHORTAGES))


def _repelled(tolerations: Tolerations, node: Node) -> str | None:
    if node.spec.unschedulable and not tolerations.tolerate(_UNSCHEDULABLE_TAINT):
        return UNSCHEDULABLE
    for taint in node.spec.taints or ():
        if taint.effect in REPELLING and not tolerations.tolerate(taint):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}"
    # kube-scheduler relies on a controller that turns the condition into a taint, which takes a while.
    ready = readiness_of(node)
    taint = _NOT_READY_TAINT if ready == "False" else _UNREACHABLE_TAINT
    return None if ready == "True" or tolerations.tolerate(taint) else NOT_READY


def _mismatched(rules: NodeRules, offer: Offer) -> str | None:
    traits = offer.traits
    if not rules.selector.selects(traits):
        return NODE_AFFINITY
    if rules.systems and _OS_LABEL in traits and rules.systems != {traits[_OS_LABEL]}:
        return OPERATING_SYSTEM
    if rules.strict_groups and not supplemental_groups.keeps_policy(offer.node):
        return supplemental_groups.REASON
    if rules.features and not declared_features.declares(offer.node, rules.features):
        return declared_features.REASON
    return None


def _shortages(wanted: Amounts, allocatable: Amounts, load: NodeLoad) -> Iterable[str]:
    if load.pods + 1 > allocatable.get("pods", 0):
        yield TOO_MANY_PODS
    for name, amount in wanted.items():
        # The kubelet ignores extended resources that its node does not advertise. Plimsoll's may be advertised late,
        # or not at all; the ledger decides on them.
        if name in RESOURCES and name not in allocatable:
            continue
        if amount > 0 and amount > allocatable.get(name, 0) - load.amounts[name]:
            yield f"Insufficient {name}"


def _amount(name: str, value: str | float, field_name: str) -> int:
    if name == "cpu":
        return parse_milli(value, field_name)
    return math.ceil(parse_exact(value, field_name))


def _decrease(counts: Counter[K], key: K) -> None:
    """Count one less; a count of 0 is removed."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _host_ports(pod: Pod) -> Iterable[HostPort]:
    sidecars = [container for container in pod.spec.initContainers or () if is_sidecar(container)]
    for container in [*pod.spec.containers, *sidecars]:
        for port in container.ports or ():
            # The API server fills in the host port of pods on the host's network. A plain manifest lacks it.
            number = port.hostPort or (port.containerPort if pod.spec.hostNetwork else None)
            if number:
                yield HostPort(port.protocol or "TCP", port.hostIP or _ANY_ADDRESS, number)
