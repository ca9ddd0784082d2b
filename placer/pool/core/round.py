"""A round of planning: the nodes that the pool concerns, as they are found, and the steps that follow."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from placer.core.holders import GpuKey
from placer.pool.core.facts import Facts, NodeFacts, User
from placer.pool.core.packing import Packing
from placer.pool.core.steps import Step
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.pool import Reservation


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one planning.

    Attributes:
        steps: the steps, in the order in which they are taken.
        lost: the GPUs that pods use without a reservation, with these pods.
        phases: the number of GPUs in each phase: `acquiring`, `active`, `idle`, `releasing`.
        due_s: when to look again although nothing changed; infinite for never.
    """

    steps: tuple[Step, ...]
    lost: Mapping[GpuKey, frozenset[User]]
    phases: Mapping[str, int]
    due_s: float


@dataclass(slots=True)
class PoolNode:
    """One node in a round.

    Attributes:
        strangers: the names that reservations cannot have.
        held: the GPUs of reservations.
        idle: reservations whose GPUs no pod uses, by name.
        cordoned: the number of further such reservations whose GPUs take no new pods. Nobody else gets these GPUs.
        young: the number of these that have joined, or become idle, so lately that pods may just be placed there.
        acquiring: the number of reservations whose GPUs are not known yet.
        unplaced: the number of these that have no node yet, so that the device plugin has yet to give a GPU.
        packing: the pods that wait for a GPU here.
        pinned: the GPUs that pods name by their UUIDs, by pod.
        wanted: the GPUs that waiting pods need here at least.
        missing: the GPUs to be reserved here by their UUIDs: lost ones, and those that pods pin.
        free: the GPUs that the device plugin has to give.
        keeps: idle GPUs stay, because pods wait here or a GPU was lost here.
    """

    name: NodeName
    facts: NodeFacts
    there: tuple[Reservation, ...]
    strangers: frozenset[str]
    held: set[GpuUuid] = field(default_factory=set)
    idle: list[Reservation] = field(default_factory=list)
    cordoned: int = 0
    young: int = 0
    packing: Packing = field(init=False)
    pinned: dict[PodUid, GpuUuid] = field(default_factory=dict)
    acquiring: int = 0
    unplaced: int = 0
    wanted: int = 0
    missing: set[GpuUuid] = field(default_factory=set)
    free: int = 0
    keeps: bool = False

    def __post_init__(self) -> None:
        self.packing = Packing(self.facts.gpu_bytes)

    @property
    def supply(self) -> int:
        """The GPUs that waiting pods may get here."""
        return self.free + self.acquiring + self.young

    @property
    def takes_pods(self) -> bool:
        """Whether pods come here for which a reserved GPU may be kept ready."""
        return self.facts.schedulable and not self.facts.dedicated

    @property
    def spare(self) -> int:
        """The GPUs that are idle, or on their way, beyond those that waiting pods need."""
        return max(0, len(self.idle) + self.acquiring - self.wanted - len(self.missing))


@dataclass(slots=True)
class Draft:
    """A round while it is planned; see `Round`.

    Attributes:
        facts: not changed.
        now_s: seconds on a clock that does not go back.
        nodes: the nodes about which there may be something to do.
        due_s: times at which to look again.
    """

    facts: Facts
    now_s: float
    nodes: list[PoolNode] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    lost: dict[GpuKey, frozenset[User]] = field(default_factory=dict)
    due_s: list[float] = field(default_factory=list)

    def round(self) -> Round:
        """The finished round."""
        due_s = min((at_s for at_s in self.due_s if at_s > self.now_s), default=math.inf)
        return Round(tuple(self.steps), self.lost, _phases(self.nodes), due_s)


def concerned_nodes(facts: Facts) -> list[PoolNode]:
    """The nodes about which there may be something to do."""
    nodes = []
    strangers = frozenset(facts.strangers.values())
    for name in facts.concerned():
        node = facts.nodes.get(name)
        there = tuple(sorted(facts.reservations.get(name, {}).values(), key=lambda one: one.name))
        if node is not None and (there or not node.dedicated):
            nodes.append(PoolNode(name, node, there, strangers))
    return nodes


def other_nodes(draft: Draft) -> Iterator[PoolNode]:
    """The nodes with which the pool had nothing to do so far."""
    facts, strangers = draft.facts, frozenset(draft.facts.strangers.values())
    for name in sorted(facts.nodes.keys() - {one.name for one in draft.nodes}):
        other = PoolNode(name, facts.nodes[name], (), strangers)
        other.free = max(0, other.facts.devices - facts.devices[name])
        yield other


def _phases(nodes: Iterable[PoolNode]) -> dict[str, int]:
    phases = dict.fromkeys(("acquiring", "active", "idle", "releasing", "cordoned"), 0)
    for node in nodes:
        phases["acquiring"] += node.acquiring
        releasing = sum(one.release is not None for one in node.idle)
        phases["releasing"] += releasing
        phases["idle"] += len(node.idle) - releasing
        phases["cordoned"] += node.cordoned
        phases["active"] += sum(one.holds and one not in node.idle for one in node.there) - node.cordoned
    return phases
