"""The local front end's pods for people: explanations, and rows of the live page.

The pods have no priority and no CPU request, and wait in order of arrival.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from placer.api.explaining import SLICE, Turns, rest
from placer.core.booking import Booking
from placer.core.explain.running import PodFacts, running_of
from placer.core.explain.scan import FREEABLE, PageAsked, Scan
from placer.core.explain.shortage import Freeing, PodIdentity
from placer.core.explain.slowness import LimitNews
from placer.core.plan import Plan
from placer.core.reasons import without_unhealthy
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.live.pods import PodName, asks
from placer.local.frontend import LocalFrontEnd, QueuedPod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES
from plimsoll.placer_api import explain as wire
from plimsoll.placer_api.explain import Explained, PodState
from plimsoll.placer_api.http import PodRow
from plimsoll.placer_api.live import WaitingPod


@dataclass(slots=True)
class LocalExplainer:
    """Explains pods.

    Attributes:
        front_end: has the pods.
        decider: decides on them.
        news_of: gives recent events about a pod's limits; None where none are read.
    """

    front_end: LocalFrontEnd
    decider: Decider
    news_of: Callable[[PodUid], tuple[LimitNews, ...]] | None = None
    _turns: Turns = field(default_factory=Turns)

    async def explain(self, namespace: str, name: str, page: PageAsked) -> Explained | None:
        """Explain a pod, or the last one of that name that ended; None for an unknown pod.

        Raises:
            NotExplainedError: too many explanations wait.
        """
        row = self.front_end.pods.last(namespace, name)
        if row is None:
            return None
        if row.phase in TERMINAL_PHASES:
            return _explained(row, PodState.ENDED, f"The pod has ended: {row.phase}. {row.message}".rstrip())
        if row.node is not None:
            return self._running(row)
        async with self._turns.turn():
            return await self._waiting(row, page)

    def _running(self, row: PodRow) -> Explained:
        assert row.node is not None, "a pod without a node waits"
        reports, ledger = self.decider.reports, self.decider.ledger
        booking = ledger.booking(row.uid) or Booking(row.uid, row.node, ())
        silent = row.node in reports.silent
        news = self.news_of(row.uid) if self.news_of is not None else None
        running = running_of(booking, ledger, PodFacts(reports.get(row.node), silent=silent, news=news))
        return _explained(
            row, PodState.RUNNING, f"The pod runs on {row.node}. {running.verdict}.", running=running
        )

    async def _waiting(self, row: PodRow, page: PageAsked) -> Explained:
        queued = self.front_end.queued(row.uid)
        if queued is None:
            return _explained(
                row, PodState.BINDING, "The pod has a place, and its processes are being started."
            )
        loop, scan = asyncio.get_running_loop(), Scan(page)
        freeing = Freeing(queued.request, queued.policy, 0, self.decider.ledger, self._identity)
        waits_s, ahead = loop.time() - queued.since_s, self.front_end.ahead_of(queued)
        queue = wire.QueuePosition(place="waiting", waits_s=waits_s, ahead=ahead)
        nodes = self.front_end.nodes
        for start in range(0, len(nodes), SLICE):
            began_s = loop.time()
            for node in nodes[start : start + SLICE]:
                self._judge(node, queued, scan, freeing)
            await rest(began_s)
        waiting = scan.result(wire.Waiting(queue=queue, message=row.message))
        text = f"The pod waits: {row.message}" if row.message else "The pod waits for its first try."
        return _explained(row, PodState.WAITING, text, waiting=waiting)

    def _judge(self, node: NodeName, queued: QueuedPod, scan: Scan, freeing: Freeing) -> None:
        planned = self.decider.plan_on(queued.request, queued.policy, node)
        reasons = self.front_end.obstacles(node) or (
            planned.reasons[node] if isinstance(planned, Refusal) else ()
        )
        if isinstance(planned, Plan) and not reasons:
            scan.fits(planned)
            return
        scan.refuses(node, reasons)
        found = (
            self.decider.candidates.find(node) if FREEABLE.issuperset(without_unhealthy(reasons)) else None
        )
        lacking = freeing.on(found.node, found.rooms) if found is not None else None
        if lacking is not None:
            scan.lacks(*lacking)

    def _identity(self, uid: PodUid) -> PodIdentity | None:
        row = self.front_end.pods.get(uid)
        return PodIdentity(row.namespace, row.name) if row is not None else None


def _explained(
    row: PodRow,
    state: PodState,
    text: str,
    *,
    waiting: wire.Waiting | None = None,
    running: wire.Running | None = None,
) -> Explained:
    return Explained(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        state=state,
        text=text,
        waiting=waiting,
        running=running,
    )


@dataclass(frozen=True, slots=True)
class LocalPods:
    """The pods of a front end; they have no priority."""

    front_end: LocalFrontEnd

    def name_of(self, uid: PodUid) -> PodName | None:
        """The name of a pod, or None for an unknown one."""
        row = self.front_end.pods.get(uid)
        return PodName(row.namespace, row.name) if row is not None else None

    def waiting(self) -> Iterator[WaitingPod]:
        """The pods without a node."""
        for row in self.front_end.pods.rows():
            if row.phase == "Pending":
                queued = self.front_end.queued(row.uid)
                yield WaitingPod(
                    pod=row.uid,
                    namespace=row.namespace,
                    name=row.name,
                    asks=asks(queued.request.demand) if queued is not None else "",
                    reason=row.message,
                )
