"""The victims of a preemption: the cheapest pods of lower priority on one node whose end makes room for a pod.

The rules are those of kube-scheduler 1.36 (`plugins/defaultpreemption`, `SelectVictimsOnNode`, and
`framework/preemption`, `pickOneNodeForPreemption`). For a pod that wants one GPU, each GPU of a node is a choice of
its own, so all victims that have a GPU are on the same one. Pure.
"""

from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from placer.core.plan import Plan
from placer.scheduler.dry_run import NodeDryRun
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.preemption.budgets import Budgets
from plimsoll.ids import NodeName

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps, with a result. It takes one step, one pod, whenever it is asked for the next."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods whose end makes room.

    Attributes:
        node: their node.
        pods: at least one; the most important one stands first.
        violations: the number of them whose end violates a disruption budget.
        plan: the place of the preemptor once they are gone.
        mark: the state of the node for which this was found out.
    """

    node: NodeName
    pods: tuple[AssignedPod, ...]
    violations: int
    plan: Plan
    mark: Hashable = field(default=None, compare=False)

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """The lower, the better: violations, highest priority, sum of priorities, number of pods."""
        priorities = [one.priority for one in self.pods]
        # Each priority counts as positive, so that a few pods of negative priority are no better than one.
        total = sum(priority + 2**31 for priority in priorities)
        return self.violations, max(priorities), total, len(priorities)

    @property
    def started(self) -> str:
        """The earliest start among the victims with the highest priority."""
        highest = max(one.priority for one in self.pods)
        return min(one.started for one in self.pods if one.priority == highest)


def most_important_first(pods: Iterable[AssignedPod]) -> list[AssignedPod]:
    """Pods by falling priority; among equals, the pod that runs for the longest time comes first."""
    return sorted(pods, key=lambda one: (-one.priority, one.started))


def victims_among(
    dry_run: NodeDryRun, node: NodeName, lower: Sequence[AssignedPod], budgets: Budgets
) -> Steps[Victims | tuple[str, ...]]:
    """The fewest victims on a node among these pods, or the reasons that stay when all of them are gone.

    Args:
        dry_run: the node, with all its pods.
        node: its name.
        lower: the pods that may be victims.
        budgets: a victim that violates none is preferred.
    """
    for one in lower:
        dry_run.remove(one)
        yield
    left = dry_run.plan()
    if not isinstance(left, Plan):
        return left
    violating, others = yield from budgets.split(most_important_first(lower))
    victims: list[AssignedPod] = []
    violations = 0
    # Pods whose end violates a budget are spared first.
    for group, violation in ((violating, 1), (others, 0)):
        for one in group:
            yield
            dry_run.put_back(one)
            spared = dry_run.plan()
            if isinstance(spared, Plan):
                left = spared
                continue
            dry_run.remove(one)
            victims.append(one)
            violations += violation
    return Victims(node, tuple(most_important_first(victims)), violations, left)


def cheapest(found: Sequence[Victims]) -> Victims:
    """The best of some choices: the one of least `cost`; among equals, the victims that started last."""
    least = min(one.cost for one in found)
    return max((one for one in found if one.cost == least), key=lambda one: one.started)
