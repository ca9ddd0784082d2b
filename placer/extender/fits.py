"""The answers of nodes to pods of one signature: the score of the place that a node has, or the reasons against it.

kube-scheduler asks about all candidate nodes for every pod, so answers are kept by signature. What always holds: an
answer is of this moment. It is computed anew once a booking or a report has changed the node's rooms. Where room is
held for nominated pods, it is computed for each question, because pods of one signature differ by priority.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from placer.core.booking import Booking
from placer.core.plan import Plan
from placer.core.policy_context import Candidate
from placer.decide import Decider
from placer.extender.demand import ExtenderDemand
from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.nominator import Nomination, bookings_of
from placer.scheduler.profile import shortages
from plimsoll.ids import NodeName

SIGNATURES: Final = 8
"""The signatures of pods whose answers are kept: some 4 MiB each on 20 000 nodes."""

Answer = float | str
"""The score of the node's place, or the reasons why it has none, for people."""


@dataclass(slots=True)
class NodeAnswers:
    """The answers to pods of one signature, each with the rooms that it was computed from.

    Attributes:
        computed: the number of answers that were computed.
    """

    _decider: Decider
    _cache: Cache
    computed: int = 0
    _answers: dict[NodeName, tuple[Candidate | None, Answer]] = field(default_factory=dict)

    def answer(self, asked: ExtenderDemand, node: NodeName) -> Answer:
        """The answer of a node to such a pod, which is not booked, at this moment."""
        held = self._cache.nominator.against(asked.pod, node)
        if held:
            return self._beside(asked, node, held)
        candidate = self._decider.candidates.find(node)
        known = self._answers.get(node)
        if known is not None and known[0] is candidate:
            return known[1]
        answer = self._computed(asked, node)
        if (
            len(self._answers) > 2 * len(self._decider.reports) + SIGNATURES
        ):  # many nodes have left the cluster
            self._answers.clear()
        self._answers[node] = candidate, answer
        return answer

    def _beside(self, asked: ExtenderDemand, node: NodeName, held: Sequence[Nomination]) -> Answer:
        """The answer where room is held. kube-scheduler does not know of the placer's own nominated pods."""
        short = shortages(self._cache, asked.pod, asked.needs, node)
        if not short:
            return self._computed(asked, node, bookings_of(held))
        self.computed += 1
        return ", ".join(short)

    def _computed(self, asked: ExtenderDemand, node: NodeName, held: Collection[Booking] = ()) -> Answer:
        self.computed += 1
        tried = self._decider.plan_on(asked.request, asked.policy, node, lambda _: held)
        return tried.score if isinstance(tried, Plan) else ", ".join(tried.reasons[node])


@dataclass(slots=True)
class Fits:
    """The answers for the signatures that were asked for last."""

    decider: Decider
    cache: Cache
    _known: dict[Hashable, NodeAnswers] = field(default_factory=dict)  # the signature used last stands last

    def of(self, asked: ExtenderDemand) -> NodeAnswers:
        """The answers to pods like this one."""
        signature = self._signature(asked)
        known = self._known.pop(signature, None)
        if known is None:
            if len(self._known) >= SIGNATURES:
                del self._known[next(iter(self._known))]
            known = NodeAnswers(self.decider, self.cache)
        self._known[signature] = known
        return known

    def _signature(self, asked: ExtenderDemand) -> Hashable:
        """Equal for pods that get the same answers now."""
        demand, owner = asked.request.demand, asked.request.owner
        learns = any(container.best_effort for container in demand.containers)
        expected = self.decider.ledger.best_effort_bytes(owner) if learns else None
        ledger = self.decider.ledger
        objections = asked.policy.state(asked.request, ledger)
        return demand, asked.policy.name, expected, ledger.fixed(demand), objections
