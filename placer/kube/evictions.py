"""Reports pods that pass their lines in spite of enforcement, and evicts them where a setting says so.

The eviction goes through the eviction API, which respects disruption budgets and gives the pod its grace period. What
always holds: without the setting nothing is evicted. The pod's uid is a precondition, so no other pod of its name is
ever evicted. A pod is evicted once. Before each attempt the last report of its node still shows it past its line.
Evictions follow each other with a pause.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from placer.core.violations import Violation, Violations
from placer.metrics import Metrics
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.preemption.writes import TOO_MANY_REQUESTS, eviction_of
from placer.scheduler.reporting.pod_events import PodNews
from placer.scheduler.reporting.record import Recorder
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import ApiError, ConflictError, NotFoundError, TransientError, Transport
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.quantity import format_bytes


class OnViolation(enum.Enum):
    """The answer to a pod that passes its line."""

    REPORT = "report"  # an event and a line in the log
    EVICT = "evict"  # the same, and its eviction if it is a pod of this scheduler
    EVICT_ALL = (
        "evict-all"  # also a pod that another scheduler placed, as kube-scheduler does by the extender
    )


@dataclass(frozen=True, slots=True)
class EvictionRules:
    """Whether and how fast pods are evicted.

    Attributes:
        on_violation: see `OnViolation`.
        grace_s: seconds for which reports must show a pod past its line.
        pause_s: seconds between two evictions of the cluster. Ten are six pods a minute: should a driver or a node
            report nonsense, people have time to set `report` again.
        retry_s: seconds until a refused eviction is tried again: a disruption budget allows it once other pods are
            ready, which takes a minute or so.
    """

    on_violation: OnViolation = OnViolation.REPORT
    grace_s: float = 60.0
    pause_s: float = 10.0
    retry_s: float = 60.0


@dataclass(slots=True)
class Evictions:
    """Reports and evicts while `run` runs; events and nodes' reports may come before.

    Attributes:
        rules: see `EvictionRules`.
        transport: the connection; without the Lease it refuses writes.
        cache: the pods that have a node.
        recorder: writes events about pods.
        metrics: counts what happens.
        violations: the pods that pass a line.
        is_silent: whether a node has not reported for too long, so that its last report is outdated.
        leads: set once this placer is the one that places.
    """

    rules: EvictionRules
    transport: Transport
    cache: Cache
    recorder: Recorder
    metrics: Metrics
    violations: Violations
    is_silent: Callable[[NodeName], bool]
    leads: asyncio.Event
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    # When each pod that was handled is handled again, on the loop's clock.
    _due_s: dict[PodUid, float] = field(default_factory=dict)

    def suspect(self, pod: PodUid, gpu: GpuUuid | None) -> None:
        """Take in an event that a pod passes its line; returns at once."""
        self.violations.suspect(pod, gpu)

    def measure(self, state: NodeState) -> None:
        """Take in a report; returns at once."""
        self.violations.measure(state, loop_now_s())
        self._news.set()

    async def run(self) -> NoReturn:
        """Report and evict until cancelled."""
        await self.leads.wait()
        while True:
            heed_cancellation()
            due_s = min((at for at in self._due_s.values() if at < float("inf")), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._news.wait()
            self._news.clear()
            confirmed = {one.pod: one for one in self.violations.confirmed()}
            self._due_s = {pod: at for pod, at in self._due_s.items() if pod in confirmed}
            self.metrics.evictions.violating_pods.set(len(confirmed))
            for pod in confirmed:
                if self._due_s.get(pod, 0.0) <= loop_now_s() and await self._handle(pod):
                    await asyncio.sleep(self.rules.pause_s)  # bounds the evictions per minute

    async def _handle(self, pod: PodUid) -> bool:
        """Report a pod, or evict it; returns whether the API server was asked for an eviction."""
        # Some time may have passed since the pod was found.
        found = next((one for one in self.violations.confirmed() if one.pod == pod), None)
        assigned_pod = self.cache.assigned.find(pod)
        if (
            found is None
            or self.is_silent(found.node)
            or assigned_pod is None
            or assigned_pod.pod.metadata.deletionTimestamp
        ):
            return False
        self._due_s[pod] = float("inf")
        spared = self._spared(assigned_pod.pod)
        if spared is not None:
            self._report(assigned_pod.pod, "LinePassed", f"{_finding(found)} {spared}", found)
            return False
        await self._evict(assigned_pod.pod, found)
        return True

    def _spared(self, pod: Pod) -> str | None:
        """The reason why a pod is not evicted; None if it is."""
        if self.rules.on_violation is OnViolation.REPORT:
            return "It runs on: PLIMSOLL_ON_VIOLATION is report."
        if self.rules.on_violation is OnViolation.EVICT and pod.spec.schedulerName != SCHEDULER_NAME:
            return "It runs on: another scheduler placed it, and PLIMSOLL_ON_VIOLATION is evict."
        return None

    async def _evict(self, pod: Pod, found: Violation) -> None:
        try:
            await self.transport.post(f"{pod.path}/eviction", eviction_of(pod))
        except NotFoundError:
            return  # it ended by itself
        except ApiError as error:
            self._due_s[found.pod] = loop_now_s() + self.rules.retry_s
            self.metrics.evictions.attempts.labels(_outcome(error)).inc()
            if isinstance(error, ConflictError):  # it changed at this moment, or is another pod by now
                return
            again = f"It could not be evicted, which is tried again in {self.rules.retry_s:g} s: {error}"
            self._report(pod, "EvictionRefused", f"{_finding(found)} {again}", found)
        else:
            self.metrics.evictions.attempts.labels("evicted").inc()
            self._report(pod, "Evicted", f"{_finding(found)} It was evicted.", found)

    def _report(self, pod: Pod, reason: str, note: str, found: Violation) -> None:
        name = pod.full_name
        get_logger().warning(
            "a pod passes its line",
            pod=name,
            node=found.node,
            why=note,
            measurements=found.measurements,
            for_s=round(found.seen_s - found.since_s),
        )
        self.recorder.record(PodNews(pod, reason, note, None))


def _outcome(error: ApiError) -> str:
    if isinstance(error, TransientError):
        return "refused" if error.status == TOO_MANY_REQUESTS else "unanswered"
    return "forbidden" if not isinstance(error, ConflictError) else "changed"


def _finding(found: Violation) -> str:
    """The finding for people; the same text in each attempt, so that Kubernetes counts one event."""
    held, line = format_bytes(found.used_bytes), format_bytes(found.line_bytes)
    return f"The pod holds {held} on GPU {found.gpu} by NVML, past its line of {line}."
