"""Explains the pods of a cluster to people, from what the watches and the reports showed last.

What always holds: an explanation books, writes and decides nothing. It reads what decisions read, so its reasons are
theirs. The nodes are judged in slices, and change meanwhile: each node's verdict holds for its own moment.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from placer.api.explaining import SLICE, NotExplainedError, Turns, rest
from placer.core.booking import Booking
from placer.core.explain.expected import is_expected
from placer.core.explain.running import PodFacts, running_of
from placer.core.explain.scan import FREEABLE, PageAsked, Scan
from placer.core.explain.shortage import Freeing, PodIdentity
from placer.core.explain.slowness import LimitNews
from placer.core.owners import owner_of
from placer.core.plan import Plan
from placer.core.reasons import Reason, without_unhealthy
from placer.kube.queue_position import queue_position
from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import PodReader
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import refusal_on
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll import cordons
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.decision import decision_of
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Container, Pod
from plimsoll.part.errors import InputError
from plimsoll.placer_api import explain as wire
from plimsoll.placer_api.explain import Explained, PodState, Running

_TEXTS: Final = {
    PodState.ENDED: "The pod has ended; it holds nothing.",
    PodState.ENDING: "The pod is being deleted, so it is not placed any more.",
    PodState.FOREIGN: f"Another scheduler places the pod: spec.schedulerName is not {SCHEDULER_NAME}.",
    PodState.GATED: "The pod has scheduling gates; it is tried once they are removed.",
}


@dataclass(slots=True)
class KubeExplainer:
    """Explains pods.

    Attributes:
        pods: all pods that the watch shows.
        queue: those without a node that the placer could place.
        scheduling: judges nodes.
        cache: the nodes and what runs there.
        reader: reads pods.
        synced: set once all pods and nodes were read.
        leads: set once this placer is the one that places.
        relocation_of: gives the last plan to move pods for a waiting one, for people; empty without any.
        news_of: gives recent events about a pod's limits; None where none are read.
    """

    pods: PodIndex
    queue: Queue
    scheduling: PodScheduling
    cache: Cache
    reader: PodReader
    synced: asyncio.Event
    leads: asyncio.Event
    relocation_of: Callable[[PodUid], str]
    news_of: Callable[[PodUid], tuple[LimitNews, ...]] | None = None
    _turns: Turns = field(default_factory=Turns)

    async def explain(self, namespace: str, name: str, page: PageAsked) -> Explained | None:
        """Explain a pod; None for a pod that the watch does not show.

        A waiting pod takes as long as a refusal of its kind at most, and five times as long while decisions are
        made: some seconds on 20 000 nodes. Cancelling loses nothing.

        Raises:
            NotExplainedError: pods and nodes are still being read, or too many explanations wait.
        """
        if not self.synced.is_set():
            raise NotExplainedError("the placer has just started and has not seen all pods; ask again")
        pod = self.pods.find(namespace, name)
        if pod is None:
            return None
        state = _apart(pod)
        if state is not None:
            return self._explained(pod, state)
        if pod.spec.nodeName:
            return self._placed(pod, NodeName(pod.spec.nodeName))
        uid = PodUid(pod.metadata.uid)
        booking = self.scheduling.decider.ledger.booking(uid)
        if self.cache.is_assumed(uid) and booking is not None:
            text = f"The pod is being bound to {booking.node}."
            return self._explained(pod, PodState.BINDING, text=text, running=self._running(pod, booking))
        return await self._waiting(pod, page)

    def _explained(
        self,
        pod: Pod,
        state: PodState,
        *,
        text: str = "",
        waiting: wire.Waiting | None = None,
        running: Running | None = None,
        expected: wire.Expected | None = None,
    ) -> Explained:
        return Explained(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=PodUid(pod.metadata.uid),
            state=state,
            text=text or _TEXTS[state],
            leads=self.leads.is_set(),
            expected=expected,
            waiting=waiting,
            running=running,
        )

    async def _waiting(self, pod: Pod, page: PageAsked) -> Explained:
        uid = PodUid(pod.metadata.uid)
        known = self.queue.get(uid)
        now_s = asyncio.get_running_loop().time()
        # A placer that follows tries no pod, so its queue says nothing of attempts or of who comes first.
        is_tried = known is not None and self.leads.is_set()
        queue = queue_position(known, self.queue, now_s) if known is not None and is_tried else None
        before = wire.Waiting(
            queue=queue,
            message=known.refused_for or refusal_on(pod) if known is not None else "",
            relocation=self.relocation_of(uid),
        )
        try:
            info = known.info if known is not None else None
            info = info or self.reader.understood(pod)
        except InputError as error:
            text = f"Only a change of the pod helps: {error}."
            return self._explained(pod, PodState.REFUSED, text=text, waiting=before)
        async with self._turns.turn():
            scan = await self._scanned(info, page)
        waiting, request = self._with_ends(scan.result(before)), info.request
        best_effort = any(container.best_effort for container in request.demand.containers)
        expected = self.scheduling.decider.expected(request.owner) if best_effort else None
        text = _waiting_text(waiting)
        return self._explained(pod, PodState.WAITING, text=text, waiting=waiting, expected=expected)

    def _with_ends(self, waiting: wire.Waiting) -> wire.Waiting:
        """The explanation with what an operator did first among what ends the pod's wait."""
        if waiting.queue is None:
            return waiting
        wakes_on = waiting.queue.wakes_on
        if self.cache.paused is not None:
            wakes_on = (f"the pause ends (remove the annotation {cordons.PAUSED} of the placer's namespace)",)
        elif Reason.CORDONED.value in waiting.message:
            wakes_on = ("a GPU is uncordoned (`plimsoll uncordon`)", *wakes_on)
        return replace(waiting, queue=replace(waiting.queue, wakes_on=wakes_on))

    async def _scanned(self, info: PodInfo, page: PageAsked) -> Scan:
        """Judge every node."""
        loop, scan = asyncio.get_running_loop(), Scan(page)
        decider = self.scheduling.decider
        freeing = Freeing(
            info.request, info.policy, info.pod.spec.priority or 0, decider.ledger, self._identity
        )
        nodes = tuple(self.cache.nodes)
        size = max(1, SLICE // info.weight)
        for start in range(0, len(nodes), size):
            began_s = loop.time()
            known = self.scheduling.known_reasons(info)
            for node in nodes[start : start + size]:
                if self.cache.has_node(node):
                    self._judge(info, node, known.get(node), scan, freeing)
            await rest(began_s)
        return scan

    def _judge(
        self, info: PodInfo, node: NodeName, known: tuple[str, ...] | None, scan: Scan, freeing: Freeing
    ) -> None:
        decider = self.scheduling.decider
        reasons = known or self.scheduling.obstacles(info, node)
        if not reasons:
            planned = decider.plan_on(info.request, info.policy, node)
            if isinstance(planned, Plan):
                scan.fits(planned)
                return
            reasons = planned.reasons[node]
        scan.refuses(node, reasons)
        found = decider.candidates.find(node) if FREEABLE.issuperset(without_unhealthy(reasons)) else None
        lacking = freeing.on(found.node, found.rooms) if found is not None else None
        if lacking is not None:
            scan.lacks(*lacking)

    def _identity(self, uid: PodUid) -> PodIdentity | None:
        pod = self.pods.get(uid)
        if pod is None:
            return None
        return PodIdentity(pod.metadata.namespace, pod.metadata.name, pod.spec.priority or 0)

    def _placed(self, pod: Pod, node: NodeName) -> Explained:
        booking = self.scheduling.decider.ledger.booking(PodUid(pod.metadata.uid))
        if booking is None:
            booking = Booking(PodUid(pod.metadata.uid), node, (), owner_of(pod))
        running = self._running(pod, booking)
        if pod.status.phase == "Running":
            text = f"The pod runs on {node}. {running.verdict}."
        else:
            text = f"The pod is bound to {node}, and its containers have not started (kubectl describe says why)."
        expected = self.scheduling.decider.expected(booking.owner) if is_expected(booking) else None
        return self._explained(pod, PodState.RUNNING, text=text, running=running, expected=expected)

    def _running(self, pod: Pod, booking: Booking) -> Running:
        decider = self.scheduling.decider
        try:
            decision = decision_of(pod)
        except InputError:
            decision = None  # the booking's doubt says so
        known = PodFacts(
            decider.reports.get(booking.node),
            silent=booking.node in decider.reports.silent,
            decision=decision,
            news=self.news_of(booking.pod) if self.news_of is not None else None,
            cpu=cpu_of(pod.spec.containers),
            schedulability=decider.pool.schedulability(booking.node),
        )
        return running_of(booking, decider.ledger, known)


def _apart(pod: Pod) -> PodState | None:
    """The state of a pod that this scheduler neither places nor has placed; None for any other."""
    if pod.status.phase in TERMINAL_PHASES:
        return PodState.ENDED
    if pod.spec.nodeName:
        return None
    if pod.spec.schedulerName != SCHEDULER_NAME:
        return PodState.FOREIGN
    if pod.metadata.deletionTimestamp:
        return PodState.ENDING
    return PodState.GATED if pod.spec.schedulingGates else None


def cpu_of(containers: list[Container]) -> str:
    """The CPU requests and limits of containers, for people."""
    return ", ".join(_cpu(container) for container in containers)


def _cpu(container: Container) -> str:
    given = container.resources
    request = (given.requests or {}).get("cpu") if given else None
    limit = (given.limits or {}).get("cpu") if given else None
    asked = f"requests {request} CPU" if request is not None else "requests no CPU"
    held = f"is held to {limit}" if limit is not None else "has no CPU limit"
    return f"{container.name} {asked} and {held}"


def _waiting_text(waiting: wire.Waiting) -> str:
    if waiting.candidates:
        best = waiting.candidates[0].node
        return f"The pod waits for its turn; {best} has a place for it now."
    if not waiting.nodes:
        return "The pod waits: the cluster has no node."
    first = waiting.reasons[0]
    rest_of = f", and {len(waiting.reasons) - 1} more" if len(waiting.reasons) > 1 else ""
    return f"The pod fits none of {waiting.nodes} nodes: {first.nodes} {first.reason}{rest_of}."
