"""A node as the plugins filter it: its object, what it has, and what the pods on it take.

What always holds: every pod on a node counts, whichever scheduler placed it. Amounts are whole numbers (CPU in
thousandths), rounded up.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from placer.core.requests import Amounts, amounts_of
from placer.core.schedulability import OPEN, Schedulability, schedulability_of
from placer.core.selector import Traits, traits_of
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.needs import ANY_ADDRESS, HostPort, Needs
from placer.scheduler.pods.nominator import Nomination
from plimsoll.ids import PodUid
from plimsoll.kube.models import Node

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Requested:
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

    def copy(self) -> "Requested":
        """An own one, equal to this one."""
        return Requested(self.amounts.copy(), self.ports.copy(), self.numbers.copy(), self.pods)

    def clashes(self, port: HostPort) -> bool:
        """Whether the node cannot open this port beside those that are taken."""
        if port.number not in self.numbers:
            return False
        return (
            port.address == ANY_ADDRESS
            or port in self.ports
            or port._replace(address=ANY_ADDRESS) in self.ports
        )


_NOTHING: Final[Mapping[Any, Any]] = {}


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as pods are filtered against it, as it is or as it would be.

    Attributes:
        node: the node as the watch showed it.
        allocatable: `amounts_of` its allocatable.
        traits: its labels and its name.
        schedulability: what keeps new pods off it.
        requested: what the pods with this node take, assumed and nominated ones included.
        nominated: the nominated pods that are counted.
        removed: in a dry run, the node's pods that are supposed to be gone.
        dry_run: in a dry run, what plugins keep for it, by their names.
    """

    node: Node
    allocatable: Amounts
    traits: Traits
    schedulability: Schedulability = OPEN
    requested: Requested = field(default_factory=Requested)
    nominated: Sequence[Nomination] = ()
    removed: Mapping[PodUid, AssignedPod] = field(default_factory=lambda: _NOTHING)
    dry_run: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return self.node.metadata.labels or {}


def node_info_of(node: Node) -> NodeInfo:
    """A node without pods.

    Raises:
        InputError: the node's allocatable cannot be read.
    """
    where = f"nodes/{node.metadata.name}: status.allocatable"
    allocatable = amounts_of(node.status.allocatable, where)
    return NodeInfo(node, allocatable, traits_of(node), schedulability_of(node))


def _decrease(counts: Counter[K], key: K) -> None:
    """Count one less; a count of 0 is removed."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
