"""Wishes about other pods decide among places that are nearly as good, and keep a pod from no node."""

from collections import Counter
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from placer.core.plan import WISHES, Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.refusal import Refusal
from placer.decide import MOST_PLANS
from placer.kube import choice
from placer.kube.domains import index
from placer.kube.domains.check import Standing
from placer.kube.domains.wishes import MOST_WISHES
from placer.kube.wanted import Wanted, understood
from plimsoll.ids import PodUid
from plimsoll.kube.models import Namespace, ObjectMeta
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import gpu, state
from tests.placer.kube.domains.rules import PREFERRED, apart, evenly, far, near, spread
from tests.placer.kube.scene import pod_of
from tests.placer.kube.test_choice import World, pod

Object = dict[str, Any]
APP = {"app": "x"}


def world(free_gib: int = 20, cpu: str = "50", **zones: int) -> World:
    """So many nodes in each zone, each with a GPU of 24 GiB that has so much free memory."""
    made = World()
    for zone, nodes in zones.items():
        for number in range(nodes):
            name = f"{zone}{number:03}"
            made.node(name, cpu, labels={"zone": zone, "host": name})
            made.report(name, free_gib)
    return made


def resident(made: World, name: str, node: str, app: str = "x") -> None:
    """A pod of an app that has a node, by whichever scheduler."""
    made.cluster.confirm(pod_of(name, {}, {"app": app}, nodeName=node))


def replica(name: str, memory: str | None, spec: Object, **labels: str) -> Wanted:
    """A pod of the app `x`."""
    return pod(name, memory, labels=APP | labels, **spec)


async def zones_of(made: World, pods: int, memory: str | None, spec: Object) -> Counter[str]:
    """The zones of so many replicas that are placed one after another."""
    nodes = [await made.place(replica(f"p{number}", memory, spec)) for number in range(pods)]
    return Counter(str(node)[0] for node in nodes)


@pytest.mark.parametrize("memory", ["64Mi", None])
async def test_replicas_spread_over_zones_however_many_nodes_these_have(memory: str | None) -> None:
    """Replicas end evenly over zones of four, one and one nodes; without the wish, most are in the largest zone."""
    assert await zones_of(world(a=4, b=1, c=1), 9, memory, evenly()) == {"a": 3, "b": 3, "c": 3}
    assert (await zones_of(world(a=4, b=1, c=1), 9, memory, {}))["a"] > 3


async def test_replicas_spread_over_zones_and_nodes_at_once() -> None:
    """With a constraint for zones and one for nodes, no zone and no node has more than another."""
    both = evenly()["topologySpreadConstraints"] + evenly(key="host")["topologySpreadConstraints"]
    made = world(a=2, b=2, c=2)
    nodes = [await made.place(replica(f"p{n}", None, {"topologySpreadConstraints": both})) for n in range(12)]
    assert set(Counter(nodes).values()) == {2}


async def test_constraints_weigh_more_the_more_domains_they_have() -> None:
    """As in kube-scheduler, four more pods in one of two zones are less than three more on one of six nodes."""
    both = evenly()["topologySpreadConstraints"] + evenly(key="host")["topologySpreadConstraints"]
    made = world(a=2, b=1)
    for name in ("full0", "full1", "full2"):
        made.node(name, cpu="0", labels={"zone": "a", "host": name})
    for number in range(7):
        resident(made, f"a{number}", "a001")
    for number in range(3):
        resident(made, f"b{number}", "b000")
    assert await made.place(replica("p", None, {"topologySpreadConstraints": both})) == "a000"


async def test_a_zone_without_room_gets_none_and_no_replica_waits() -> None:
    """The wish gives way where a zone is full: the others take the rest."""
    made = world(cpu="50", a=1, b=1)
    made.node("c000", cpu="1", labels={"zone": "c", "host": "c000"})
    assert await zones_of(made, 7, None, evenly()) == {"a": 3, "b": 3, "c": 1}


@pytest.mark.parametrize("memory", ["1Gi", None])
async def test_a_web_server_lands_beside_its_cache(memory: str | None) -> None:
    """Preferred affinity by node and by zone leads to the pods that it means, and makes no node fit."""
    for key, chosen in (("host", {"b001"}), ("zone", {"b000", "b001", "b002"})):
        made = world(a=3, b=3, c=3)
        resident(made, "cache", "b001", "cache")
        assert await made.place(replica("web", memory, near("cache", key))) in chosen
    made = world(a=2, b=1)
    made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
    resident(made, "cache", "b000", "cache")
    assert await made.place(replica("web", memory, near("cache"))) in ("a000", "a001")
    assert await made.place(replica("alone", memory, near("nobody"))) is not None


async def test_terms_count_by_their_weight_and_by_the_number_of_pods() -> None:
    """Each pod in the domain counts as often as its term weighs, towards it or away from it."""
    made = world(a=1, b=1, c=1)
    resident(made, "cache", "a000", "cache")
    for number in range(2):
        resident(made, f"queue{number}", "b000", "queue")
    resident(made, "noise", "a000", "noise")
    for cache, queue, noise, chosen in ((50, 20, 1, "a"), (50, 30, 1, "b"), (50, 20, 30, "b")):
        terms = near("cache", weight=cache)["affinity"]["podAffinity"][PREFERRED]
        terms = terms + near("queue", weight=queue)["affinity"]["podAffinity"][PREFERRED]
        spec = {"affinity": {"podAffinity": {PREFERRED: terms}} | far("noise", weight=noise)["affinity"]}
        plan = made.choice.decide(replica(f"p{chosen}{queue}{noise}", None, spec))
        assert isinstance(plan, Plan)
        assert plan.booking.node == f"{chosen}000"


@pytest.mark.parametrize("memory", ["1Gi", None])
async def test_replicas_that_would_rather_keep_apart_share_nodes_evenly_at_last(memory: str | None) -> None:
    """Each gets a node of its own while there is one. Then each node gets a second one, and none waits."""
    made = world(a=4)
    nodes = [await made.place(replica(f"p{number}", memory, far())) for number in range(8)]
    assert len(set(nodes[:4])) == 4
    assert set(Counter(nodes).values()) == {2}


async def test_a_node_without_the_label_is_the_last_that_a_spread_takes() -> None:
    """As in kube-scheduler, such a node is worst; where no node has the label, the wish is without effect."""
    made = world(a=1)
    made.node("bare", cpu="50")
    assert [await made.place(replica(f"p{n}", None, evenly())) for n in range(3)] == ["a000"] * 3
    made = World()
    made.node("bare", cpu="50")
    made.node("other", cpu="50")
    assert {await made.place(replica(f"p{n}", None, evenly())) for n in range(2)} == {"bare", "other"}
    assert made.decider.nodes_read == 2


async def test_gpus_decide_first() -> None:
    """A clearly better GPU is taken against the wish, and one that is hardly better is not."""
    for better_gib, chosen in ((20.7, "b000"), (20.9, "a000")):
        made = world(a=1, b=1)
        for name, free_gib in (("a000", better_gib), ("b000", 20)):
            used = int((40 - free_gib) * GIB)
            made.reports.apply(state(name, gpu(f"GPU-{name}", usable_gib=40, other_bytes=used), seq=9))
        resident(made, "cache", "b000", "cache")
        assert await made.place(replica("web", "1Gi", near("cache"))) == chosen


async def test_pods_that_are_being_deleted_count_for_affinity_alone() -> None:
    """As in kube-scheduler, a spread counts no pod that ends, and affinity counts it until it is gone."""
    made = world(a=1, b=1)
    ending = pod_of("old", {}, APP, nodeName="a000")
    made.cluster.confirm(ending)
    meta = replace(ending.metadata, deletionTimestamp="2026-01-01T00:00:00Z")
    made.cluster.confirm(replace(ending, metadata=meta))
    assert await made.place(replica("beside", None, near())) == "a000"
    made.cluster.release(PodUid("beside"))
    plan = made.choice.decide(replica("spread", None, evenly()))
    assert isinstance(plan, Plan)
    assert plan.sub_scores[WISHES]["topology-spread"] == 1


async def test_terms_mean_the_namespaces_that_they_name() -> None:
    """A term without namespaces means its own; one with a selector means those whose labels match now."""
    made = world(a=1, b=1)
    cache = pod_of("cache", {}, {"app": "cache"}, nodeName="b000")
    made.cluster.confirm(replace(cache, metadata=replace(cache.metadata, namespace="other")))
    selector = {"matchLabels": {"team": "x"}}
    meant = near("cache", namespaceSelector=selector)
    for number, labels in enumerate(({}, {"team": "x"}, {})):
        made.cluster.pod_rules.put_namespace(Namespace(ObjectMeta(name="other", labels=labels)))
        plan = made.choice.decide(replica(f"p{number}", None, meant))
        assert isinstance(plan, Plan)
        assert plan.booking.node == ("b000" if labels else "a000")
    plan = made.choice.decide(replica("own", None, near("cache")))
    assert isinstance(plan, Plan)
    assert plan.booking.node == "a000"


async def test_large_zones_that_have_fewest_pods_hide_no_other_zone() -> None:
    """A decision reads few nodes, and those of the wished zone are among them, though all of these are fuller."""
    for memory in (None, "16Mi"):
        made = world(a=2 * MOST_PLANS, b=2 * MOST_PLANS)
        for number in range(2 * MOST_PLANS):
            resident(made, f"busy{number}", f"b{number:03}", "busy")
            slightly_worse = gpu(f"GPU-b{number}", other_bytes=4 * GIB + 20 * MIB)
            made.reports.apply(state(f"b{number:03}", slightly_worse, seq=9))
        resident(made, "cache", "b100", "cache")
        assert (await zones_of(made, 20, memory, evenly())) == {"a": 10, "b": 10}
        web = [await made.place(replica(f"w{n}", memory, near("cache"))) for n in range(60)]
        assert {str(node)[0] for node in web} == {"b"}
        assert len(set(web)) > 30, "few nodes of the zone get all"
        assert await made.place(replica("mate", memory, near("cache", "host"))) == "b100"


async def test_the_best_of_large_zones_is_found_though_another_hides_it() -> None:
    """Among zones that are all large, that with most caches, or fewest replicas, is read first."""
    made = world(a=2 * MOST_PLANS, b=30, c=30, d=30)
    for number in range(90):
        resident(made, f"busy{number}", f"{'bcd'[number % 3]}{number // 3:03}", "busy")
    for number, node in enumerate(("b001", "b002", "b003", "c004", "d000")):
        resident(made, f"cache{number}", node, "cache")
    for number, node in enumerate(("a000", "b001", "b002", "d001")):
        resident(made, f"there{number}", node)
    numbers = count()
    for spec, chosen in ((near("cache"), "b"), (evenly(), "c"), (far(key="zone"), "c")):
        plan = made.choice.decide(replica(f"p{next(numbers)}", None, spec))
        assert isinstance(plan, Plan)
        assert plan.booking.node.startswith(chosen)


def test_promising_nodes_count_for_the_wish_and_change_with_each_turn() -> None:
    """Nodes that the pod's selector leaves out are not promising, and turns are as long at the end as before."""
    made = world(a=60)
    fast = [f"a{number:03}" for number in range(20, 60)]
    for name in fast:
        made.node(name, labels={"zone": "a", "host": name, "disk": "fast"})
    wanted = replica("p", None, evenly() | {"nodeSelector": {"disk": "fast"}})
    made.choice._prepare_wishes(wanted)
    gauge = made.cluster.pod_rules.gauge(wanted.domain_wishes)
    assert gauge is not None
    turns = [made.cluster.promising(gauge, 10) for _ in range(20)]
    assert {len(turn) for turn in turns} == {10}
    assert {node for turn in turns for node in turn} == set(fast)


async def test_no_node_is_read_twice() -> None:
    """Promising nodes are read before the others and not again, and only if the best node leaves a wish open."""
    for memory in (None, "1Gi"):
        made = world(a=5)
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
    made = world(a=1, b=20)
    resident(made, "cache", "b000", "cache")
    named = near("cache") | {"nodeSelector": {"host": "a000"}}
    assert await made.place(replica("p", None, named)) == "a000"
    assert made.decider.nodes_read == 1


async def test_a_decision_reads_a_bounded_number_of_nodes() -> None:
    """A wish that no free node meets costs the comparison of so many nodes, however many there are."""
    made = world(a=4 * MOST_PLANS)
    made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
    resident(made, "cache", "b000", "cache")
    await made.place(replica("p", None, near("cache")))
    assert made.decider.nodes_read <= MOST_PLANS + 1


async def test_pods_without_such_wishes_read_one_node_beside_pods_with_them() -> None:
    """Wishes of others cost a plain pod nothing, and a replica whose best node meets its wishes reads no other."""
    made = world(a=10, b=10)
    for number in range(6):
        await made.place(replica(f"p{number}", None, evenly()))
    before = made.decider.nodes_read
    await made.place(pod("plain", None))
    assert made.decider.nodes_read == before + 1


async def test_the_decision_shows_its_wishes_about_pods() -> None:
    """The sub-scores have a part for spreading and one for affinity, as far as the pod has such wishes."""
    made = world(a=1, b=1)
    resident(made, "there", "a000")
    plan = made.choice.decide(replica("p", None, evenly() | far("y")))
    assert isinstance(plan, Plan)
    assert plan.booking.node == "b000"
    assert plan.sub_scores[WISHES] == {"untainted": 1, "topology-spread": 1, "preferred-pod-affinity": 1}


async def test_wishes_that_are_new_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision reads a bounded part of what new wishes mean; the rest is read before the pod is decided."""
    monkeypatch.setattr(choice, "READ_AT_ONCE", 10)
    made = world(a=30, b=30)
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
    monkeypatch.setattr(index, "STANDINGS", 1)
    made = world(a=30)
    wanted = replica("p", None, near("cache"))
    assert isinstance(made.decide(wanted), Refusal)
    assert await made.choice.explain(wanted) is None
    made.choice._prepare_wishes(replica("other", None, near("queue", "host")))
    plan = made.decide(wanted)
    assert isinstance(plan, Plan)
    assert WISHES not in plan.sub_scores


async def test_changes_that_wishes_count_wake_no_pod() -> None:
    """Counts of wishes open no node, and leave the verdicts on nodes as they are."""
    made = world(cpu="1", a=3)
    opened: list[object] = []
    made.cluster.pod_rules.on_change(opened.append)
    waiting = pod("waits", None, cpu="2", labels=APP, **(evenly() | far()))
    assert await made.place(waiting) is None
    read = made.decider.nodes_read
    state = made.choice._key(waiting)
    resident(made, "more", "a001")
    made.cluster.release(PodUid("more"))
    assert made.choice._key(waiting) == state
    assert await made.place(waiting) is None
    assert made.decider.nodes_read - read <= 1
    assert opened == []


def test_forgotten_wishes_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of distinct wishes, beside rules with the same counts, leave no more behind than are kept."""
    monkeypatch.setattr(index, "STANDINGS", 8)
    made = world(a=2)
    domains = made.cluster.pod_rules._domains
    for number in range(60):
        app = f"a{number // 2}"
        spec = evenly(app) | (far(app) if number % 2 else apart(app))
        wanted = replica(f"p{number}", None, spec)
        plan = made.choice.decide(wanted)
        assert isinstance(plan, Plan)
    assert len(domains._standings) == 8
    assert len(domains._partitions) <= 2
    assert len(domains._headcounts) <= 16
    assert sum(map(len, domains._anchored.values())) == len(domains._headcounts)
    opened: list[object] = []
    made.cluster.pod_rules.on_change(opened.append)
    keys = {key for key, known in domains._standings.items() if isinstance(known, Standing)}
    for known in tuple(domains._standings.values()):
        domains._forget(known)
    domains._announce()
    assert opened == [keys], "only rules are announced: no pod waits for a wish"
    assert not domains._headcounts
    assert not domains._partitions


def test_wishes_keep_counts_that_a_forgotten_rule_shared() -> None:
    """The counts of a rule that is forgotten go on for a wish that reads them too."""
    made = world(a=2)
    rule, wish = replica("rule", None, apart()), replica("wish", None, far())
    for wanted in (rule, wish):
        assert isinstance(made.choice.decide(wanted), Plan)
    domains = made.cluster.pod_rules._domains
    domains._forget(domains._standings[rule.domains.key])
    resident(made, "new", "a000")
    for number in range(2):
        resident(made, f"other{number}", "a001", "other")
    made.decider.ledger.forget(PodUid("wish"))
    plan = made.choice.decide(wish)
    assert isinstance(plan, Plan)
    assert plan.booking.node == "a001"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1}]}}},
            f"spec.affinity.podAffinity.{PREFERRED}",
        ),
        (
            far(labelSelector={"matchExpressions": [{"key": "app", "operator": "Near"}]}),
            f"spec.affinity.podAntiAffinity.{PREFERRED}.*'?Near'? is no operator of a label selector; mend",
        ),
        (
            near(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            "Gt",
        ),
        (
            evenly(labelSelector={"matchExpressions": [{"key": "app", "operator": "Lt"}]}),
            "spec.topologySpreadConstraints",
        ),
        (evenly(maxSkew="many"), "spec.topologySpreadConstraints.*cannot be read"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_by_name(spec: Object, named: str) -> None:
    """The field and the remedy are named, as for a rule."""
    with pytest.raises(InputError, match=named):
        replica("p", None, spec)


def test_wishes_beyond_the_most_have_no_effect_and_refuse_no_pod() -> None:
    """The weightiest are kept, in few requirements."""
    terms = [
        far(f"a{weight}", weight=weight)["affinity"]["podAntiAffinity"][PREFERRED][0] for weight in range(101)
    ]
    read = replica("p", None, evenly() | {"affinity": {"podAntiAffinity": {PREFERRED: terms}}}).domain_wishes
    assert [one.weight for one in read.leanings] == [-weight for weight in range(100, 101 - MOST_WISHES, -1)]
    assert read.count == MOST_WISHES
    long = {"matchExpressions": [{"key": f"k{n}", "operator": "Exists"} for n in range(300)]}
    assert not replica("p", None, far(labelSelector=long)).domain_wishes.leanings
    assert not replica("p", None, evenly(labelSelector=long)).domain_wishes.spreads


def test_pods_without_such_wishes_have_none() -> None:
    """Rules are no wishes, and a weight of 0 has no effect."""
    specs: tuple[Object, ...] = ({}, spread(), apart(), far(weight=0), {"affinity": {"podAffinity": {}}})
    for spec in specs:
        assert not understood(pod_of("p", {}, APP, **spec), HEADROOM).domain_wishes.key, spec


def test_equal_wishes_share_their_counts() -> None:
    """The order in which requirements and terms of one weight are written makes no difference where none counts."""
    one = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}
    assert (
        replica("p", None, far()).domain_wishes.key
        == replica("q", None, far(labelSelector=one)).domain_wishes.key
    )
    assert replica("p", None, far()).domain_wishes.key != replica("q", None, far(weight=3)).domain_wishes.key
    assert (
        replica("p", None, far()).domain_wishes.key != replica("q", None, near(key="host")).domain_wishes.key
    )
    assert replica("p", None, evenly()).domain_wishes.key != replica("q", None, spread()).domains.key
    here = replica("p", None, evenly())
    elsewhere = replace(here.pod, metadata=replace(here.pod.metadata, namespace="there"))
    assert here.domain_wishes.key != understood(elsewhere, HEADROOM).domain_wishes.key
