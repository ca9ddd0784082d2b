"""Constraints on other pods cost decisions a bounded amount of work, wake none in vain, and leave nothing behind."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from placer.core.plan import WISHES, Plan
from placer.core.refusal import Refusal
from placer.decide import MOST_PLANS
from placer.scheduler import schedule_pod
from placer.scheduler.plugins.pod_counts import store
from placer.scheduler.pods.pod_info import PodInfo
from plimsoll.ids import NodeName, PodUid
from tests.placer.kube.memory_cluster import MemoryCluster, pod
from tests.placer.kube.objects import node_of, pod_of
from tests.placer.scheduler.plugins.topology.replicas import APP, replica, resident, zones
from tests.placer.scheduler.plugins.topology.rules import (
    REQUIRED,
    apart,
    beside,
    by_app,
    evenly,
    far,
    near,
    spread,
)

REQUIRED_SPEC: dict[str, Any] = {
    **spread("x", "zone"),
    "affinity": {
        **beside("x", "zone")["affinity"],
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": by_app("none")}]},
    },
}


def filled(nodes: int, pods_per_node: int) -> MemoryCluster:
    """Nodes with this many pods, of which every second one is meant by `REQUIRED_SPEC`."""
    made = MemoryCluster()
    for number in range(nodes):
        name = f"n{number:03}"
        room = {"cpu": "500", "memory": "500Gi", "pods": "500"}
        made.cluster.put_node(node_of(name, {"zone": f"z{number % 2}", "host": name}, allocatable=room))
        for place in range(pods_per_node):
            labels = {"app": "x" if place % 2 else "y", "place": str(place)}
            there = pod_of(f"p{number}-{place}", {}, labels, nodeName=name, **apart("nothing"))
            made.cluster.confirm(there)
    return made


def calls(do: Callable[[], object]) -> int:
    """The number of Python calls that something makes."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def required(name: str) -> PodInfo:
    """A pod with the constraints of `REQUIRED_SPEC`."""
    return replica(name, None, REQUIRED_SPEC)


def place(made: MemoryCluster, wanted: PodInfo) -> Plan:
    """Decide, and count the pod; its counts are complete."""
    made.profile.topology.counts.prepare(wanted.constraints, 100_000)
    made.profile.topology.counts.prepare(wanted.preferred, 100_000)
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    return plan


def test_decision_makes_no_more_calls_with_many_pods_than_with_few() -> None:
    """Once the counts are known, a decision and the counting of its pod cost the same with fifty times the pods."""
    found = []
    for pods in (2, 100):
        made = filled(10, pods)
        place(made, required("first"))
        found.append(calls(lambda made=made: place(made, required("second"))))  # type: ignore[misc]
    few, many = found
    assert many < few + 20  # calls of destructors may come at any time


def test_known_constraints_are_not_read_again() -> None:
    """New pods with known constraints read no pods and nodes. Each pod that comes or goes is counted in one step."""
    made = filled(10, 20)
    place(made, required("first"))
    before = made.profile.topology.counts.work
    for number in range(5):
        made.choice.decide(required("later"))
        made.decider.ledger.forget(PodUid("later"))
        made.cluster.confirm(pod_of(f"q{number}", {}, {"app": "x"}, nodeName="n000"))
        made.cluster.forget(PodUid(f"q{number}"))
    assert made.profile.topology.counts.work - before == 10


@pytest.mark.parametrize("spec", [REQUIRED_SPEC, near("x")])
async def test_constraints_that_are_new_are_read_in_slices(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    """A decision reads a bounded part for new constraints. The explanation reads the rest; then a node is found."""
    monkeypatch.setattr(schedule_pod, "READ_AT_ONCE", 20)
    made = filled(50, 4)
    wanted = replica("p", None, spec)
    refused = made.decide(wanted)
    assert isinstance(refused, Refusal)
    assert not refused.is_final
    assert made.profile.topology.counts.work < 500
    assert await made.choice.explain(wanted) is None
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    assert plan.sub_scores.get(WISHES, {}).get("preferred-pod-affinity", 1) == 1


async def test_a_pod_waits_once_for_its_preferences_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the counts are forgotten again before the pod is decided, it is placed without its preferences."""
    monkeypatch.setattr(schedule_pod, "READ_AT_ONCE", 10)
    monkeypatch.setattr(store, "MOST_CONSTRAINTS", 1)
    made = zones(a=30)
    wanted = replica("p", None, near("cache"))
    assert isinstance(made.decide(wanted), Refusal)
    assert await made.choice.explain(wanted) is None
    made.choice._prepare_wishes(replica("other", None, near("queue", "host")))
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    assert WISHES not in plan.sub_scores


def test_promising_nodes_count_for_the_constraint_and_change_with_each_turn() -> None:
    """Nodes that the pod's selector leaves out are not promising, and turns are as long at the end as before."""
    made = zones(a=60)
    fast = [f"a{number:03}" for number in range(20, 60)]
    for name in fast:
        made.node(name, labels={"zone": "a", "host": name, "disk": "fast"})
    wanted = replica("p", None, evenly() | {"nodeSelector": {"disk": "fast"}})
    made.choice._prepare_wishes(wanted)
    turns = [made.profile.topology.promising(wanted.preferred, 10) for _ in range(20)]
    assert {len(turn) for turn in turns} == {10}
    assert {node for turn in turns for node in turn} == set(fast)


async def test_no_node_is_read_twice() -> None:
    """Promising nodes are read before the others and not again, and only if the best node lacks something."""
    for memory in (None, "1Gi"):
        made = zones(a=5)
        made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
        made.report("b000", 20)
        resident(made, "cache", "b000", "cache")
        await made.place(replica("p", memory, near("cache")))
        assert made.decider.nodes_read <= 6
        before = made.decider.nodes_read
        await made.place(replica("q", memory, far("cache")))
        assert made.decider.nodes_read - before <= 2


async def test_a_pod_that_names_its_nodes_reads_no_other() -> None:
    """Nodes that suit the preferences, and are not among those that the pod names, are not read."""
    made = zones(a=1, b=20)
    resident(made, "cache", "b000", "cache")
    named = near("cache") | {"nodeSelector": {"host": "a000"}}
    assert await made.place(replica("p", None, named)) == "a000"
    assert made.decider.nodes_read == 1


async def test_a_decision_reads_a_bounded_number_of_nodes() -> None:
    """A preference that no free node meets costs the comparison of this many nodes, however many there are."""
    made = zones(a=4 * MOST_PLANS)
    made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
    resident(made, "cache", "b000", "cache")
    await made.place(replica("p", None, near("cache")))
    assert made.decider.nodes_read <= MOST_PLANS + 1


async def test_pods_without_preferences_read_one_node_beside_pods_with_them() -> None:
    """Preferences of others cost a plain pod nothing, and a replica whose best node meets its own reads no other."""
    made = zones(a=10, b=10)
    for number in range(6):
        await made.place(replica(f"p{number}", None, evenly()))
    before = made.decider.nodes_read
    await made.place(pod("plain", None))
    assert made.decider.nodes_read == before + 1


async def test_changes_that_preferences_count_wake_no_pod() -> None:
    """Their counts open no node, and leave the verdicts on nodes as they are."""
    made = zones(cpu="1", a=3)
    opened: list[object] = []
    made.profile.topology.on_change(opened.append)
    waiting = pod("waits", None, cpu="2", labels=APP, **(evenly() | far()))
    assert await made.place(waiting) is None
    read = made.decider.nodes_read
    state = made.choice._key(waiting)
    resident(made, "more", "a001")
    made.cluster.forget(PodUid("more"))
    assert made.choice._key(waiting) == state
    assert await made.place(waiting) is None
    assert made.decider.nodes_read - read <= 1
    assert opened == []


def test_forgotten_constraints_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of distinct constraints, required and preferred ones with the same counts, leave a bounded number."""
    monkeypatch.setattr(store, "MOST_CONSTRAINTS", 8)
    made = zones(a=2)
    counts = made.profile.topology.counts
    for number in range(60):
        app = f"a{number // 2}"
        wanted = replica(f"p{number}", None, evenly(app) | (far(app) if number % 2 else apart(app)))
        assert made.profile.topology.problem(wanted.pod, wanted.constraints, NodeName("a000")) is None
        assert isinstance(made.choice.decide(wanted), Plan)
    assert len(counts._in_use) == 8
    assert len(counts._domains) <= 2
    assert len(counts._matching) <= 16
    assert sum(map(len, counts._by_label.values())) == len(counts._matching)
    opened: list[object] = []
    made.profile.topology.on_change(opened.append)
    keys = {key for key, known in counts._in_use.items() if known.constraints.is_required}
    for known in tuple(counts._in_use.values()):
        counts._forget(known)
    counts._announce()
    assert opened == [keys], "only required ones are announced: no pod waits for a preference"
    assert not counts._matching
    assert not counts._domains


def test_preferences_keep_counts_that_forgotten_constraints_shared() -> None:
    """The counts of a required term that is forgotten go on for a preferred one that reads them too."""
    made = zones(a=2)
    rule, preference = replica("rule", None, apart()), replica("preference", None, far())
    for wanted in (rule, preference):
        assert isinstance(made.choice.decide(wanted), Plan)
    counts = made.profile.topology.counts
    counts._forget(counts._in_use[rule.constraints.key])
    resident(made, "new", "a000")
    for number in range(2):
        resident(made, f"other{number}", "a001", "other")
    made.decider.ledger.forget(PodUid("preference"))
    assert place(made, preference).booking.node == "a001"
