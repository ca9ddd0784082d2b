"""Gathers the verdicts on all nodes for one waiting pod, and keeps a bounded part of them.

What always holds: the result does not depend on the order of the nodes. The page of nodes is in the order of their
names, so a page that is asked for by the last name of the page before skips and repeats no node that stayed.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from placer.core.plan import Plan
from placer.core.reasons import Reason
from plimsoll.ids import NodeName
from plimsoll.placer_api.explain import (
    CANDIDATES_SHOWN,
    NEAREST_SHOWN,
    CandidateRow,
    NodeReasons,
    NodeShortage,
    Preemption,
    ReasonCount,
    Waiting,
)

FREEABLE: Final = frozenset(
    reason.value
    for reason in (
        Reason.GPU_MEMORY,
        Reason.GPU_SHARE,
        Reason.GPU_SHARERS,
        Reason.GPU_NOT_EMPTY,
        Reason.GPU_TAKEN_WHOLE,
        Reason.GPU_COUNT,
        Reason.ANTI_AFFINITY,
        Reason.EXCLUSION,
        Reason.EXCLUDED,
        Reason.OWNER_MODEL,
    )
)
"""The reasons that go away when pods on the node's GPUs end, or that other GPUs of the node may not have."""


@dataclass(frozen=True, slots=True)
class PageAsked:
    """The page of nodes without a place that an explanation has.

    Attributes:
        limit: the most nodes on it, 1 or more.
        after: the name after which it begins; empty for the first page.
        reason: only nodes whose first reason is this one; None for all.
    """

    limit: int = 20
    after: str = ""
    reason: str | None = None


@dataclass(slots=True)
class Scan:
    """The verdicts so far.

    Attributes:
        asked: the page to keep.
        nodes: the number of nodes that were noted.
    """

    asked: PageAsked
    nodes: int = 0
    _counts: Counter[str] = field(default_factory=Counter)
    _plans: list[Plan] = field(default_factory=list)
    _page: list[NodeReasons] = field(default_factory=list)
    _nearest: list[tuple[float, NodeShortage]] = field(default_factory=list)
    _helped: tuple[float, NodeShortage] | None = None

    def fits(self, plan: Plan) -> None:
        """Note a node that has a place."""
        self.nodes += 1
        self._plans.append(plan)
        if len(self._plans) > 2 * CANDIDATES_SHOWN:
            self._plans = self._best()

    def refuses(self, node: NodeName, reasons: tuple[str, ...]) -> None:
        """Note a node without a place; the first of its reasons counts."""
        self.nodes += 1
        self._counts[reasons[0]] += 1
        if node > self.asked.after and self.asked.reason in (None, reasons[0]):
            self._page.append(NodeReasons(node=node, reasons=reasons))
            if len(self._page) > 2 * self.asked.limit + 64:
                self._page = self._first()

    def lacks(self, distance: float, shortage: NodeShortage) -> None:
        """Note what would have to be freed on a node that was noted as without a place."""
        self._nearest.append((distance, shortage))
        if len(self._nearest) > 2 * NEAREST_SHOWN:
            self._nearest = self._least()
        if shortage.lower_priority_suffices:
            known = self._helped
            if known is None or (distance, shortage.node) < (known[0], known[1].node):
                self._helped = (distance, shortage)

    def result(self, waiting: Waiting) -> Waiting:
        """An explanation with these verdicts; queue, message and relocation are those of `waiting`."""
        page = self._first()
        more = page[self.asked.limit - 1].node if len(page) > self.asked.limit else ""
        return Waiting(
            queue=waiting.queue,
            message=waiting.message,
            candidates=tuple(_row(plan) for plan in self._best()),
            nodes=self.nodes,
            reasons=tuple(
                ReasonCount(reason=reason, nodes=nodes)
                for reason, nodes in sorted(self._counts.items(), key=lambda one: (-one[1], one[0]))
            ),
            page=tuple(page[: self.asked.limit]),
            more=more,
            nearest=tuple(shortage for _, shortage in self._least()),
            preemption=self._preemption(),
            relocation=waiting.relocation,
        )

    def _best(self) -> list[Plan]:
        return heapq.nsmallest(
            CANDIDATES_SHOWN, self._plans, key=lambda plan: (-plan.score, plan.booking.node)
        )

    def _first(self) -> list[NodeReasons]:
        """One node more than the page has, so that its existence shows."""
        return heapq.nsmallest(self.asked.limit + 1, self._page, key=lambda one: one.node)

    def _least(self) -> list[tuple[float, NodeShortage]]:
        return heapq.nsmallest(NEAREST_SHOWN, self._nearest, key=lambda one: (one[0], one[1].node))

    def _preemption(self) -> Preemption | None:
        if self._plans or not self._nearest:
            return None
        if self._helped is None:
            text = "No: on no node do pods of lower priority hold what is lacking on its GPUs."
            return Preemption(could_help=False, text=text)
        shortage = self._helped[1]
        lower = sum(holder.lower_priority for gpu in shortage.gpus for holder in gpu.holders)
        pods = "1 pod" if lower == 1 else f"{lower} pods"
        text = f"By priority alone, yes: {pods} of lower priority on GPUs of {shortage.node} hold enough."
        return Preemption(could_help=True, text=text)


def _row(plan: Plan) -> CandidateRow:
    return CandidateRow(
        node=plan.booking.node,
        score=plan.score,
        gpus={str(container): gpus for container, gpus in plan.gpus.items()},
        sub_scores={where: dict(parts) for where, parts in plan.sub_scores.items()},
    )
