"""Pod disruption budgets: which of some pods cannot be disrupted without a violation.

Preemption and eviction read budgets differently. For preemption, rules and order are those of kube-scheduler 1.36
(`plugins/defaultpreemption`, `filterPodsWithPDBViolation`): a budget is no obstacle, and victims that violate none
are preferred. For eviction, the rules are those of the API server 1.36 (`registry/core/pod/storage/eviction.go`): a
budget with an empty selector selects all pods of its namespace, and a pod of several budgets is never evicted. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from placer.core.label_selector import ParsedSelector, parse_selector
from placer.scheduler.pods.assigned_pods import AssignedPod
from plimsoll.kube.models import DisruptionBudget, LabelSelector, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.part.log import get_logger


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: ParsedSelector
    allowed: int
    disrupted: frozenset[str]


class Budgets:
    """All budgets, by namespace.

    Attributes:
        are_read: whether all budgets were read once.
        serial: grows with each change.
    """

    def __init__(self) -> None:
        self.are_read = False
        self.serial = 0
        self._budgets: defaultdict[str, dict[str, _Budget]] = defaultdict(dict)

    def on_change(self, change: Change[DisruptionBudget]) -> None:
        """Take a change from the watch."""
        self.serial += 1
        match change:
            case Added(budget) | Modified(budget):
                self._put(budget)
            case Deleted(budget):
                self._drop(budget)
            case Synced():
                self.are_read = True

    def split(
        self, pods: Sequence[AssignedPod]
    ) -> Generator[None, None, tuple[list[AssignedPod], list[AssignedPod]]]:
        """The pods whose end would violate a budget if all of these ended, and the others; both keep their order.

        It is found out in steps, one for each pod.
        """
        left: dict[tuple[str, str], int] = {}
        violating: list[AssignedPod] = []
        others: list[AssignedPod] = []
        for one in pods:
            (violating if self._violates(one, left) else others).append(one)
            yield
        return violating, others

    def forbid(self, pods: Sequence[AssignedPod]) -> bool:
        """Whether the eviction API would refuse one of these pods if all of them were evicted.

        A pod that is not ready counts like any other, although the API evicts some of those in spite of a budget.
        """
        taken = Counter[tuple[str, str]]()
        for one in pods:
            budgets = tuple(self._of(one.pod))
            if len(budgets) > 1:
                return True
            for name, budget in budgets:
                key = (one.pod.metadata.namespace, name)
                taken[key] += 1
                if taken[key] > budget.allowed:
                    return True
        return False

    def _of(self, pod: Pod) -> Iterator[tuple[str, _Budget]]:
        """The budgets that select a pod."""
        labels = pod.metadata.labels or {}
        for name, budget in self._budgets.get(pod.metadata.namespace, {}).items():
            if budget.selector.matches(labels):
                yield name, budget

    def _violates(self, one: AssignedPod, left: dict[tuple[str, str], int]) -> bool:
        """Count one more disruption in `left`, by budget; whether a budget does not allow it."""
        meta, violated = one.pod.metadata, False
        if not meta.labels:
            return False
        for name, budget in self._of(one.pod):
            # As in kube-scheduler, an empty selector selects nothing here.
            if meta.name in budget.disrupted or not budget.selector.requirements:
                continue
            key = (meta.namespace, name)
            left[key] = left.get(key, budget.allowed) - 1
            violated |= left[key] < 0
        return violated

    def _put(self, budget: DisruptionBudget) -> None:
        meta, status = budget.metadata, budget.status
        selector: LabelSelector | None = None
        try:
            if budget.spec.selector is not UNSET:
                selector = msgspec.json.decode(budget.spec.selector, type=LabelSelector | None)
        except msgspec.MsgspecError as error:
            get_logger().error(
                "disruption budget cannot be read", namespace=meta.namespace, name=meta.name, error=str(error)
            )
        if selector is None:
            self._drop(budget)
            return
        disrupted = frozenset(status.disruptedPods or ())
        self._budgets[meta.namespace][meta.name] = _Budget(
            parse_selector(selector, unknown=True), status.disruptionsAllowed, disrupted
        )

    def _drop(self, budget: DisruptionBudget) -> None:
        meta = budget.metadata
        self._budgets[meta.namespace].pop(meta.name, None)
        if not self._budgets[meta.namespace]:
            del self._budgets[meta.namespace]
