"""Preemption on the pure core, in a table: which pods end, and on which node, as kube-scheduler decides for its part.

Rows with CPU, ports and pods alone give what kube-scheduler 1.36 gives; `test_preemption_servers` asks it for some.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from plimsoll.kube.models import DisruptionBudget, Pod
from plimsoll.quantity import GIB
from tests.placer.core.worlds import task
from tests.placer.kube.boards import (
    ENDING,
    SPREAD,
    TAINT,
    WHOLE,
    Board,
    attachable,
    board,
    budget,
    cpu,
    disk,
    on_gpu,
    pod,
)
from tests.placer.kube.scene import MEMORY, SHARE, keeper

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
EARLY, LATE, LATER = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"


def wants(priority: int = 10, limits: dict[str, str] | None = None, **more: Any) -> Pod:  # noqa: ANN401 - passed on
    """The refused pod; it wants all CPU of a node unless it says otherwise."""
    return pod("p", None, priority, {"cpu": "8"} if limits is None else limits, **more)


def nominated(name: str, node: str, priority: int, limits: dict[str, str]) -> Pod:
    """A pod of another scheduler that is nominated for a node."""
    status = {"nominatedNodeName": node}
    return pod(name, None, priority, limits, scheduler="default-scheduler", status=status)


@dataclass(frozen=True)
class Row:
    """A cluster with a refused pod.

    Attributes:
        wanted: the refused pod.
        pods: the others.
        node, victims: the nomination that must come.
        text: what the refusal must say of preemption, after `preemption: `, where no pod may end.
        nodes: the nodes with what is special about each.
        gpus: the free GiB of each GPU of 24 GiB, by node.
        budgets: the disruption budgets.
        before: changes the board before the pod is refused.
    """

    wanted: Pod
    pods: tuple[Pod, ...]
    node: str = ""
    victims: frozenset[str] = frozenset()
    text: str = ""
    nodes: dict[str, dict[str, object]] = field(default_factory=lambda: {"n1": {}})
    gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    budgets: tuple[DisruptionBudget, ...] = ()
    before: Callable[[Board], object] = lambda _: None


def none(total: int, *reasons: str) -> str:
    """The text where no victims help."""
    return f"0/{total} nodes are available: {', '.join(reasons)}."


ISCSI = {"name": "disk", "iscsi": {"iqn": "x"}}
TWO: dict[str, dict[str, object]] = {"n1": {}, "n2": {}}
GPU_LIMITS = {MEMORY: str(20 * GIB)}

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
        before=lambda board: attachable(board, "p", "a"),
    ),
    "an attach limit that attached volumes of nobody use up": Row(
        wants(limits={}, volumes=[disk("p")]),
        (pod("a", "n1", 1, volumes=[disk("a")]),),
        text=none(1, "1 node(s) exceed max volume count"),
        before=lambda board: attachable(board, "p", "a", attached="a"),
    ),
    "a volume that one pod at a time may use": Row(
        wants(limits={}, volumes=[disk("p")]),
        (pod("a", "n1", 1, volumes=[disk("p")]), pod("b", "n2", 0)),
        "n1",
        frozenset({"a"}),
        nodes=TWO,
        before=lambda board: attachable(board, "p", mode="ReadWriteOncePod"),
    ),
    "a disk that a pod writes": Row(
        wants(limits={}, volumes=[ISCSI]),
        (pod("a", "n1", 1, volumes=[ISCSI]), pod("b", "n1", 0)),
        "n1",
        frozenset({"a"}),
    ),
    "GPU memory": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "GPU memory that a victim's processes hold": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        "n1",
        frozenset({"a"}),
        before=lambda board: board.scene.report("n1", 24, tasks=(task("a", "GPU-n1-0", 12 * GIB),)),
    ),
    "GPU memory that nobody's processes hold": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        text=none(1, "1 Insufficient plimsoll.dev/gpu-memory on one GPU"),
        gpus={"n1": (12,)},
    ),
    "a compute share": Row(
        wants(limits={SHARE: "60"}),
        (on_gpu("a", "GPU-n1-0", 0, share=50), on_gpu("b", "GPU-n1-0", 5, share=30)),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "a whole GPU: the one with the fewest pods": Row(
        wants(limits={WHOLE: "1"}),
        (
            *(on_gpu(f"a{index}", "GPU-n1-0", 1, 4, started=LATE) for index in range(3)),
            on_gpu("b", "GPU-n1-1", 1, 20, started=EARLY),
        ),
        "n1",
        frozenset({"b"}),
        gpus={"n1": (24, 24)},
    ),
    "a GPU that belongs to one pod alone": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, is_whole=True),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "the victims are on one GPU": Row(
        wants(limits=GPU_LIMITS),
        (
            on_gpu("a", "GPU-n1-0", 1, 8, started=LATE),
            on_gpu("b", "GPU-n1-0", 1, 8, started=EARLY),
            on_gpu("c", "GPU-n1-1", 1, 8, started=LATER),
            on_gpu("d", "GPU-n1-1", 3, 8, started=EARLY),
        ),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24)},
    ),
    "two GPUs": Row(
        wants(limits={WHOLE: "2"}),
        (on_gpu("a", "GPU-n1-0", 1, 8), on_gpu("b", "GPU-n1-1", 2, 8), on_gpu("c", "GPU-n1-2", 3, 8)),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24, 24)},
    ),
    "a GPU of another model": Row(
        wants(limits=GPU_LIMITS, annotations={"plimsoll.dev/gpu-model": "NVIDIA H100"}),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        text=none(1, f"1 {NOT_HELPFUL}"),
        gpus={"n1": (24,)},
    ),
    "a node without a report": Row(
        wants(limits=GPU_LIMITS), (pod("a", "n1", 0),), text=none(1, f"1 {NOT_HELPFUL}")
    ),
    "a pod whose GPUs are unknown": Row(
        wants(limits=GPU_LIMITS),
        (pod("a", "n1", 0, GPU_LIMITS),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24, 24)},
    ),
    "GPU and CPU": Row(
        wants(limits={**GPU_LIMITS, "cpu": "4"}),
        (
            cpu("a", "n1", 2, "6"),
            on_gpu("b", "GPU-n1-0", 1, 10, cpu="1"),
            on_gpu("c", "GPU-n1-1", 5, 10, cpu="1"),
        ),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24)},
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
    row = ROWS[name]
    async with board() as made:
        for node, more in row.nodes.items():
            made.scene.node(node, **more)  # type: ignore[arg-type]
        for node, free_gib in row.gpus.items():
            made.scene.report(node, *free_gib)
        made.budgets(*row.budgets)
        for one in row.pods:
            made.scene.show(one)
        row.before(made)
        explained = await made.refuse(row.wanted)
        assert explained is not None
        if row.text:
            assert explained.text.partition(" preemption: ")[2] == row.text
            assert not made.deleted
        else:
            assert made.nomination("p") == (row.node, set(row.victims)), explained.text
