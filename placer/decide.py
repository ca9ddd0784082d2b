"""One decision over the sorted list: candidates from its head, a page at a time, until a page has a place.

What always holds: between reading the ledger and booking in it nothing is awaited, so two pods that are decided
at the same time see each other. Nodes without a report are no candidates; the caller names them in its reasons.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.ledger import Ledger
from placer.core.plan import NodeFit, Plan, Refusal, Request, plan, together
from placer.core.policies import Policy
from placer.metrics import Metrics
from placer.reports import ReportView
from placer.scores import ScoreList

PAGE_NODES: Final = 64
"""Nodes looked at before the first place is taken: enough to choose well, few enough to read in a millisecond."""


@dataclass(frozen=True, slots=True)
class Decider:
    """What every front end places over: one list, one view of the reports, one ledger."""

    scores: ScoreList
    reports: ReportView
    ledger: Ledger
    metrics: Metrics
    page_nodes: int = PAGE_NODES

    async def decide(self, request: Request, policy: Policy, fit: NodeFit = lambda _: ()) -> Plan | Refusal:
        """The best place on the first page of candidates that has one, booked in the ledger; or why none has.

        Whoever gets a plan must `ledger.forget` it when it cannot be carried out. Cancelling books nothing.

        Raises:
            ScoresAwayError: the list is out of reach or being refilled; decide again after a pause.
        """
        with self.metrics.decision_seconds.time():
            decided = await self._decide(request, policy, fit)
        self.metrics.decisions.labels("placed" if isinstance(decided, Plan) else "unplaceable").inc()
        return decided

    async def _decide(self, request: Request, policy: Policy, fit: NodeFit) -> Plan | Refusal:
        refusals: list[Refusal] = []
        async for names in self.scores.candidates(self.page_nodes):
            views = [view for name in names if (view := self.reports.view(name)) is not None]
            tried = plan(request, views, self.ledger, policy, fit)
            if isinstance(tried, Plan):
                self.ledger.book(tried.booking)
                return tried
            refusals.append(tried)
        return together(refusals)
