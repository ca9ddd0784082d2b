"""Preemption on the pure core, in a table: which pods end, and on which node, as kube-scheduler decides for its part.

Rows with CPU, ports and pods alone give what kube-scheduler 1.36 gives; `test_servers` asks it for some.
"""

import pytest

from plimsoll.kube.models import Pod
from tests.placer.kube.objects import keeper
from tests.placer.kube.preemption_scene import ENDING, SPREAD, TAINT, attachable, budget, cpu, disk, pod
from tests.placer.scheduler.preemption.rows import (
    EARLY,
    LATE,
    LATER,
    NOT_HELPFUL,
    TWO,
    Row,
    check,
    none,
    wants,
)

NO_VICTIMS = "No preemption victims found for incoming pod"


def nominated(name: str, node: str, priority: int, limits: dict[str, str]) -> Pod:
    """A pod of another scheduler that is nominated for a node."""
    status = {"nominatedNodeName": node}
    return pod(name, None, priority, limits, scheduler="default-scheduler", status=status)


ISCSI = {"name": "disk", "iscsi": {"iqn": "x"}}

ROWS = {
    "one victim": Row(wants(), (cpu("a", "n1", 0),), "n1", frozenset({"a"})),
    "no pod of lower priority on the node": Row(
        wants(),
        (cpu("a", "n1", 10), cpu("b", "n2", 10), pod("low", "n3", 0)),
        text=none(3, f"2 {NO_VICTIMS}", f"1 {NOT_HELPFUL}"),
        nodes={"n1": {}, "n2": {}, "n3": {"unschedulable": True}},
    ),
    "preemptionPolicy Never": Row(
        wants(preemptionPolicy="Never"),
        (cpu("a", "n1", 0),),
        text="not eligible due to preemptionPolicy=Never.",
    ),
    "pods of other schedulers are victims too": Row(
        wants(), (cpu("a", "n1", 0, scheduler="default-scheduler"),), "n1", frozenset({"a"})
    ),
    "several victims, no more than needed": Row(
        wants(limits={"cpu": "5"}),
        tuple(
            cpu(name, "n1", 0, "2", started=at)
            for name, at in zip("abcd", (EARLY, EARLY, LATE, LATER), strict=True)
        ),
        "n1",
        frozenset({"b", "c", "d"}),
    ),
    "the highest is spared first": Row(
        wants(limits={"cpu": "4"}), (cpu("a", "n1", 2, "4"), cpu("b", "n1", 1, "4")), "n1", frozenset({"b"})
    ),
    "among equals the older is spared": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4", started=LATE), cpu("b", "n1", 1, "4", started=EARLY)),
        "n1",
        frozenset({"a"}),
    ),
    "the node whose highest victim is lowest": Row(
        wants(),
        (cpu("a", "n1", 5), cpu("b", "n2", 3, "4"), cpu("c", "n2", 4, "4")),
        "n2",
        frozenset({"b", "c"}),
        nodes=TWO,
    ),
    "the node with the smallest sum": Row(
        wants(),
        (cpu("a", "n1", 5, "4"), cpu("b", "n1", 4, "4"), cpu("c", "n2", 5, "4"), cpu("d", "n2", 1, "4")),
        "n2",
        frozenset({"c", "d"}),
        nodes=TWO,
    ),
    "the node with the fewest victims, of negative priority too": Row(
        wants(0),
        (cpu("a", "n1", -5, "4"), cpu("b", "n1", -5, "4"), cpu("c", "n2", -5)),
        "n2",
        frozenset({"c"}),
        nodes=TWO,
    ),
    "the node whose victims started last": Row(
        wants(),
        (cpu("a", "n1", 5, started=EARLY), cpu("b", "n2", 5, started=LATE)),
        "n2",
        frozenset({"b"}),
        nodes=TWO,
    ),
    "a budget makes the node of higher victims better": Row(
        wants(),
        (cpu("a", "n1", 1, labels={"app": "web"}), cpu("b", "n2", 5)),
        "n2",
        frozenset({"b"}),
        nodes=TWO,
        budgets=(budget("web", "web", 0),),
    ),
    "a budget is violated where nothing else helps": Row(
        wants(),
        (cpu("a", "n1", 1, labels={"app": "web"}),),
        "n1",
        frozenset({"a"}),
        budgets=(budget("web", "web", 0),),
    ),
    "a pod under a budget is spared before a higher one": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4", labels={"app": "web"}), cpu("b", "n1", 5, "4")),
        "n1",
        frozenset({"b"}),
        budgets=(budget("web", "web", 0),),
    ),
    "an empty selector selects nothing": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4", labels={"app": "web"}), cpu("b", "n1", 5, "4")),
        "n1",
        frozenset({"a"}),
        budgets=(budget("all", None, 0),),
    ),
    "a budget allows one disruption of two": Row(
        wants(limits={"cpu": "4"}),
        (
            cpu("a", "n1", 1, "4", labels={"app": "web"}, started=EARLY),
            cpu("b", "n1", 1, "4", labels={"app": "web"}, started=LATE),
        ),
        "n1",
        frozenset({"a"}),  # the older one takes the disruption, so the younger one violates and is spared
        budgets=(budget("web", "web", 1),),
    ),
    "a disruption that was counted already violates nothing": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4", labels={"app": "web"}), cpu("b", "n1", 5, "4")),
        "n1",
        frozenset({"a"}),
        budgets=(budget("web", "web", 0, "a"),),
    ),
    "a tainted node": Row(
        wants(), (cpu("a", "n1", 0),), text=none(1, f"1 {NOT_HELPFUL}"), nodes={"n1": {"taints": [TAINT]}}
    ),
    "a node that the pod does not select": Row(
        wants(nodeSelector={"zone": "x"}), (cpu("a", "n1", 0),), text=none(1, f"1 {NOT_HELPFUL}")
    ),
    "a node that is too small": Row(
        wants(limits={"cpu": "9"}), (cpu("a", "n1", 0),), text=none(1, f"1 {NOT_HELPFUL}")
    ),
    "not enough even without all lower ones": Row(
        wants(),
        (cpu("a", "n1", 0, "4"), cpu("b", "n1", 10, "4")),
        text=none(1, "1 Insufficient cpu"),
    ),
    "a port of the node": Row(
        wants(limits={}, containers=[{"name": "main", "ports": [{"hostPort": 80}]}]),
        (
            pod("a", "n1", 0, containers=[{"name": "main", "ports": [{"hostPort": 80}]}]),
            pod("b", "n1", 0, containers=[{"name": "main", "ports": [{"hostPort": 81}]}]),
        ),
        "n1",
        frozenset({"a"}),
    ),
    "the number of pods": Row(
        wants(limits={}),
        tuple(pod(f"a{index}", "n1", 5 if index else 1) for index in range(30)),
        "n1",
        frozenset({"a0"}),
    ),
    "an anti-affinity rule of a pod": Row(
        wants(limits={}, labels={"app": "x"}),
        (keeper("k", "n1"), pod("b", "n1", 0)),
        "n1",
        frozenset({"k"}),
        nodes={"n1": {"labels": {"zone": "z"}}},
    ),
    "an anti-affinity rule of a pod in the domain, on another node": Row(
        wants(limits={}, labels={"app": "x"}, nodeSelector={"only": "n1"}),
        (keeper("k", "n2"), pod("b", "n1", 0)),
        text=none(2, f"1 {NOT_HELPFUL}", "1 node(s) didn't satisfy existing pods anti-affinity rules"),
        nodes={"n1": {"labels": {"zone": "z", "only": "n1"}}, "n2": {"labels": {"zone": "z"}}},
    ),
    "a pod that takes up the domain of a spread constraint": Row(
        wants(limits={}, labels={"app": "x"}, topologySpreadConstraints=[SPREAD]),
        (pod("a", "n1", 0, labels={"app": "x"}), pod("b", "n1", 0), pod("c", "n2", 10, limits={"cpu": "8"})),
        "n1",
        frozenset({"a"}),
        nodes={"n1": {"labels": {"zone": "z1"}}, "n2": {"labels": {"zone": "z2"}, "unschedulable": True}},
    ),
    "the attach limit of a node": Row(
        wants(limits={}, volumes=[disk("p")]),
        (pod("a", "n1", 1, volumes=[disk("a")]), pod("b", "n1", 0)),
        "n1",
        frozenset({"a"}),
        before=lambda made: attachable(made, "p", "a"),
    ),
    "an attach limit that attached volumes of nobody use up": Row(
        wants(limits={}, volumes=[disk("p")]),
        (pod("a", "n1", 1, volumes=[disk("a")]),),
        text=none(1, "1 node(s) exceed max volume count"),
        before=lambda made: attachable(made, "p", "a", attached="a"),
    ),
    "a volume that one pod at a time may use": Row(
        wants(limits={}, volumes=[disk("p")]),
        (pod("a", "n1", 1, volumes=[disk("p")]), pod("b", "n2", 0)),
        "n1",
        frozenset({"a"}),
        nodes=TWO,
        before=lambda made: attachable(made, "p", mode="ReadWriteOncePod"),
    ),
    "a disk that a pod writes": Row(
        wants(limits={}, volumes=[ISCSI]),
        (pod("a", "n1", 1, volumes=[ISCSI]), pod("b", "n1", 0)),
        "n1",
        frozenset({"a"}),
    ),
    "victims still end on the nominated node": Row(
        wants(status={"nominatedNodeName": "n1"}),
        (cpu("a", "n1", 0, **ENDING), cpu("b", "n2", 0)),
        text="not eligible due to a terminating pod on the nominated node.",
        nodes=TWO,
    ),
    "no victim ends on the nominated node": Row(
        wants(status={"nominatedNodeName": "n1"}),
        (cpu("a", "n1", 5), cpu("b", "n2", 0)),
        "n2",
        frozenset({"b"}),
        nodes=TWO,
    ),
    "the nominated node is tainted by now": Row(
        wants(status={"nominatedNodeName": "n1"}),
        (cpu("a", "n1", 0, **ENDING), cpu("b", "n2", 0)),
        "n2",
        frozenset({"b"}),
        nodes={"n1": {"taints": [TAINT]}, "n2": {}},
    ),
    "the nominated node is gone": Row(
        wants(status={"nominatedNodeName": "gone"}), (cpu("a", "n1", 0),), "n1", frozenset({"a"})
    ),
    "room that is held for a higher pod of another scheduler": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4"), cpu("b", "n1", 2, "4"), nominated("q", "n1", 20, {"cpu": "4"})),
        "n1",
        frozenset({"a", "b"}),
    ),
    "room that is held for a lower pod of another scheduler": Row(
        wants(limits={"cpu": "4"}),
        (cpu("a", "n1", 1, "4"), cpu("b", "n1", 2, "4"), nominated("q", "n1", 5, {"cpu": "4"})),
        "n1",
        frozenset({"a"}),
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_victims(name: str) -> None:
    """The pods that end, the node that is nominated, or the words for why no pod ends, are as the row says."""
    await check(ROWS[name])
