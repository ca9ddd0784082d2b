"""GPUs with a fatal condition: no pod is placed on one, and a refusal names the condition where it matters."""

from collections.abc import Collection

import msgspec

from placer.core.booking import Booking
from placer.core.explain.running import PodFacts, running_of
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.policy_context import Request
from placer.core.reasons import Reason, without_unhealthy
from placer.core.refusal import Refusal
from placer.core.view import NodeView, node_view
from plimsoll.demand import PodDemand
from plimsoll.events import Gpu, NodeState
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid
from plimsoll.placer_api.explain import Finding
from tests.placer.core.worlds import declared, gpu, plan, request, state

FELL = "node(s) had unhealthy GPUs (XID 79)"


def health(uuid: str, health: HealthClass = HealthClass.FATAL, xid: int | None = 79) -> GpuHealth:
    """A GPU's health with one condition."""
    what = "xid" if xid is not None else "lost"
    one = Condition(what=what, health=health, since="t", text=f"XID {xid}: text", xid=xid)
    return GpuHealth(
        gpu=GpuUuid(uuid), index=0, model="NVIDIA L4", health=health, since="t", conditions=(one,)
    )


def report(*gpus: Gpu, unhealthy: Collection[GpuHealth] = ()) -> NodeState:
    """The report of node `n`."""
    return msgspec.structs.replace(state("n", *gpus), health=tuple(unhealthy))


def decided(view: NodeView, memory_gib: float = 8, **demand: object) -> Plan | Refusal:
    """The decision on a pod."""
    asked = request("p", declared("main", memory_gib))
    containers = asked.demand.containers
    given = Request(asked.pod, PodDemand(containers, **demand))  # type: ignore[arg-type]
    return plan(given, [view], Ledger(), HEADROOM)


def reasons(decision: Plan | Refusal) -> tuple[str, ...]:
    """The reasons of the one node."""
    assert isinstance(decision, Refusal), decision
    [found] = decision.reasons.values()
    return found


def test_a_pod_goes_to_the_healthy_gpu() -> None:
    """A fatal condition keeps pods away; a degraded GPU is as good as any."""
    gpus = gpu("bad"), gpu("good", idle_pct=50)
    placed = decided(node_view(report(*gpus, unhealthy=[health("bad")])))
    assert isinstance(placed, Plan)
    assert placed.booking.grants[0].gpu == "good"
    placed = decided(node_view(report(*gpus, unhealthy=[health("bad", HealthClass.DEGRADED)])))
    assert isinstance(placed, Plan)
    assert placed.booking.grants[0].gpu == "bad"


def test_the_refusal_names_the_condition() -> None:
    """A node whose only GPU is unhealthy has that reason alone, whether the GPU can be read or not."""
    for gpus in ((gpu("bad"),), ()):
        assert reasons(decided(node_view(report(*gpus, unhealthy=[health("bad")])))) == (FELL,)
    lost = node_view(report(unhealthy=[health("bad", xid=None)]))
    assert reasons(decided(lost)) == ("node(s) had unhealthy GPUs (lost)",)


def test_a_full_gpu_beside_an_unhealthy_one_has_both_reasons() -> None:
    """The pods of the full GPU could make room, so the unhealthy one does not hide that."""
    view = node_view(report(gpu("full", usable_gib=4), gpu("bad"), unhealthy=[health("bad")]))
    found = reasons(decided(view))
    assert found == (Reason.GPU_MEMORY.value, FELL)
    assert without_unhealthy(found) == (Reason.GPU_MEMORY.value,)
    assert without_unhealthy((FELL,)) == (FELL,)


def test_a_fault_that_the_pod_cannot_mind_is_not_named() -> None:
    """A pod that wants another model, or another GPU by its UUID, gets no message about the unhealthy one."""
    view = node_view(report(gpu("full", usable_gib=4), gpu("bad"), unhealthy=[health("bad")]))
    assert reasons(decided(view, gpu_models=("A100",))) == (Reason.GPU_MODEL.value,)
    assert reasons(decided(view, gpu_id=GpuUuid("full"))) == (Reason.GPU_MEMORY.value,)
    assert reasons(decided(view, gpu_id=GpuUuid("bad"))) == (FELL,)


def test_a_running_pod_is_told_of_its_gpus_health() -> None:
    """A degraded GPU may slow a pod, a fatal one likely does; a healthy one is not mentioned."""
    placed = decided(node_view(report(gpu("g"))))
    assert isinstance(placed, Plan)
    booking: Booking = placed.booking
    found = {}
    for unhealthy in (
        [],
        [health("g", HealthClass.DEGRADED)],
        [health("g")],
        [health("g", HealthClass.INFO)],
    ):
        ledger = Ledger()
        ledger.book(booking)
        running = running_of(booking, ledger, PodFacts(report(gpu("g"), unhealthy=unhealthy)))
        key = unhealthy[0].health if unhealthy else None
        found[key] = [check.finding for check in running.checks if check.by == "GPU"]
    assert found == {
        None: [],
        HealthClass.DEGRADED: [Finding.POSSIBLE],
        HealthClass.FATAL: [Finding.LIKELY],
        HealthClass.INFO: [],
    }
