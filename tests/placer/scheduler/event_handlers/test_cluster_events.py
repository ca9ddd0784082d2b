"""Every change that makes room for an unschedulable pod brings it back, wherever it comes from; without servers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from placer import decide
from placer.core.resize.change import change_of
from placer.scheduler import schedule_pod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.reflector import Modified
from plimsoll.locality import NO_LABELS
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import task
from tests.placer.kube.objects import BEST_EFFORT, LABELLED, MEMORY, SHARE, WHOLE, keeper
from tests.placer.kube.scene import Scene, scene
from tests.placer.scheduler.cache.drifts import drift_up, mended, resized


async def place(found: Scene, name: str, limits: dict[str, Any], **more: Any) -> None:  # noqa: ANN401 - passed on
    """Show a pod that has a place, and place it."""
    found.show(found.pod(name, limits, **more))
    await found.settle()
    assert found.is_placed(name)


async def drifted(found: Scene) -> None:
    """The ledger counts more for a pod than the API server states."""
    found.report("n1", 24)
    await place(found, "first", {MEMORY: "4Gi"})
    drift_up(found, "first", 20)


async def ghost(found: Scene) -> None:
    """The ledger counts a pod that the API server does not know."""
    found.report("n1", 24)
    await place(found, "first", {MEMORY: "20Gi"})


async def unclear_raise(found: Scene) -> None:
    """A raise took room, and nobody knows whether it was written."""
    found.report("n1", 24)
    await place(found, "first", {MEMORY: "4Gi"})
    resized(found, "first", 20)


async def closed_zone(found: Scene) -> None:
    """A rule of a pod on another node closes the zone of n1."""
    found.report("n1", 24)
    found.node("n2", {"zone": "a"}, unschedulable=True)
    found.show(keeper("first", "n2"))


async def full(found: Scene) -> None:
    """A pod has most of the node's GPU."""
    found.report("n1", 24)
    await place(found, "first", {MEMORY: "20Gi"})


async def small(found: Scene) -> None:
    """The node's GPU has too little memory."""
    found.report("n1", 9)


async def busy(found: Scene) -> None:
    """A pod of another scheduler has most of the node's CPU."""
    found.report("n1", 24)
    found.show(found.pod("first", {"cpu": "6"}, scheduler="default-scheduler", nodeName="n1"))


def node_as(**more: Any) -> Callable[[Scene], Awaitable[None]]:  # noqa: ANN401 - passed on
    """The node has a free GPU, and is like this."""

    async def prepare(found: Scene) -> None:
        found.node("n1", **more)
        found.report("n1", 24)

    return prepare


def end(found: Scene) -> None:
    """The pod that was placed first succeeds."""
    pod = found.pods["first"]
    found.show(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")))


def lower(found: Scene) -> None:
    """The line of the pod that was placed first is lowered."""
    booking = found.ledger.booking(PodUid("first"))
    assert booking is not None
    change = change_of(booking, Resize(pod="first", namespace="default", gpu_memory="2Gi"))
    found.cache.bookings.begin_resize(change, "0")
    found.cache.bookings.end_resize(change, written=True)


def delete(found: Scene) -> None:
    """The pod that was placed first is deleted."""
    found.delete("first")


@dataclass(frozen=True)
class Case:
    """A pod that waits for one reason, and the change that ends the wait.

    Attributes:
        reason: a part of the text of its refusal.
        prepare: makes the reason.
        change: ends it.
        limits: those of the pod.
        selector: the node labels that it asks for.
        retold: the number of other pods whose refusal names the reason that the change ends.
    """

    reason: str
    prepare: Callable[[Scene], Awaitable[None]]
    change: Callable[[Scene], object]
    limits: dict[str, str] = field(default_factory=lambda: {MEMORY: "10Gi"})
    selector: dict[str, str] = field(default_factory=dict)
    retold: int = 0


TAINT = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
NO_MEMORY, NO_CPU, KEPT_OUT = "gpu-memory on one GPU", "Insufficient cpu", "anti-affinity rules"
CASES = {
    "memory freed": Case(NO_MEMORY, small, lambda found: found.report("n1", 12)),
    "GPU appeared": Case(NO_MEMORY, small, lambda found: found.report("n1", 9, 12)),
    "pod deleted": Case(NO_MEMORY, full, delete),
    "pod ended": Case(NO_MEMORY, full, end),
    "pod resized": Case(NO_MEMORY, full, lower),
    "whole GPU emptied": Case("a whole one was asked for", full, delete, {WHOLE: "1"}),
    "CPU freed": Case(NO_CPU, busy, delete, {"cpu": "4"}),
    "CPU freed for a GPU": Case(NO_CPU, busy, delete, {"cpu": "4", MEMORY: "10Gi"}),
    "allocatable grew": Case(NO_CPU, node_as(), lambda found: found.node("n1", cpu="16"), {"cpu": "10"}),
    "label added": Case(
        "node affinity/selector",
        node_as(),
        lambda found: found.node("n1", {"disk": "fast"}),
        selector={"disk": "fast"},
    ),
    "taint removed": Case("untolerated taint", node_as(**TAINT), lambda found: found.node("n1"), retold=1),
    "node ready": Case("were not ready", node_as(ready=False), lambda found: found.node("n1"), retold=1),
    "drift repaired": Case(NO_MEMORY, drifted, mended("first")),
    "drift of a pod that is gone repaired": Case(NO_MEMORY, ghost, mended("first", exists=False)),
    "unclear raise not written": Case(NO_MEMORY, unclear_raise, lambda found: found.show_again("first")),
    "node of a rule relabelled": Case(
        KEPT_OUT, closed_zone, lambda found: found.node("n2", {"zone": "b"}, unschedulable=True)
    ),
    "node of a rule deleted": Case(KEPT_OUT, closed_zone, lambda found: found.remove_node("n2")),
    "node of a rule unreadable": Case(
        KEPT_OUT, closed_zone, lambda found: found.node("n2", {"zone": "a"}, cpu="many")
    ),
    "pod of a rule deleted": Case(KEPT_OUT, closed_zone, delete),
}


@pytest.mark.parametrize("name", CASES)
async def test_change_places_the_pod_that_it_helps_and_tries_no_other(name: str) -> None:
    """The change ends the wait of one pod. Pods that wait for something else are not tried again."""
    case = CASES[name]
    async with scene() as found:
        found.node("n1", {"zone": "a"})
        await case.prepare(found)
        found.show(found.pod("too-large", {MEMORY: "25Gi"}))
        found.show(found.pod("elsewhere", {MEMORY: "1Gi"}, nodeSelector={"nowhere": "x"}))
        found.show(found.pod("p", case.limits, LABELLED, nodeSelector=case.selector))
        await found.settle()
        assert all(found.is_unschedulable(one) for one in ("too-large", "elsewhere", "p"))
        assert case.reason in found.refusal("p")
        found.tries = 0
        case.change(found)
        await found.settle_after_backoff()
        assert found.is_placed("p")
        assert found.tries <= 1 + case.retold


async def test_reports_and_heartbeats_without_more_room_bring_nothing_back() -> None:
    """Reports with the same or less room, and a kubelet's heartbeats, lead to no probe and no decision."""
    async with scene() as found:
        found.node("n1")
        found.report("n1", 10)
        for gib in (20, 11):
            found.show(found.pod(f"p{gib}", {MEMORY: f"{gib}Gi"}))
        await found.settle()
        found.tries = 0
        for free_gib in (10, 9, 8, 9, 10):
            found.report("n1", free_gib)
            node = found.nodes["n1"]
            metadata = msgspec.structs.replace(node.metadata, annotations={"beat": str(free_gib)})
            beat = Modified(msgspec.structs.replace(node, metadata=metadata), node)
            found.parts.watches.node_events.take(beat)
            await found.settle_after_backoff()
        assert (found.tries, found.probes) == (0, 0)


LABELLED_GPU = {"plimsoll.dev/affinity": "x"}


async def test_a_label_that_no_gpu_has_any_more_brings_its_pods_back_for_every_node() -> None:
    """A pod whose label's GPU has no room goes to another node once the last pod with the label has left."""
    async with scene() as found:
        found.node("n1")
        found.report("n1", 12)
        await place(found, "first", {MEMORY: "2Gi"}, annotations=LABELLED_GPU)
        await place(found, "filler", {MEMORY: "9Gi"})
        found.node("n2")
        found.report("n2", 24)
        found.show(found.pod("p", {MEMORY: "10Gi"}, annotations=LABELLED_GPU))
        await found.settle()
        assert "1 node(s) didn't have the GPU of the pod's affinity label" in found.refusal("p")
        found.delete("first")
        await found.settle_after_backoff()
        assert found.pods["p"].spec.nodeName == "n2"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("anti-affinity", "1 node(s) had GPUs with pods of the same anti-affinity label"),
        ("exclusion", "1 node(s) had GPUs that pods with an exclusion label keep for themselves"),
    ],
)
async def test_a_label_that_leaves_a_gpu_brings_back_the_pods_that_it_kept_out(name: str, text: str) -> None:
    """A pod of the same size takes the place of the labelled one in the same moment, and the waiting pod follows."""
    async with scene() as found:
        found.node("n1")
        found.report("n1", 24)
        await place(found, "first", {MEMORY: "2Gi"}, annotations={f"plimsoll.dev/{name}": "x"})
        waits = {"plimsoll.dev/anti-affinity": "x"} if name == "anti-affinity" else {}
        found.show(found.pod("p", {MEMORY: "2Gi"}, annotations=waits))
        await found.settle()
        assert text in found.refusal("p")
        booking = found.ledger.booking(PodUid("first"))
        assert booking is not None
        found.delete("first")
        found.ledger.restore(replace(booking, pod=PodUid("other"), locality=NO_LABELS))
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_first_node_places_pods_that_waited_without_any() -> None:
    """Where there is no node, a refusal names no cause, and the first node lifts it all the same."""
    async with scene() as found:
        found.show(found.pod("p", {"cpu": "1"}))
        await found.settle()
        assert found.is_unschedulable("p")
        found.node("n1")
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_node_that_can_be_read_again_is_a_new_node() -> None:
    """A node whose amounts could not be read takes the pods that it kept out for any reason."""
    async with scene() as found:
        found.node("n1", {"disk": "fast"}, cpu="many")
        found.node("n2")
        found.show(found.pod("p", {"cpu": "1"}, nodeSelector={"disk": "fast"}))
        await found.settle()
        assert found.is_unschedulable("p")
        found.node("n1", {"disk": "fast"}, cpu="8")
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_first_reports_of_nodes_bring_hopeless_pods_back_once() -> None:
    """Nodes that report for the first time, one after another, do not bring pods back that fit on none of them."""
    async with scene() as found:
        for index in range(8):
            found.node(f"n{index}")
        for index in range(10):
            found.show(found.pod(f"large{index}", {MEMORY: f"{30 + index}Gi"}))
            found.show(found.pod(f"cpu{index}", {"cpu": str(20 + index)}))
            found.show(found.pod(f"fast{index}", {MEMORY: f"{1 + index}Gi"}, nodeSelector={"disk": "fast"}))
        await found.settle()
        assert found.refusal("large0") == "0/8 nodes are available: 8 node(s) had no GPU report."
        found.tries = 0
        for index in range(8):
            found.report(f"n{index}", 24)
            await found.settle_after_backoff()
        assert found.tries == 10  # of the large pods, whose reason is another one since the first report
        assert "Insufficient plimsoll.dev/gpu-memory on one GPU" in found.refusal("large0")


async def test_a_node_that_advertises_says_how_much_is_free() -> None:
    """The GPUs of a node give the reason where its sum is short too, and the pod comes back once a pod there ends."""
    async with scene() as found:
        found.node("n1", advertised={MEMORY: "24Gi"})
        found.report("n1", 24)
        found.show(found.pod("holds", {MEMORY: "20Gi"}))
        await found.settle()
        assert found.is_placed("holds")
        found.show(found.pod("p", {MEMORY: "10Gi"}))
        await found.settle()
        text = "0/1 nodes are available: 1 Insufficient plimsoll.dev/gpu-memory on one GPU (most free: 4Gi on n1)."
        assert found.refusal("p") == text
        found.delete("holds")
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_a_sum_alone_is_the_reason_where_a_gpu_has_room() -> None:
    """A node that advertises less than its GPUs have is refused for its sum, as the kubelet would refuse it."""
    async with scene() as found:
        found.node("n1", advertised={MEMORY: "8Gi"})
        found.report("n1", 24)
        found.show(found.pod("p", {MEMORY: "10Gi"}))
        await found.settle()
        assert found.refusal("p") == "0/1 nodes are available: 1 Insufficient plimsoll.dev/gpu-memory."


async def test_end_of_a_silence_probes_the_node_alone() -> None:
    """A node that reports again takes a pod that fits, and the pods that do not fit there are not tried."""
    async with scene() as found:
        for name in ("n1", "n2"):
            found.node(name)
            found.report(name, 10)
        found.reports.set_silent(NodeName("n1"))
        found.show(found.pod("small", {MEMORY: "10Gi", SHARE: "100"}))
        found.show(found.pod("p", {MEMORY: "10Gi", SHARE: "100"}))
        found.show(found.pod("large", {MEMORY: "20Gi"}))
        await found.settle()
        assert (found.is_placed("small"), found.is_unschedulable("p"), found.is_unschedulable("large")) == (
            True,
            True,
            True,
        )
        found.tries = found.probes = 0
        found.report("n1", 10)
        await found.settle_after_backoff()
        assert found.is_placed("p")
        assert (found.tries, found.probes) == (1, 1)


async def test_pod_that_needs_less_than_was_assumed_brings_back_those_of_its_owner() -> None:
    """Once the first best-effort pod of an owner is measured, its sibling needs no more than that."""
    async with scene() as found:
        found.node("n1")
        found.report("n1", 1)
        await place(found, "first", {WHOLE: "1"}, annotations=BEST_EFFORT, owner="job")
        found.show(found.pod("p", {WHOLE: "1"}, annotations=BEST_EFFORT, owner="job"))
        await found.settle()
        assert found.is_unschedulable("p")
        found.report("n1", 1, tasks=(task("first", "GPU-n1-0", 300 * MIB),))
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_owner_that_is_learned_late_brings_its_pods_back() -> None:
    """A measurement counts from the moment when its pod is booked, and less is expected of its siblings then."""
    async with scene() as found:
        found.node("n1")
        measured = task("first", "GPU-n1-0", 300 * MIB)
        found.report("n1", 24, tasks=(measured,))
        await place(found, "first", {WHOLE: "1"}, annotations=BEST_EFFORT, owner="job")
        found.node("n2", {"disk": "fast"})
        found.report("n2", 24)
        await place(found, "large", {MEMORY: "23.5Gi"}, nodeSelector={"disk": "fast"})
        sibling = found.pod(
            "p", {WHOLE: "1"}, annotations=BEST_EFFORT, owner="job", nodeSelector={"disk": "fast"}
        )
        found.show(sibling)
        await found.settle()
        assert found.is_unschedulable("p")
        found.report("n1", 24, tasks=(measured,))
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_owner_whose_peak_is_forgotten_brings_its_pods_back() -> None:
    """Once a large peak is forgotten, the owner's pods are expected to need what is assumed of all."""
    async with scene() as found:
        found.decider.learned._owners_at_most = 1
        found.node("n1")
        found.report("n1", 24)
        for owner in ("job", "other"):
            await place(found, owner, {WHOLE: "1"}, annotations=BEST_EFFORT, owner=owner)
        found.report("n1", 24, tasks=(task("job", "GPU-n1-0", GIB, peak_bytes=20 * GIB),))
        found.node("n2", {"disk": "fast"})
        found.report("n2", 10)
        sibling = found.pod(
            "p", {WHOLE: "1"}, annotations=BEST_EFFORT, owner="job", nodeSelector={"disk": "fast"}
        )
        found.show(sibling)
        await found.settle()
        assert found.is_unschedulable("p")
        found.report("n1", 24, tasks=(task("other", "GPU-n1-0", GIB),))
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_share_that_lets_one_container_make_room_for_another_brings_the_pod_back() -> None:
    """The containers of a pod compete, so the refusal of one may end by another rise than that of its reason."""
    async with scene() as found:
        found.node("n1")
        found.report("n1", 12, 12, 8)
        uses = found.pod(
            "user", {MEMORY: "1Gi", SHARE: "90"}, annotations={"plimsoll.dev/gpu-id": "GPU-n1-2"}
        )
        found.show(uses)
        await found.settle()
        assert found.is_placed("user")
        pair = {WHOLE: "2", MEMORY: "5Gi", SHARE: "100"}
        found.show(found.pod("p", pair, more_limits=({MEMORY: "10Gi"},)))
        await found.settle()
        assert found.is_unschedulable("p")
        lower = Resize(pod="user", namespace="default", gpu_share="10")
        booking = found.ledger.booking(PodUid("user"))
        assert booking is not None
        change = change_of(booking, lower)
        found.cache.bookings.begin_resize(change, "0")
        found.cache.bookings.end_resize(change, written=True)
        await found.settle_after_backoff()
        assert found.is_placed("p")


async def test_pod_that_may_have_a_place_does_not_wait_for_the_reasons_of_hopeless_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod that better nodes refuse is placed before the refusals of twenty pods for which no GPU has the room."""
    monkeypatch.setattr(decide, "MOST_UNFIT", 2)
    monkeypatch.setattr(schedule_pod, "FEW_NODES", 2)
    async with scene() as found:
        found.node("n0")
        found.report("n0", 10)
        for index in range(1, 8):
            found.node(f"n{index}", taints=[{"key": "k", "effect": "NoSchedule"}])
            found.report(f"n{index}", 24)
        ends: list[str] = []
        found.on_end(ends.append)
        for index in range(20):
            found.show(found.pod(f"large{index}", {MEMORY: f"{30 + index}Gi"}))
        found.show(found.pod("p", {MEMORY: "8Gi"}))
        await found.settle()
        assert len(ends) == 21
        assert ends.index("p") <= 1


async def test_forgotten_report_leaves_no_sizes_of_gpus_behind() -> None:
    """The sizes of a node's GPUs are kept for foreign pods as long as its report is."""
    async with scene() as found:
        for index in range(3):
            found.report(f"n{index}", 24)
        for index in range(3):
            found.reports.forget(NodeName(f"n{index}"))
        assert not found.cache.bookings._usable_bytes
