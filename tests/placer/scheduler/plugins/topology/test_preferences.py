"""Wishes about other pods decide among places that are nearly as good, and keep a pod from no node."""

from collections import Counter
from itertools import count

import pytest
from msgspec.structs import replace

from placer.core.plan import WISHES, Plan
from placer.core.policies.headroom import HEADROOM
from placer.decide import MOST_PLANS
from placer.scheduler.pods.constraints import MOST_PREFERRED
from placer.scheduler.profile import understood
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import gpu, state
from tests.placer.kube.objects import Object, pod_of
from tests.placer.scheduler.plugins.topology.replicas import APP, replica, resident, zones, zones_of
from tests.placer.scheduler.plugins.topology.rules import PREFERRED, apart, evenly, far, near, spread


@pytest.mark.parametrize("memory", ["64Mi", None])
async def test_replicas_spread_over_zones_however_many_nodes_these_have(memory: str | None) -> None:
    """Replicas end evenly over zones of four, one and one nodes; without the wish, most are in the largest zone."""
    assert await zones_of(zones(a=4, b=1, c=1), 9, memory, evenly()) == {"a": 3, "b": 3, "c": 3}
    assert (await zones_of(zones(a=4, b=1, c=1), 9, memory, {}))["a"] > 3


async def test_replicas_spread_over_zones_and_nodes_at_once() -> None:
    """With a constraint for zones and one for nodes, no zone and no node has more than another."""
    both = evenly()["topologySpreadConstraints"] + evenly(key="host")["topologySpreadConstraints"]
    made = zones(a=2, b=2, c=2)
    nodes = [await made.place(replica(f"p{n}", None, {"topologySpreadConstraints": both})) for n in range(12)]
    assert set(Counter(nodes).values()) == {2}


async def test_a_zone_without_room_gets_none_and_no_replica_waits() -> None:
    """The wish gives way where a zone is full: the others take the rest."""
    made = zones(cpu="50", a=1, b=1)
    made.node("c000", cpu="1", labels={"zone": "c", "host": "c000"})
    assert await zones_of(made, 7, None, evenly()) == {"a": 3, "b": 3, "c": 1}


@pytest.mark.parametrize("memory", ["1Gi", None])
async def test_a_web_server_lands_beside_its_cache(memory: str | None) -> None:
    """Preferred affinity by node and by zone leads to the pods that it means, and makes no node fit."""
    for key, chosen in (("host", {"b001"}), ("zone", {"b000", "b001", "b002"})):
        made = zones(a=3, b=3, c=3)
        resident(made, "cache", "b001", "cache")
        assert await made.place(replica("web", memory, near("cache", key))) in chosen
    made = zones(a=2, b=1)
    made.node("b000", cpu="0", labels={"zone": "b", "host": "b000"})
    resident(made, "cache", "b000", "cache")
    assert await made.place(replica("web", memory, near("cache"))) in ("a000", "a001")
    assert await made.place(replica("alone", memory, near("nobody"))) is not None


@pytest.mark.parametrize("memory", ["1Gi", None])
async def test_replicas_that_would_rather_keep_apart_share_nodes_evenly_at_last(memory: str | None) -> None:
    """Each gets a node of its own while there is one. Then each node gets a second one, and none waits."""
    made = zones(a=4)
    nodes = [await made.place(replica(f"p{number}", memory, far())) for number in range(8)]
    assert len(set(nodes[:4])) == 4
    assert set(Counter(nodes).values()) == {2}


async def test_gpus_decide_first() -> None:
    """A clearly better GPU is taken against the wish, and one that is hardly better is not."""
    for better_gib, chosen in ((20.7, "b000"), (20.9, "a000")):
        made = zones(a=1, b=1)
        for name, free_gib in (("a000", better_gib), ("b000", 20)):
            used = int((40 - free_gib) * GIB)
            made.reports.apply(state(name, gpu(f"GPU-{name}", usable_gib=40, other_bytes=used), seq=9))
        resident(made, "cache", "b000", "cache")
        assert await made.place(replica("web", "1Gi", near("cache"))) == chosen


async def test_large_zones_that_have_fewest_pods_hide_no_other_zone() -> None:
    """A decision reads few nodes, and those of the wished zone are among them, though all of these are fuller."""
    for memory in (None, "16Mi"):
        made = zones(a=2 * MOST_PLANS, b=2 * MOST_PLANS)
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
    made = zones(a=2 * MOST_PLANS, b=30, c=30, d=30)
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


async def test_the_decision_shows_its_wishes_about_pods() -> None:
    """The sub-scores have a part for spreading and one for affinity, as far as the pod has such wishes."""
    made = zones(a=1, b=1)
    resident(made, "there", "a000")
    plan = made.choice.decide(replica("p", None, evenly() | far("y")))
    assert isinstance(plan, Plan)
    assert plan.booking.node == "b000"
    assert plan.sub_scores[WISHES] == {"untainted": 1, "topology-spread": 1, "preferred-pod-affinity": 1}


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
    read = replica("p", None, evenly() | {"affinity": {"podAntiAffinity": {PREFERRED: terms}}}).preferred
    assert [one.weight for one in read.weighted] == [
        -weight for weight in range(100, 101 - MOST_PREFERRED, -1)
    ]
    assert read.count == MOST_PREFERRED
    long = {"matchExpressions": [{"key": f"k{n}", "operator": "Exists"} for n in range(300)]}
    assert not replica("p", None, far(labelSelector=long)).preferred.weighted
    assert not replica("p", None, evenly(labelSelector=long)).preferred.spread


def test_pods_without_such_wishes_have_none() -> None:
    """Rules are no wishes, and a weight of 0 has no effect."""
    specs: tuple[Object, ...] = ({}, spread(), apart(), far(weight=0), {"affinity": {"podAffinity": {}}})
    for spec in specs:
        assert not understood(pod_of("p", {}, APP, **spec), HEADROOM).preferred.key, spec


def test_equal_wishes_share_their_counts() -> None:
    """The order in which requirements and terms of one weight are written makes no difference where none counts."""
    one = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}
    assert replica("p", None, far()).preferred.key == replica("q", None, far(labelSelector=one)).preferred.key
    assert replica("p", None, far()).preferred.key != replica("q", None, far(weight=3)).preferred.key
    assert replica("p", None, far()).preferred.key != replica("q", None, near(key="host")).preferred.key
    assert replica("p", None, evenly()).preferred.key != replica("q", None, spread()).constraints.key
    here = replica("p", None, evenly())
    elsewhere = replace(here.pod, metadata=replace(here.pod.metadata, namespace="there"))
    assert here.preferred.key != understood(elsewhere, HEADROOM).preferred.key
