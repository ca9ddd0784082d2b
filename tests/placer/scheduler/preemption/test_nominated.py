"""Nominated pods count on their node in the rules of other pods, with their volumes too, as in kube-scheduler.

The room that they hold is in `test_nominations`, and the answers to kube-scheduler in `extender/test_nominated`.
"""

import pytest

from placer.core.booking import Booking, Grant
from placer.scheduler.pods.needs import Needs
from placer.scheduler.pods.nominator import Nomination, Nominator
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from tests.placer.kube.objects import Object
from tests.placer.kube.preemption_scene import SPREAD, attachable, cpu, disk, later, pod, preemption_scene

ZONES: dict[str, Object] = {"n1": {"zone": "z1"}, "n2": {"zone": "z2"}}
OTHERS = "default-scheduler"


def term(app: str, key: str = "zone") -> Object:
    """A term of affinity or anti-affinity about pods with this label."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def required(kind: str, app: str) -> Object:
    """Required affinity, or anti-affinity."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term(app)]}}


def nominated(name: str, priority: int = 20, node: str = "n1", **more: object) -> Pod:
    """A pod without needs that another scheduler nominated for a node."""
    status = {"nominatedNodeName": node}
    return pod(name, None, priority, {}, scheduler=OTHERS, status=status, **more)  # type: ignore[arg-type]


def waiting(name: str, priority: int = 10, **more: object) -> Pod:
    """A pod without needs that waits."""
    return pod(name, None, priority, {}, **more)  # type: ignore[arg-type]


RULES = {
    "its anti-affinity": (
        nominated("q", affinity=required("podAntiAffinity", "x")),
        waiting("p", labels={"app": "x"}),
        "node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    "anti-affinity against it": (
        nominated("q", labels={"app": "y"}),
        waiting("p", affinity=required("podAntiAffinity", "y")),
        "node(s) didn't match pod anti-affinity rules",
    ),
    "topology spread": (
        nominated("q", labels={"app": "x"}),
        waiting("p", labels={"app": "x"}, topologySpreadConstraints=[SPREAD]),
        "node(s) didn't match pod topology spread constraints",
    ),
}


@pytest.mark.parametrize("case", RULES)
async def test_rules_see_nominated_pods_of_higher_priority(case: str) -> None:
    """A rule that the nominated pod would break keeps a lower pod out of that node, until the nomination ends."""
    higher, lower, reason = RULES[case]
    async with preemption_scene() as made:
        made.scene.node("n1", ZONES["n1"])
        made.scene.node("n2", ZONES["n2"], unschedulable=True)
        made.scene.show(higher)
        made.scene.show(lower)
        await later(made)
        assert not made.scene.is_placed("p")
        assert f"1 {reason}" in made.scene.refusal("p")
        made.scene.delete("q")
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"


@pytest.mark.parametrize("case", RULES)
async def test_rules_see_no_nominated_pods_of_lower_priority(case: str) -> None:
    """A nominated pod keeps no pod of higher priority out."""
    _, lower, _ = RULES[case]
    higher = {
        "its anti-affinity": nominated("q", 5, affinity=required("podAntiAffinity", "x")),
        "anti-affinity against it": nominated("q", 5, labels={"app": "y"}),
        "topology spread": nominated("q", 5, labels={"app": "x"}),
    }[case]
    async with preemption_scene() as made:
        made.scene.node("n1", ZONES["n1"])
        made.scene.node("n2", ZONES["n2"], unschedulable=True)
        made.scene.show(higher)
        made.scene.show(lower)
        await later(made)
        assert made.scene.is_placed("p")


async def test_a_nominated_pod_counts_on_its_node_alone() -> None:
    """As in kube-scheduler, another node of its zone stays open: the nominated pod may not come."""
    async with preemption_scene() as made:
        made.scene.node("n1", {"zone": "z1"}, unschedulable=True)
        made.scene.node("n2", {"zone": "z1"})
        made.scene.show(nominated("q", affinity=required("podAntiAffinity", "x")))
        made.scene.show(waiting("p", labels={"app": "x"}))
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n2"


async def test_a_nominated_pod_is_no_company() -> None:
    """Affinity needs a pod that has a node: a nominated one may never come."""
    async with preemption_scene() as made:
        made.scene.node("n1", ZONES["n1"])
        made.scene.show(nominated("q", labels={"app": "y"}))
        made.scene.show(waiting("p", affinity=required("podAffinity", "y")))
        await later(made)
        assert "1 node(s) didn't match pod affinity rules" in made.scene.refusal("p")


async def test_pods_of_one_kind_differ_by_the_rules_of_nominated_pods() -> None:
    """A nominated pod's rule keeps out the pods that it selects, and no other pod of their kind."""
    async with preemption_scene() as made:
        made.scene.node("n1", ZONES["n1"])
        made.scene.show(nominated("q", affinity=required("podAntiAffinity", "x")))
        for name, app in (("p", "x"), ("other", "y"), ("p2", "x")):
            made.scene.show(waiting(name, labels={"app": app}))
            await later(made)
        assert made.scene.is_placed("other")
        assert not made.scene.is_placed("p")
        assert not made.scene.is_placed("p2")
        assert list(made.scene.cache.nominator.anti_affinity)
        made.scene.delete("q")
        await later(made)
        assert made.scene.is_placed("p")
        assert made.scene.is_placed("p2")
        assert not made.scene.cache.nominator.anti_affinity


async def test_victims_are_sought_beside_nominated_pods() -> None:
    """Where a nominated pod of higher priority keeps a pod out, the end of others does not help."""
    async with preemption_scene() as made:
        for node in ("n1", "n2"):
            made.scene.node(node, ZONES[node])
            made.scene.show(cpu(f"on-{node}", node, 0 if node == "n1" else 1))
        made.scene.show(nominated("q", affinity=required("podAntiAffinity", "x")))
        made.scene.show(pod("p", None, 10, {"cpu": "8"}, labels={"app": "x"}))
        await later(made)
        assert made.deleted == ["on-n2"]


async def test_the_attach_slot_of_a_victim_is_held() -> None:
    """The slot that a victim leaves is the preemptor's: a lower pod with a volume waits; one without is placed."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        attachable(made, "a", "p", "low")
        made.scene.show(pod("a", "n1", 0, {}, volumes=[disk("a")]))
        made.scene.show(waiting("p", volumes=[disk("p")]))
        await made.settle()
        assert made.deleted == ["a"]
        made.scene.show(waiting("low", 5, volumes=[disk("low")]))
        made.scene.show(waiting("plain", 5))
        made.scene.delete("a")
        await made.settle()
        assert not made.scene.is_placed("low")
        assert made.scene.is_placed("plain")
        await later(made)
        assert made.scene.is_placed("p")
        assert not made.scene.is_placed("low")
        assert made.deleted == ["a"]


async def test_outcomes_and_victims_are_counted() -> None:
    """Each victim counts once, and each nomination of our own pods by how it ended."""
    async with preemption_scene() as made:

        def outcomes() -> dict[str, float]:
            [family] = made.scene.decider.metrics.preemption.nominations.collect()
            return {one.labels["outcome"]: one.value for one in family.samples}

        made.scene.node("n1")
        for round_, end in enumerate(("placed", "elsewhere", "given_up", "gone")):
            low, preemptor = f"low{round_}", f"p{round_}"
            made.scene.show(cpu(low, "n1", 0))
            made.scene.show(pod(preemptor, None, 10, {"cpu": "8"}))
            await made.settle()
            assert made.nomination(preemptor) == ("n1", {low})
            match end:
                case "placed":
                    made.scene.delete(low)
                case "elsewhere":
                    made.scene.node("n2")
                case "given_up":
                    made.scene.node("n1", unschedulable=True)
                case _:
                    made.scene.delete(preemptor)
            await later(made)
            assert outcomes()[end] == 1
            for name in (preemptor, low):
                made.scene.delete(name)
            made.scene.remove_node("n2")
            made.scene.node("n1")
        assert sum(outcomes().values()) == 4
        [victims] = made.scene.decider.metrics.preemption.victims.collect()
        assert victims.samples[0].value == 4
        made.scene.show(nominated("foreign"))
        made.scene.delete("foreign")
        assert sum(outcomes().values()) == 4
        assert made.scene.cache.nominator.find(PodUid("foreign")) is None


def test_gpus_that_are_held_no_more_are_announced() -> None:
    """When the GPUs that are held for a pod become known, nobody gains; when others take their place, others may."""
    changed: list[str] = []
    gained: list[str] = []
    nominations = Nominator(changed.append, gained.append)
    one = Nomination(nominated("q"), NodeName("n1"), Needs({}, frozenset()))
    nominations.put(one)
    held = [
        Booking(
            one.uid,
            one.node,
            (Grant(ContainerName("main"), GpuUuid(gpu), 1, 0, 100, whole=False, line_bytes=1),),
        )
        for gpu in ("a", "a", "b")
    ]
    for booking in held:
        nominations.hold_gpus(one, booking)
    assert one.booking == held[-1]
    assert (changed, gained) == (["n1"] * 3, ["n1"])
