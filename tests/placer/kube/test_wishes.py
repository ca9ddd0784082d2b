"""Wishes decide among places that are nearly as good, and never against a clearly better GPU."""

from typing import Any

import pytest

from placer.core.plan import WISHES, Plan
from placer.decide import FOR_TAINTS, MOST_PLANS
from placer.scheduler.binding.binding import decision_annotations
from plimsoll.kube.models import Pod
from plimsoll.quantity import GIB
from tests.placer.core.worlds import gpu, state
from tests.placer.kube.memory_cluster import MemoryCluster, pod

Object = dict[str, Any]
DISCOURAGED = [{"key": "k", "effect": "PreferNoSchedule"}]


def wish(key: str, value: str, weight: int = 1) -> Object:
    """The affinity of a pod that prefers this label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    terms = [{"weight": weight, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def world(**free_gib: int) -> MemoryCluster:
    """Nodes with one GPU each, which has this much free memory of 24 GiB; their label `name` is their name."""
    made = MemoryCluster()
    for name, free in free_gib.items():
        made.node(name, labels={"name": name})
        made.report(name, free)
    return made


@pytest.mark.parametrize("memory", ["1Gi", None])
@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_a_wish_decides_among_equal_places(memory: str | None, name: str) -> None:
    """With GPU and without: among equal nodes the preferred one is taken, whichever it is."""
    assert await world(a=20, b=20, c=20).place(pod("p", memory, affinity=wish("name", name))) == name


async def test_a_wish_yields_to_a_clearly_better_gpu_and_not_to_one_hardly_better() -> None:
    """All wishes together make up for a twentieth of an idle GPU, and node affinity for two fifths of that.

    Here the one is 2 GiB of 40, and the other 0.8 GiB.
    """
    for better, wished, chosen in ((20.7, 20, "wished"), (20.9, 20, "better")):
        nodes = {"better": better, "wished": wished}
        made = MemoryCluster()
        for name, free in nodes.items():
            made.node(name, labels={"name": name})
            made.reports.apply(
                state(name, gpu(f"GPU-{name}", usable_gib=40, other_bytes=int((40 - free) * GIB)))
            )
        assert await made.place(pod("p", "1Gi", affinity=wish("name", "wished"))) == chosen


async def test_a_wish_makes_no_node_fit() -> None:
    """The preferred node is not taken where it has no room, and a pod waits for no wish."""
    assert await world(a=20, wished=0).place(pod("p", "1Gi", affinity=wish("name", "wished"))) == "a"
    assert await world(a=20).place(pod("p", "1Gi", affinity=wish("name", "nowhere"))) == "a"


@pytest.mark.parametrize("memory", ["1Gi", None])
async def test_a_taint_that_discourages_keeps_pods_away_while_there_is_another_place(
    memory: str | None,
) -> None:
    """`PreferNoSchedule` nodes are the last of equal nodes, and they are used all the same."""
    made = world(b=20, a=20)
    made.node("b", taints=DISCOURAGED, cpu="1")
    made.node("a", cpu="1")
    assert [await made.place(pod(name, memory)) for name in "xyz"] == ["a", "b", None]


async def test_wishes_rank_before_the_number_of_pods() -> None:
    """A pod without a GPU goes to the preferred node, though another has fewer pods."""
    made = world(a=20, wished=20)
    for number in range(3):
        assert await made.place(pod(f"p{number}", None, affinity=wish("name", "wished"))) == "wished"
    assert await made.place(pod("plain", None)) == "a"


async def test_a_pod_without_wishes_reads_one_node() -> None:
    """The first node meets all wishes of such a pod, so no further one is read."""
    made = world(**{f"n{number}": 20 for number in range(30)})
    for number in range(10):
        await made.place(pod(f"p{number}", None))
    assert made.decider.nodes_read == 10


async def test_wishes_read_a_bounded_number_of_nodes() -> None:
    """A wish that no node meets costs the comparison of this many nodes, however many there are."""
    made = world(**{f"n{number:03}": 20 for number in range(2 * MOST_PLANS)})
    await made.place(pod("p", "1Gi", affinity=wish("name", "nowhere")))
    assert made.decider.nodes_read <= MOST_PLANS


async def test_nodes_that_all_discourage_pods_cost_few_reads() -> None:
    """Where every node has such a taint, a decision does not search for one without."""
    made = world(**{f"n{number:03}": 20 for number in range(2 * MOST_PLANS)})
    for number in range(2 * MOST_PLANS):
        made.node(f"n{number:03}", taints=DISCOURAGED)
    await made.place(pod("p", "1Gi"))
    assert made.decider.nodes_read <= FOR_TAINTS + 1


async def test_the_decision_shows_its_wishes() -> None:
    """The sub-scores have each wish of a pod, and nothing about wishes for a pod without any."""
    made = world(a=20)
    plan = made.decide(pod("p", "1Gi", affinity=wish("name", "b")))
    assert isinstance(plan, Plan)
    assert plan.sub_scores[WISHES] == {"untainted": 1, "preferred-node-affinity": 0}
    assert '"wishes":{' in decision_annotations(plan, "t")["plimsoll.dev/decision"]
    plain = made.decide(pod("plain", "1Gi"))
    assert isinstance(plain, Plan)
    assert list(plain.sub_scores) == ["main/GPU-a-0"]


def test_wishes_change_no_demand() -> None:
    """A preferred term is read as the API writes it, and an affinity without any is empty."""
    assert Pod().spec.affinity is None
    assert len(pod("p", affinity=wish("name", "a")).scores) == 2
    assert len(pod("p", affinity={"nodeAffinity": {}}).scores) == 1
