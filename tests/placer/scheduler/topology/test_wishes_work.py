"""Wishes about other pods cost a decision a bounded amount of work, wake no pod, and leave nothing behind."""

import pytest

from placer.core.plan import WISHES, Plan
from placer.core.refusal import Refusal
from placer.decide import MOST_PLANS
from placer.scheduler import choice
from placer.scheduler.topology import index
from placer.scheduler.topology.check import TalliedRules
from plimsoll.ids import PodUid
from tests.placer.kube.memory_cluster import pod
from tests.placer.scheduler.topology.replicas import APP, replica, resident, zones
from tests.placer.scheduler.topology.rules import apart, evenly, far, near


def test_promising_nodes_count_for_the_wish_and_change_with_each_turn() -> None:
    """Nodes that the pod's selector leaves out are not promising, and turns are as long at the end as before."""
    made = zones(a=60)
    fast = [f"a{number:03}" for number in range(20, 60)]
    for name in fast:
        made.node(name, labels={"zone": "a", "host": name, "disk": "fast"})
    wanted = replica("p", None, evenly() | {"nodeSelector": {"disk": "fast"}})
    made.choice._prepare_wishes(wanted)
    gauge = made.profile.pod_rules.gauge(wanted.domain_wishes)
    assert gauge is not None
    turns = [gauge.promising(made.cluster.labels.having, 10) for _ in range(20)]
    assert {len(turn) for turn in turns} == {10}
    assert {node for turn in turns for node in turn} == set(fast)


async def test_no_node_is_read_twice() -> None:
    """Promising nodes are read before the others and not again, and only if the best node leaves a wish open."""
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
    """Nodes that meet the wishes, and are not among those that the pod names, are not read."""
    made = zones(a=1, b=20)
    resident(made, "cache", "b000", "cache")
    named = near("cache") | {"nodeSelector": {"host": "a000"}}
    assert await made.place(replica("p", None, named)) == "a000"
    assert made.decider.nodes_read == 1


async def test_a_decision_reads_a_bounded_number_of_nodes() -> None:
    """A wish that no free node meets costs the comparison of this many nodes, however many there are."""
    made = zones(a=4 * MOST_PLANS)
    made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
    resident(made, "cache", "b000", "cache")
    await made.place(replica("p", None, near("cache")))
    assert made.decider.nodes_read <= MOST_PLANS + 1


async def test_pods_without_such_wishes_read_one_node_beside_pods_with_them() -> None:
    """Wishes of others cost a plain pod nothing, and a replica whose best node meets its wishes reads no other."""
    made = zones(a=10, b=10)
    for number in range(6):
        await made.place(replica(f"p{number}", None, evenly()))
    before = made.decider.nodes_read
    await made.place(pod("plain", None))
    assert made.decider.nodes_read == before + 1


async def test_wishes_that_are_new_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision reads a bounded part of what new wishes mean; the rest is read before the pod is decided."""
    monkeypatch.setattr(choice, "READ_AT_ONCE", 10)
    made = zones(a=30, b=30)
    resident(made, "cache", "a003", "cache")
    wanted = replica("p", None, near("cache"))
    first = made.decide(wanted)
    assert isinstance(first, Refusal)
    assert not first.is_final
    assert await made.choice.explain(wanted) is None
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    assert plan.sub_scores[WISHES]["preferred-pod-affinity"] == 1
    assert plan.booking.node.startswith("a")


async def test_a_pod_waits_once_for_its_wishes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the counts are forgotten again before the pod is decided, it is placed without its wishes."""
    monkeypatch.setattr(choice, "READ_AT_ONCE", 10)
    monkeypatch.setattr(index, "RULES_KEPT", 1)
    made = zones(a=30)
    wanted = replica("p", None, near("cache"))
    assert isinstance(made.decide(wanted), Refusal)
    assert await made.choice.explain(wanted) is None
    made.choice._prepare_wishes(replica("other", None, near("queue", "host")))
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    assert WISHES not in plan.sub_scores


async def test_changes_that_wishes_count_wake_no_pod() -> None:
    """Counts of wishes open no node, and leave the verdicts on nodes as they are."""
    made = zones(cpu="1", a=3)
    opened: list[object] = []
    made.profile.pod_rules.on_change(opened.append)
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


def test_forgotten_wishes_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of distinct wishes, beside rules with the same counts, leave only a bounded number behind."""
    monkeypatch.setattr(index, "RULES_KEPT", 8)
    made = zones(a=2)
    domains = made.profile.pod_rules._domains
    for number in range(60):
        app = f"a{number // 2}"
        spec = evenly(app) | (far(app) if number % 2 else apart(app))
        wanted = replica(f"p{number}", None, spec)
        plan = made.choice.decide(wanted)
        assert isinstance(plan, Plan)
    assert len(domains._in_use) == 8
    assert len(domains._partitions) <= 2
    assert len(domains._headcounts) <= 16
    assert sum(map(len, domains._anchored.values())) == len(domains._headcounts)
    opened: list[object] = []
    made.profile.pod_rules.on_change(opened.append)
    keys = {key for key, known in domains._in_use.items() if isinstance(known, TalliedRules)}
    for known in tuple(domains._in_use.values()):
        domains._forget(known)
    domains._announce()
    assert opened == [keys], "only rules are announced: no pod waits for a wish"
    assert not domains._headcounts
    assert not domains._partitions


def test_wishes_keep_counts_that_a_forgotten_rule_shared() -> None:
    """The counts of a rule that is forgotten go on for a wish that reads them too."""
    made = zones(a=2)
    rule, wish = replica("rule", None, apart()), replica("wish", None, far())
    for wanted in (rule, wish):
        assert isinstance(made.choice.decide(wanted), Plan)
    domains = made.profile.pod_rules._domains
    domains._forget(domains._in_use[rule.domains.key])
    resident(made, "new", "a000")
    for number in range(2):
        resident(made, f"other{number}", "a001", "other")
    made.decider.ledger.forget(PodUid("wish"))
    plan = made.choice.decide(wish)
    assert isinstance(plan, Plan)
    assert plan.booking.node == "a001"
