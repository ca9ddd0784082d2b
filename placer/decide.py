"""One decision over the sorted list: candidates from its head, a page at a time, until a page has a place.

What always holds: nothing is awaited between reading the ledger and booking there, so two decisions at the same time
see each other's bookings. Nodes without a report are no candidates, and the caller names them in its reasons. Nodes
that have been silent for too long are no candidates either, with a reason of their own.
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
"""Nodes that one plan considers: enough to choose well, few enough to read in a millisecond."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides for every front end, over one sorted list, one view of the reports and one ledger."""

    scores: ScoreList
    reports: ReportView
    ledger: Ledger
    metrics: Metrics
    page_nodes: int = PAGE_NODES

    async def decide(self, request: Request, policy: Policy, fit: NodeFit = lambda _: ()) -> Plan | Refusal:
        """Book the best place on the first page of candidates that has one; the refusal names why none has.

        The caller must `ledger.forget` a plan that it cannot carry out. Cancelling books nothing.

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
            views, silent = self.reports.candidates(names)
            tried = plan(request, views, self.ledger, policy, fit)
            if isinstance(tried, Plan):
                self.ledger.book(tried.booking)
                return tried
            refusals += [tried, Refusal(silent)]
        return together(refusals)
