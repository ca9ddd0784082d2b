"""A cluster in memory with the decisions over it, without the scheduler around them."""

from typing import Any

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import Profile, understood
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.ids import NodeName
from tests.placer.kube.objects import Object, node_of, pod_of, report_of


class MemoryCluster:
    """A cluster in memory with the decisions over it."""

    def __init__(self) -> None:
        self.reports, ledger = ReportView(), Ledger()
        self.decider = Decider(self.reports, ledger, Metrics())
        self.decider.candidates.prepare(HEADROOM)
        self.profile = Profile(ledger)
        self.cluster = self.profile.cache
        self.choice = PodScheduling(self.decider, self.profile)
        self.seqs: dict[str, int] = {}

    def node(
        self, name: str, cpu: str = "8", labels: Object | None = None, ram: str = "8Gi", **spec: object
    ) -> None:
        """Add or change a node with this much CPU and memory, the latter not its GPUs'."""
        amounts = {"cpu": cpu, "memory": ram, "pods": "20"}
        self.cluster.put_node(node_of(name, labels, allocatable=amounts, spec=spec))

    def report(self, name: str, *free_gib: int) -> None:
        """Report a node's GPUs of 24 GiB."""
        self.seqs[name] = self.seqs.get(name, 0) + 1
        self.reports.apply(report_of(name, *free_gib, seq=self.seqs[name]))

    def decide(self, wanted: PodInfo) -> Plan | Refusal:
        """Decide, and count the pod on its node."""
        decided = self.choice.decide(wanted)
        if isinstance(decided, Plan):
            self.cluster.assume(decided.booking, wanted.needs, wanted.pod)
        return decided

    async def why_not(self, wanted: PodInfo) -> str | None:
        """The text for people; None if a node has a place."""
        explained = await self.choice.explain(wanted)
        return None if explained is None else explained.text

    async def place(self, wanted: PodInfo) -> str | None:
        """Decide as the scheduler does; the node, or None for a pod that no node takes."""
        for _ in range(3):
            decided = self.decide(wanted)
            if isinstance(decided, Plan):
                return decided.booking.node
            assert not (decided.is_final and self.fitting(wanted)), "a final refusal overlooks a node"
            if await self.choice.explain(wanted) is not None:
                return None
        raise AssertionError("explain promises a node, and decide does not find it")

    def fitting(self, wanted: PodInfo) -> set[NodeName]:
        """The nodes that have a place for a pod."""
        return {node for node in self.cluster.nodes if not self.choice.obstacles(wanted, node)}

    def nodes_read(self) -> int:
        """The nodes that decisions have read."""
        return self.decider.nodes_read


def pod(name: str, memory: str | None = "4Gi", cpu: str = "1", ram: str = "1Gi", **spec: Any) -> PodInfo:  # noqa: ANN401 - passed on
    """A pod's demand; `memory` is that of a GPU, `ram` that of the node."""
    limits: Object = {"cpu": cpu, "memory": ram} | ({"plimsoll.dev/gpu-memory": memory} if memory else {})
    return understood(pod_of(name, limits, **spec), HEADROOM)


def small(nodes: int) -> MemoryCluster:
    """Nodes with 1 CPU, 8 GiB of memory and an idle GPU each. A search passes over nodes without the CPU."""
    world = MemoryCluster()
    for number in range(nodes):
        world.node(f"n{number:04}", cpu="1", labels={"zone": f"z{number % 3}"})
        world.report(f"n{number:04}", 24)
    return world
