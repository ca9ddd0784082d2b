"""The cluster of a replay: nodes as the placer sees them, and the places of pods."""

from dataclasses import dataclass, field
from functools import cache
from typing import Final

from placer.core.booking import Booking
from placer.core.candidates import Candidates
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies.policy import Policy
from placer.core.policy_context import Request
from placer.core.target_workload import TargetWorkload
from placer.core.topology.hardware import linked
from placer.core.topology.links import GpuLink, LinkMatrix
from placer.core.view import GpuView, NodeView
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from simulator.trace.lists import ListedNode

UNLIMITED_BYTES: Final = 1024 * 1024 * GIB
"""The memory of each GPU, which binds no pod: a pod declares a MiB."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod of the cluster, or one that is to be placed: its demand, and the memory of its node that it takes."""

    request: Request
    memory_mib: int


@dataclass(slots=True)
class TraceCluster:
    """The nodes of a trace as the placer sees them, and the decisions on its pods.

    Attributes:
        ledger: the bookings, the spare CPU of nodes, and the target workload.
        free_mib: the free memory of each node.
        residents: the pods that have a place.
    """

    ledger: Ledger
    candidates: Candidates
    free_mib: dict[NodeName, int] = field(default_factory=dict)
    residents: dict[PodUid, Resident] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: tuple[ListedNode, ...], workload: TargetWorkload) -> "TraceCluster":
        """An empty cluster."""
        ledger = Ledger(workload)
        views = {view.node: view for view in map(_view, nodes)}
        made = cls(ledger, Candidates(ledger, views.get))
        for node in nodes:
            name = NodeName(node.name)
            made.free_mib[name] = node.memory_mib
            ledger.spare_cpu.note(name, node.cpu_milli)
            made.candidates.note_report(name)
        made.candidates.refresh()
        return made

    def place(self, request: Request, memory_mib: int, policy: Policy) -> Plan | None:
        """Decide on a pod and book its place; None if it fits nowhere."""
        best: Plan | None = None
        for candidate in self.candidates.best_first(request, policy):
            if best is not None and candidate.score_bound <= best.score:
                break
            node = candidate.node.node
            if (self.ledger.spare_cpu.on(node) or 0) < request.cpu_milli or self.free_mib[node] < memory_mib:
                continue
            tried = plan_on(request, candidate.node, self.ledger, policy, candidate.rooms)
            if isinstance(tried, Plan) and (best is None or tried.score > best.score):
                best = tried
        if best is not None:
            self.put(Resident(request, memory_mib), best.booking)
        return best

    def put(self, resident: Resident, booking: Booking) -> None:
        """Book a place."""
        self.ledger.book(booking)
        self.residents[booking.pod] = resident
        self._take(booking.node, resident, 1)

    def remove(self, pod: PodUid) -> Resident:
        """Free the place of a pod."""
        booking, resident = self.ledger.forget(pod), self.residents.pop(pod)
        assert booking is not None, "a resident has a place"
        self._take(booking.node, resident, -1)
        return resident

    def _take(self, node: NodeName, resident: Resident, sign: int) -> None:
        spare_milli = (self.ledger.spare_cpu.on(node) or 0) - sign * resident.request.cpu_milli
        self.ledger.spare_cpu.note(node, spare_milli)
        self.free_mib[node] -= sign * resident.memory_mib


def _view(node: ListedNode) -> NodeView:
    found = tuple(
        GpuView(GpuUuid(f"{node.name}/{number}"), node.model, UNLIMITED_BYTES, 0, 100.0, 1.0, {})
        for number in range(node.gpus)
    )
    return NodeView(
        NodeName(node.name), (1, 1), found, hardware=linked([gpu.uuid for gpu in found], _links(node.gpus))
    )


@cache
def _links(gpus: int) -> LinkMatrix:
    """The links of a node, of which a trace says nothing: an assumption, by which only `topology` chooses.

    Two GPUs share a PCIe switch, and four a socket.
    """

    def link(one: int, other: int) -> GpuLink:
        return GpuLink("PIX" if one // 2 == other // 2 else "NODE" if one // 4 == other // 4 else "SYS")

    return tuple(tuple(link(one, other) for other in range(gpus)) for one in range(gpus))
