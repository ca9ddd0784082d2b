"""Rows of tables about preemption: a cluster with a refused pod, and the nomination that must come."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from plimsoll.kube.models import DisruptionBudget, Pod
from tests.placer.kube.preemption_scene import PreemptionScene, pod, preemption_scene

NOT_HELPFUL = "Preemption is not helpful for scheduling"
EARLY, LATE, LATER = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"
TWO: dict[str, dict[str, object]] = {"n1": {}, "n2": {}}


def wants(priority: int = 10, limits: dict[str, str] | None = None, **more: Any) -> Pod:  # noqa: ANN401 - passed on
    """The refused pod; it wants all CPU of a node unless it says otherwise."""
    return pod("p", None, priority, {"cpu": "8"} if limits is None else limits, **more)


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
        before: changes the scene before the pod is refused.
    """

    wanted: Pod
    pods: tuple[Pod, ...]
    node: str = ""
    victims: frozenset[str] = frozenset()
    text: str = ""
    nodes: dict[str, dict[str, object]] = field(default_factory=lambda: {"n1": {}})
    gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    budgets: tuple[DisruptionBudget, ...] = ()
    before: Callable[[PreemptionScene], object] = lambda _: None


def none(total: int, *reasons: str) -> str:
    """The text where no victims help."""
    return f"0/{total} nodes are available: {', '.join(reasons)}."


async def check(row: Row) -> None:
    """The pods that end, the node that is nominated, or the words for why no pod ends, are as the row says."""
    async with preemption_scene() as made:
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
