"""The ways to choose a node for a pod that declares no memory. Each placer gets events of starts and loads only.

* `slots`: the node with the most free slots, as Kubernetes does (Table IV). Ties are broken by seed.
* `kang`: the paper's Algorithm 1: the list of nodes by measured memory, which events alone change (Table V). All
  nodes are as busy as each other here, so idle time does not enter.
* `headroom` and `plimsoll`: the placer's own policies, planner, ledger and learned peaks, as a decision calls them.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from placer.core.candidates import Candidates
from placer.core.learned import Learned
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import Policy
from placer.core.policies.headroom import HEADROOM
from placer.core.policies.plimsoll import PLIMSOLL
from placer.core.policy_context import Request
from placer.core.view import NodeView, node_view
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.events import Gpu, NodeState, Phase, Report, Task
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import MIB
from simulator.kang.world import USABLE_MIB, RunningTask, TaskKind, World

SLOTS: Final = 30
"""The paper's number of extended resources on each node."""


class Placer(Protocol):
    """Chooses nodes."""

    def place(self, pod: PodUid, kind: TaskKind) -> int | None:
        """The node for a pod; None if it has to wait."""

    def take_event(self, now_s: float, task: RunningTask, phase: Phase) -> None:
        """Take the event that a placed task started or has loaded, with its node's memory at that moment."""


class Slots:
    """See above."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._free = _free_slots(world)
        self._chance = chance

    def place(self, pod: PodUid, kind: TaskKind) -> int | None:  # noqa: ARG002 - one interface
        """The node with the most free slots."""
        most = max(self._free)
        if most == 0:
            return None
        node = self._chance.choice([node for node, free in enumerate(self._free) if free == most])
        self._free[node] -= 1
        return node

    def take_event(self, now_s: float, task: RunningTask, phase: Phase) -> None:
        """Nothing: slots are counted when pods are placed."""


class KangList:
    """See above."""

    def __init__(self, world: World, chance: random.Random) -> None:  # noqa: ARG002 - one interface
        self._world = world
        self._free = _free_slots(world)
        self._reported_mib = list(world.used_mib)

    def place(self, pod: PodUid, kind: TaskKind) -> int | None:  # noqa: ARG002 - one interface
        """The first node of the list that has a free slot."""
        nodes = [node for node, free in enumerate(self._free) if free > 0]
        if not nodes:
            return None
        node = min(nodes, key=lambda node: (self._reported_mib[node], node))
        self._free[node] -= 1
        return node

    def take_event(self, now_s: float, task: RunningTask, phase: Phase) -> None:  # noqa: ARG002 - one interface
        """The node's memory in the list is that of now."""
        self._reported_mib[task.node] = self._world.used_mib[task.node]


class ByPolicy:
    """See above. The pods of one kind are replicas of one owner, and resident tasks are nobody's."""

    def __init__(self, policy: Policy, world: World) -> None:
        self._policy = policy
        self._world = world
        self._ledger = Ledger()
        self._learned = Learned(self._ledger)
        self._views: dict[NodeName, NodeView] = {}
        self._phases: dict[PodUid, Phase] = {}
        self._seq = 0
        self._candidates = Candidates(self._ledger, self._views.get)
        for node in range(world.nodes):
            self._report(node)

    def place(self, pod: PodUid, kind: TaskKind) -> int | None:
        """The best node that has the memory which the pod is expected to need."""
        request = Request(pod, PodDemand((_DEMAND,)), kind.name)
        self._ledger.workload.see(pod, request.demand, request.cpu_milli)
        best: Plan | None = None
        for candidate in self._candidates.best_first(request, self._policy):
            if best is not None and candidate.score_bound <= best.score:
                break
            planned = plan_on(request, candidate.node, self._ledger, self._policy, candidate.rooms)
            if isinstance(planned, Plan) and (best is None or planned.score > best.score):
                best = planned
        if best is None:
            return None
        self._ledger.book(best.booking)
        return _number(best.booking.node)

    def take_event(self, now_s: float, task: RunningTask, phase: Phase) -> None:
        """Take the node's report in, and learn from it."""
        assert task.pod is not None, "a resident task has no events"
        self._phases[task.pod] = phase
        state = self._report(task.node)
        own = next(one for one in state.gpus[0].tasks if one.pod == task.pod)
        self._learned.observe(state, now_s)
        self._learned.take(Report(state=state, task=own), now_s)

    def _report(self, node: int) -> NodeState:
        self._seq += 1
        tasks = [one for one in self._world.on_node[node] if one.pod in self._phases]
        state = _state(node, self._seq, self._world.used_mib[node], tasks, self._phases)
        self._views[state.node] = node_view(state)
        self._candidates.note_report(state.node)
        return state


Make = Callable[[World, random.Random], Placer]

PLACERS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "slots": Slots,
        "kang": KangList,
        "headroom": lambda world, _: ByPolicy(HEADROOM, world),
        "plimsoll": lambda world, _: ByPolicy(PLIMSOLL, world),
    }
)

_DEMAND: Final = ContainerDemand(ContainerName("main"), 1, None, 0, 100, whole=False)


def _free_slots(world: World) -> list[int]:
    free = [SLOTS] * world.nodes
    for task in world.tasks:
        free[task.node] -= 1
    return free


def _state(
    node: int, seq: int, used_mib: int, tasks: Sequence[RunningTask], phases: Mapping[PodUid, Phase]
) -> NodeState:
    uuid = GpuUuid(f"GPU-{node}")
    found = tuple(
        Task(
            pid=number + 1,
            start_ticks=1,
            gpu=uuid,
            phase=phases[task.pod],
            used_bytes=task.held_mib * MIB,
            peak_bytes=task.held_mib * MIB,
            pod=task.pod,
        )
        for number, task in enumerate(tasks)
        if task.pod is not None
    )
    gpu = Gpu(
        uuid=uuid,
        index=0,
        model="RTX 4090",
        usable_bytes=USABLE_MIB * MIB,
        used_bytes=used_mib * MIB,
        idle_pct=50.0,
        tasks=found,
    )
    return NodeState(node=NodeName(f"n{node}"), epoch=1, seq=seq, time="2024-01-01T00:00:00Z", gpus=(gpu,))


def _number(node: NodeName) -> int:
    return int(node.removeprefix("n"))
