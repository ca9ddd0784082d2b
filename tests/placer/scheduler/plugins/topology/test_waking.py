"""Pods that rules about other pods keep out are tried again when a change could let them in, and not by others."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.scheduler.plugins.pod_counts import store
from plimsoll.kube.models import Pod
from tests.placer.kube.objects import MEMORY, pod_of
from tests.placer.kube.scene import Scene, scene
from tests.placer.scheduler.plugins.topology.rules import apart, beside, spread
from tests.slow import examples

Object = dict[str, Any]
SMALL = {MEMORY: "1Gi"}
APART = "node(s) didn't match pod anti-affinity rules"


def two_zones(made: Scene) -> None:
    """Node a in zone a, and node b in zone b."""
    for name in ("a", "b"):
        made.node(name, {"zone": name, "host": name})
        made.report(name, 24)


def foreign(name: str, on: str, labels: Object | None = None, **spec: Any) -> Pod:  # noqa: ANN401 - passed on
    """A pod of another scheduler on a node."""
    return pod_of(name, {}, labels or {"app": "x"}, scheduler="default-scheduler", nodeName=on, **spec)


async def test_replicas_that_keep_apart_go_to_different_nodes_and_the_rest_waits_for_one_to_go() -> None:
    """Two of three replicas find a node of their own, and the third gets the node of the first that goes."""
    async with scene() as made:
        two_zones(made)
        for name in ("p", "q", "r"):
            made.show(made.pod(name, SMALL, {"app": "x"}, **apart()))
        await made.settle()
        assert {made.pods[name].spec.nodeName for name in ("p", "q")} == {"a", "b"}
        assert made.refusal("r") == f"0/2 nodes are available: 2 {APART}."
        left = made.pods["p"].spec.nodeName
        made.delete("p")
        await made.settle_after_backoff()
        assert made.pods["r"].spec.nodeName == left


async def test_pod_waits_for_one_to_be_beside() -> None:
    """A pod whose affinity means another pod waits until such a pod has a node, and goes into its domain."""
    async with scene() as made:
        two_zones(made)
        made.show(made.pod("p", SMALL, {"app": "y"}, **beside("x")))
        await made.settle()
        assert made.refusal("p") == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
        made.show(foreign("other", "b", {"app": "z"}))
        await made.settle_after_backoff()
        assert made.is_unschedulable("p")
        made.show(foreign("wanted", "b"))
        await made.settle_after_backoff()
        assert made.pods["p"].spec.nodeName == "b"


async def test_first_pod_of_a_group_goes_anywhere_and_the_others_follow() -> None:
    """A pod whose affinity means itself is placed where no such pod is; later ones go beside it."""
    async with scene() as made:
        two_zones(made)
        for name in ("p", "q", "r"):
            made.show(made.pod(name, SMALL, {"app": "x"}, **beside("x")))
        await made.settle()
        assert len({made.pods[name].spec.nodeName for name in ("p", "q", "r")}) == 1


async def test_skew_holds_replicas_back_until_the_emptiest_domain_gets_one() -> None:
    """A zone without room holds all others back. Once a pod is there, one more goes to each zone."""
    async with scene() as made:
        two_zones(made)
        made.report("b", 0)
        for name in ("p", "q"):
            made.show(made.pod(name, SMALL, {"app": "x"}, **spread()))
        await made.settle()
        (waiting,) = [name for name in ("p", "q") if not made.is_placed(name)]
        assert "1 node(s) didn't match pod topology spread constraints" in made.refusal(waiting)
        made.show(foreign("theirs", "b"))
        await made.settle_after_backoff()
        assert made.pods[waiting].spec.nodeName == "a"


async def test_pod_that_is_being_deleted_counts_for_affinity_and_not_for_spread() -> None:
    """As in kube-scheduler, a pod on its way out no longer takes part in spreading, but keeps others apart."""
    async with scene() as made:
        two_zones(made)
        made.report("b", 0)
        made.show(foreign("theirs", "a"))
        made.show(made.pod("spread", SMALL, {"app": "x"}, **spread()))
        made.show(made.pod("apart", SMALL, {}, **apart("x")))
        await made.settle()
        assert not made.is_placed("spread")
        made.show_again("theirs", deletionTimestamp="2026-01-01T00:00:00Z")
        await made.settle_after_backoff()
        assert made.is_placed("spread")
        assert not made.is_placed("apart")
        for name in ("theirs", "spread"):
            made.delete(name)
        await made.settle_after_backoff()
        assert made.is_placed("apart")


async def test_new_label_of_a_namespace_lets_pods_in() -> None:
    """A pod is kept out by pods of the namespaces with a label, and tried again when its own loses this label."""
    async with scene() as made:
        two_zones(made)
        space: dict[str, Any] = {"namespaces": [], "namespaceSelector": {"matchLabels": {"team": "t"}}}
        made.namespace("default", {"team": "t"})
        for name in ("a", "b"):
            made.show(foreign(f"on-{name}", name))
        made.show(made.pod("p", SMALL, {}, **apart("x", **space)))
        await made.settle()
        assert made.refusal("p") == f"0/2 nodes are available: 2 {APART}."
        made.namespace("default", {"team": "u"})
        await made.settle_after_backoff()
        assert made.is_placed("p")


async def test_changes_of_other_pods_wake_nothing() -> None:
    """A parked pod is not tried again because of pods that its rules are not about."""
    async with scene() as made:
        two_zones(made)
        for name in ("a", "b"):
            made.show(foreign(f"on-{name}", name, **apart("v")))
        made.show(made.pod("p", SMALL, {}, **apart("x")))
        await made.settle()
        assert made.is_unschedulable("p")
        tries = made.tries
        for app in ("y", "z"):
            made.show(foreign(f"other-{app}", "a", {"app": app}))
            made.show(foreign(f"another-{app}", "a", {"app": app}, **apart("w")))
        made.show(foreign("one-more", "a"))  # a second pod in a domain that is closed anyway
        for name in ("other-y", "another-z", "one-more"):
            made.delete(name)
        await made.settle_after_backoff()
        assert (made.is_unschedulable("p"), made.tries) == (True, tries)


async def test_pod_is_woken_although_the_counts_for_its_rules_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where more rules wait than counts are kept, each pod still gets its place."""
    monkeypatch.setattr(store, "MOST_CONSTRAINTS", 2)
    async with scene() as made:
        two_zones(made)
        for number in range(5):
            for name in ("a", "b"):
                made.show(foreign(f"{number}-on-{name}", name, {"app": f"x{number}"}))
            made.show(made.pod(f"p{number}", SMALL, {}, **apart(f"x{number}")))
        await made.settle()
        assert not any(made.is_placed(f"p{number}") for number in range(5))
        for number in range(5):
            made.delete(f"{number}-on-b")
            for _ in range(3):
                await made.settle_after_backoff()
            assert made.is_placed(f"p{number}")


RULES: list[dict[str, Any]] = [
    spread("x"),
    spread("x", "host"),
    spread("y", "zone", minDomains=2),
    spread("x", "zone", nodeTaintsPolicy="Honor"),
    apart("x"),
    apart("y", "zone"),
    beside("x"),
    beside("y", "host"),
    {},
]
apps = st.sampled_from(["x", "y"])
events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 30), apps, st.sampled_from(RULES)),
        st.tuples(st.just("pod"), st.integers(0, 30), apps, st.sampled_from(RULES)),
        st.tuples(st.just("pod"), st.integers(0, 30), apps, st.sampled_from(RULES)),
        st.tuples(st.just("foreign"), st.integers(31, 40), apps, st.sampled_from("abc")),
        st.tuples(st.just("gone"), st.integers(0, 40)),
        st.tuples(st.just("ending"), st.integers(0, 40)),
        st.tuples(st.just("node"), st.sampled_from("abc"), st.sampled_from("uv"), st.booleans()),
        st.tuples(st.just("node gone"), st.sampled_from("abc")),
    ),
    min_size=3,
    max_size=25,
)


@given(events)
@settings(max_examples=examples(150), deadline=None)
async def test_no_parked_pod_is_missed(steps: list[tuple[Any, ...]]) -> None:
    """After any changes, no parked pod has a node that could take it."""
    async with scene() as made:
        two_zones(made)
        for step in steps:
            match step:
                case "pod", number, app, rule if f"p{number}" not in made.pods:
                    made.show(made.pod(f"p{number}", SMALL, {"app": app}, **rule))
                case "foreign", number, app, node if f"p{number}" not in made.pods:
                    made.show(foreign(f"p{number}", node, {"app": app}))
                case "gone", number:
                    made.delete(f"p{number}")
                case "ending", number if f"p{number}" in made.pods:
                    made.show_again(f"p{number}", deletionTimestamp="2026-01-01T00:00:00Z")
                case "node", name, zone, tainted:
                    taints = [{"key": "t", "effect": "NoSchedule"}] if tainted else []
                    made.node(name, {"zone": zone, "host": name}, taints=taints)
                    made.report(name, 24)
                case "node gone", name:
                    made.remove_node(name)
            await made.settle()
            assert made.missed() == []
