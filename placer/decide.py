"""The decision on a pod: candidates from memory, the best first, until no later candidate can be better.

What always holds: a decision awaits nothing, and its plan is booked when it returns, so no two decisions get the same
room. A decision reads a bounded number of nodes, whatever the size of the cluster. Nodes without a report, and nodes
that have been silent for too long, are no candidates.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from prometheus_client import Histogram

from placer.core.booking import Booking
from placer.core.candidates import Candidates
from placer.core.dry_run import GpuDryRun
from placer.core.explain.expected import expected_of, is_expected
from placer.core.learned import Learned
from placer.core.ledger import Ledger
from placer.core.node_scores import FULL_SCORE, PREFERENCES_SHARE, TotalScore
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import Policy
from placer.core.policies.installed import Installed
from placer.core.policy_context import Candidate, Request
from placer.core.pool import Pool
from placer.core.refusal import Refusal, together
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.events import NodeState, Report
from plimsoll.ids import NodeName
from plimsoll.part.log import get_logger
from plimsoll.placer_api.explain import Expected

SLOW_S: Final = 0.05
"""The time of one decision from which the placer warns: the policy alone then holds it to 20 pods a second."""

WARN_AGAIN_S: Final = 60.0


class PolicyTimes:
    """Measures decisions by policy, and warns of a slow policy of another package: everything else waits for it."""

    def __init__(self, seconds: Histogram, clock_s: Callable[[], float] = time.perf_counter) -> None:
        """Measure into a histogram.

        Args:
            seconds: with the label `policy`.
            clock_s: a clock that never goes back, in seconds.
        """
        self._seconds = seconds
        self._clock_s = clock_s
        self._warned_s: dict[str, float] = {}

    @contextmanager
    def measured(self, policy: Policy) -> Iterator[None]:
        """Measure a decision by this policy, and warn if it is another package's and slow, once a minute."""
        began_s = self._clock_s()
        yield
        now_s = self._clock_s()
        self._seconds.labels(policy.name).observe(now_s - began_s)
        if not isinstance(policy, Installed) or now_s - began_s < SLOW_S:
            return
        if now_s - self._warned_s.get(policy.name, -WARN_AGAIN_S) >= WARN_AGAIN_S:
            self._warned_s[policy.name] = now_s
            get_logger().warning(
                "a policy of another package held up the placer",
                policy=policy.name,
                took_ms=round(1000 * (now_s - began_s)),
                remedy="make it faster, or uninstall it",
            )


MOST_PLANS: Final = 64
"""The number of nodes with a place that one decision compares: enough to choose well. Only a pod that wants several
GPUs needs more than one."""

MOST_UNFIT: Final = 128
"""The number of nodes without a place that one decision passes over: their checks take some 3 ms. For a pod that
takes longer on each node, both numbers are smaller."""

NodeFit = Callable[[NodeName], tuple[str, ...]]
"""The reasons why a node is unfit apart from its GPUs; empty for a fit node."""

HeldBookings = Callable[[NodeName], Collection[Booking]]
"""The bookings that count on a node beside those of the ledger: GPUs that are held for other pods."""


def nothing_held(_: NodeName) -> Collection[Booking]:
    """No GPU of any node is held."""
    return ()


PromisingNodes = Callable[[], Collection[NodeName]]
"""Some nodes that may meet a pod's wishes well; few, or quick to look up."""

FOR_TAINTS: Final = 16
"""The number of nodes that one decision reads only because they may meet the wishes better, for a pod that states
none itself: where every node discourages pods, each decision would else take milliseconds."""


@dataclass(frozen=True, slots=True)
class NodeWishes:
    """The wishes of a pod.

    Attributes:
        met: how far a node that fits meets them.
        most: the number of nodes that a decision reads for the sake of wishes alone.
        promising: gives some nodes that may meet them well. They are read next after the best candidate, unless this
            meets all wishes.
    """

    met: Callable[[NodeName], TotalScore] = lambda _: FULL_SCORE
    most: int = 0
    promising: PromisingNodes | None = None


@dataclass(frozen=True, slots=True)
class NodeSide:
    """A pod's decision apart from GPUs, as its front end sees it.

    Attributes:
        fit: the front end's own filter.
        weight: a node takes this many times as long as for a small pod, so fewer nodes are read.
        wishes: the pod's wishes.
        held: see `HeldBookings`.
    """

    fit: NodeFit
    weight: int = 1
    wishes: NodeWishes = NodeWishes()
    held: HeldBookings = nothing_held


@dataclass(slots=True)
class Decider:
    """Decides for every front end, over one view of the reports and one ledger.

    Attributes:
        pool: the GPUs that may be used.
        wall_s: the wall clock, in seconds since 1970.
        learned: what the pods of each owner needed, from the reports.
        times: the time of decisions by policy.
        candidates: the GPUs of all reported nodes, ranked.
        nodes_read: the number of nodes that decisions have read.
        gpus_read: the number of GPUs that decisions have read, among the candidates and on these nodes.
    """

    reports: ReportView
    ledger: Ledger
    metrics: Metrics
    pool: Pool = field(default_factory=Pool)
    wall_s: Callable[[], float] = time.time
    learned: Learned = field(init=False)
    times: PolicyTimes = field(init=False)
    candidates: Candidates = field(init=False)
    nodes_read: int = field(default=0, init=False)
    gpus_read: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.learned = Learned(self.ledger)
        self.times = PolicyTimes(self.metrics.decisions.policy_seconds)
        self.metrics.decisions.learned_owners.set_function(lambda: len(self.learned.records))
        self.candidates = Candidates(self.ledger, self.reports.view, self.pool)
        for node in self.reports:
            self.ledger.owner_models.learn(self.reports[node])
            self.candidates.note_report(node)
        self.reports.on_change(self.candidates.note_report)
        self.reports.on_report(self.learn)

    def learn(self, state: NodeState) -> None:
        """Learn from a report what the pods that are booked need, and the models of its GPUs."""
        self.ledger.owner_models.learn(state)
        self.learned.observe(state, self.wall_s())

    def learn_event(self, report: Report) -> None:
        """Learn from the load or the end of a task."""
        self.learned.take(report, self.wall_s())

    def decide(
        self,
        request: Request,
        policy: Policy,
        fit: NodeFit = lambda _: (),
        among: Iterable[NodeName] | None = None,
    ) -> Plan | Refusal:
        """Book the best place, or refuse.

        The refusal has the reasons of the nodes that were read. Where many nodes have the room and fail `fit`, it is
        not final: a node that was not read may have a place. The caller must `ledger.forget` a plan that it cannot
        carry out.

        Args:
            request: the pod.
            policy: the order among GPUs that fit.
            fit: the front end's own filter.
            among: the nodes to choose from, in their order of preference. None: all reported nodes.

        Raises:
            NotBookedError: the pod is booked already.
        """
        return self.counted(lambda: self.choose(request, policy, among, NodeSide(fit)))

    def counted(self, decide: Callable[[], Plan | Refusal]) -> Plan | Refusal:
        """Make a decision, counted with its time and the nodes and GPUs that it read."""
        reads = self.candidates.reads
        nodes, gpus, read = self.nodes_read, self.gpus_read, reads.keys + reads.chunks
        with self.metrics.decisions.seconds.time():
            decided = decide()
        self.gpus_read += reads.keys + reads.chunks - read
        self.metrics.decisions.made.labels("placed" if isinstance(decided, Plan) else "unplaceable").inc()
        self.metrics.decisions.nodes_read.inc(self.nodes_read - nodes)
        self.metrics.decisions.gpus_read.inc(self.gpus_read - gpus)
        return decided

    def choose(
        self, request: Request, policy: Policy, among: Iterable[NodeName] | None, side: NodeSide
    ) -> Plan | Refusal:
        """`decide` as a part of a decision, which is counted elsewhere.

        Among places whose scores differ by less than `PREFERENCES_SHARE`, the pod's wishes decide.
        """
        self.ledger.workload.see(request.pod, request.demand, request.cpu_milli)
        candidates = self.candidates.best_first(request, policy) if among is None else self._named(among)
        if side.wishes.promising is not None:
            candidates = self._led(candidates, request, side.wishes.promising)
        with self.times.measured(policy):
            decided = self._best(request, policy, candidates, side)
        if isinstance(decided, Plan):
            if is_expected(decided.booking):
                decided = replace(decided, expected=self.expected(request.owner).text)
            self.ledger.book(decided.booking)
        return decided

    def expected(self, owner: str | None) -> Expected:
        """The memory that a container without a declaration is expected to need, by its pod's owner."""
        return expected_of(owner, self.ledger, self.learned.expectation(owner, self.wall_s()))

    def plan_on(
        self, request: Request, policy: Policy, node: NodeName, held: HeldBookings = nothing_held
    ) -> Plan | Refusal:
        """Plan on one node, without booking; a node without a report has no GPU."""
        found = self.candidates.find(node) or Candidate.without_report(node)
        return self._plan_on(request, policy, found, held)

    def _plan_on(
        self, request: Request, policy: Policy, candidate: Candidate, held: HeldBookings
    ) -> Plan | Refusal:
        node = candidate.node
        if more := held(node.node):
            return GpuDryRun(node, self.ledger, more).plan(request, policy)
        return plan_on(request, node, self.ledger, policy, candidate.rooms)

    def _named(self, nodes: Iterable[NodeName]) -> Iterator[Candidate]:
        return (self.candidates.find(node) or Candidate.without_report(node) for node in nodes)

    def _led(
        self, candidates: Iterator[Candidate], request: Request, promising: PromisingNodes
    ) -> Iterator[Candidate]:
        """The best candidate, then the promising nodes, then the other candidates."""
        best = next(candidates, None)
        if best is None:
            return
        yield best
        names = promising()
        for name in names:
            found = self.candidates.find(name) or Candidate.without_report(name)
            if name != best.node.node and (found.rooms or not request.demand.containers):
                yield replace(found, score_bound=best.score_bound)  # no candidate has a higher one
        yield from (candidate for candidate in candidates if candidate.node.node not in names)

    def _best(
        self, request: Request, policy: Policy, candidates: Iterable[Candidate], side: NodeSide
    ) -> Plan | Refusal:
        # Every place scores alike for a pod without a GPU.
        highest = inf if request.demand.containers else 0.0
        best: Plan | None = None
        best_total = 0.0
        plans = for_wishes = 0
        refusals: list[Refusal] = []
        for candidate in candidates:
            if best is not None:
                bound = min(candidate.score_bound, highest)
                for_wishes += bound <= best.score
                if bound + PREFERENCES_SHARE <= best_total or for_wishes * side.weight > side.wishes.most:
                    break
            tried = self._try(request, policy, candidate, side)
            if isinstance(tried, Refusal):
                refusals.append(tried)
            else:
                plans += 1
                granted = side.wishes.met(candidate.node.node)
                if best is None or tried.score + granted.score > best_total:
                    best, best_total = tried.wished(granted.parts), tried.score + granted.score
            if plans * side.weight >= MOST_PLANS or len(refusals) * side.weight >= MOST_UNFIT:
                break
        if best is not None:
            return best
        return replace(together(refusals), is_final=len(refusals) * side.weight < MOST_UNFIT)

    def _try(self, request: Request, policy: Policy, candidate: Candidate, side: NodeSide) -> Plan | Refusal:
        """Plan on a node, if it is fit apart from its GPUs."""
        self.nodes_read += 1
        node = candidate.node
        unfit = side.fit(node.node)
        if unfit:
            return Refusal({node.node: unfit})
        self.gpus_read += len(node.gpus)
        return self._plan_on(request, policy, candidate, side.held)
