"""A front end without servers: the tests play the watches, the binds and the scheduler's loop, one step at a time.

The API server's part is a few lines here: a bind always succeeds, and the watch shows it at once. Tests on a real
API server are in `world`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import patch

import msgspec

from placer.core.ledger import Ledger
from placer.core.policies import POLICIES
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.kube.options import KubeOptions
from placer.kube.parts import KubeContext, KubeParts
from placer.metrics import Metrics
from placer.relocation.memory import NoMemory, RelocationMemory
from placer.relocation.rules import RelocationRules
from placer.scheduler.binding.binding import decision_annotations
from placer.scheduler.cache.comparer import CacheComparer
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queued_pod import LONGEST_BACKOFF_S, QueuedPodInfo
from placer.scheduler.queue.states import QueueState
from placer.scheduler.queue.unschedulable import Probe
from plimsoll.events import NodeState, Task
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Namespace, Node, Pod
from plimsoll.kube.reflector import Added, Deleted, Modified
from plimsoll.kube.transport import Transport
from tests.placer.kube.objects import Object, node_of, pod_of, report_of
from tests.placer.kube.world import Published
from tests.servers.tasks import running

IN_FLIGHT = (QueueState.IN_FLIGHT, QueueState.CHANGED_IN_FLIGHT)


class Scene:
    """A front end, and the objects that its watches have shown.

    Attributes:
        pods: by name, each as the watch showed it last.
        probes: the number of probes that were made.
        tries: the number of pods that were tried.
    """

    def __init__(
        self,
        pool_namespace: str = "",
        relocation: RelocationRules | None = None,
        rooms: RelocationMemory | None = None,
        *,
        places_unheld: bool = True,
    ) -> None:
        self.reports, self.ledger = ReportView(), Ledger()
        self.decider = Decider(self.reports, self.ledger, Metrics())
        self.late_s = 0.0  # the seconds by which the loop's clock is ahead, see `scene`
        self.parts = KubeParts(
            KubeContext(
                transport=cast("Transport", None),  # nothing is written: `settle` plays the API server
                decider=self.decider,
                bus=Published(),
                options=KubeOptions(
                    POLICIES["headroom"],
                    pool_namespace=pool_namespace,
                    relocation=relocation or RelocationRules(),
                    places_unheld=places_unheld,
                ),
                clock=lambda: datetime.now(UTC) + timedelta(seconds=self.late_s),
                relocation_memory=rooms or NoMemory(),
            )
        )
        self.cache, self.queue = self.parts.core.profile.cache, self.parts.core.queue
        self.profile = self.parts.core.profile
        self.cache.bookings.decides = True
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.probes = self.tries = 0
        self._versions = 0
        self._seqs: dict[str, int] = {}
        self._on_placed: Callable[[str], None] = lambda _: None
        self.reports.on_report(self.cache.bookings.observe)

    def node(
        self,
        name: str,
        labels: Object | None = None,
        *,
        cpu: str = "8",
        ready: bool = True,
        advertised: Object | None = None,
        **spec: object,
    ) -> None:
        """The watch shows a node that is new or changed; `advertised` are its extended resources."""
        amounts = {"cpu": cpu, **(advertised or {})}
        node = node_of(name, labels, ready=ready, allocatable=amounts, spec=spec)
        old = self.nodes.get(name)
        self.nodes[name] = node
        self.parts.watches.node_events.take(Added(node) if old is None else Modified(node, old))

    def namespace(self, name: str, labels: Object) -> None:
        """The watch shows a namespace that is new or changed."""
        document = {"metadata": {"name": name, "labels": labels}}
        self.parts.watches.namespace_events.take(Added(msgspec.convert(document, Namespace)))

    def remove_node(self, name: str) -> None:
        """The watch shows that a node is gone."""
        if name in self.nodes:
            self.parts.watches.node_events.take(Deleted(self.nodes.pop(name)))

    def report(self, name: str, *free_gib: int, tasks: tuple[Task, ...] = ()) -> NodeState:
        """A node reports GPUs of 24 GiB with this much free memory, and these tasks."""
        self._seqs[name] = self._seqs.get(name, 0) + 1
        reported = report_of(name, *free_gib, seq=self._seqs[name], tasks=tasks)
        self.reports.apply(reported)
        return reported

    def pod(self, name: str, limits: Object, labels: Object | None = None, **more: Any) -> Pod:  # noqa: ANN401 - passed on
        """A pod, which no watch has shown yet; for `more` see `pod_of`."""
        self._versions += 1
        return pod_of(name, limits, labels, version=self._versions, **more)

    def show(self, pod: Pod) -> None:
        """The watch shows a pod that is new or changed."""
        old = self.pods.get(pod.metadata.name)
        self.pods[pod.metadata.name] = pod
        self.parts.watches.pod_events.take(Added(pod) if old is None else Modified(pod, old))

    def show_again(self, name: str, **metadata: object) -> None:
        """The watch shows a later version of a pod, with these changes of its metadata."""
        pod = self.pods[name]
        self._versions += 1
        changed = msgspec.structs.replace(pod.metadata, resourceVersion=str(self._versions), **metadata)
        self.show(msgspec.structs.replace(pod, metadata=changed))

    def delete(self, name: str) -> None:
        """The watch shows that a pod is gone."""
        if name in self.pods:
            self.parts.watches.pod_events.take(Deleted(self.pods.pop(name)))

    def is_placed(self, name: str) -> bool:
        """Whether the pod has a node."""
        return bool(self.pods[name].spec.nodeName)

    def queued(self, name: str) -> QueuedPodInfo:
        """A pod that waits."""
        found = self.queue.get(PodUid(self.pods[name].metadata.uid))
        assert found is not None, name
        return found

    def is_unschedulable(self, name: str) -> bool:
        """Whether nothing but a change, or the flush after minutes, brings the pod back."""
        found = self.queue.get(PodUid(self.pods[name].metadata.uid))
        if found is None or found.alike is None:
            return False
        return found.is_unschedulable and found.alike.shared is not None

    def refusal(self, name: str) -> str:
        """The text of the refusal that was reported last for a pod."""
        return self.queued(name).refused_for

    def drift_check(self) -> CacheComparer:
        """The comparison with the API server, which has no server to ask here."""
        decider = self.decider
        return CacheComparer(cast("Transport", None), self.cache, decider.ledger, decider.metrics, every_s=1)

    def on_end(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each pod that is placed or refused from now on."""
        report = self.parts.core.failures.report

        def reported(pod: Pod, note: str, reason: str) -> None:
            listener(pod.metadata.name)
            report(pod, note, reason)

        self.parts.core.failures.report = reported
        self._on_placed = listener

    async def settle(self, steps: int | None = None) -> None:
        """Do all work that can be done now: probes, decisions, binds and explanations.

        Args:
            steps: the most pieces of work to do; an explanation has one for each node here. None: all of them.
        """
        for _ in itertools.count() if steps is None else range(steps):
            match self._pop():
                case QueuedPodInfo() as pod:
                    self._try(pod)
                case Probe() as probe:
                    self.probes += 1
                    await self.parts.core.scheduler.probe(probe)
                case None if not any(pod.state in IN_FLIGHT for pod in self.queue):
                    return
                case None:
                    await asyncio.sleep(0)  # refusals are being explained

    async def settle_after_backoff(self) -> None:
        """`settle`, wait until the backoff of the pods that were woken is over, and `settle` again."""
        await self.settle()
        self.pass_backoff()
        await self.settle()

    def pass_backoff(self) -> None:
        """Let the time pass in which pods that were woken still wait."""
        self.late_s += LONGEST_BACKOFF_S

    def missed(self) -> list[tuple[str, NodeName]]:
        """The unschedulable pods that a node could take, each with such a node. It must be empty at every moment."""
        self.parts.core.cluster_events.catch_up()
        return [
            (name, node)
            for name in self.pods
            if self.is_unschedulable(name)
            for node in sorted(self.cache.nodes)
            if not self.parts.core.scheduling.obstacles(self._wanted(name), node)
        ]

    def _wanted(self, name: str) -> PodInfo:
        wanted = self.queued(name).info
        assert wanted is not None, "an unschedulable pod was read"
        return wanted

    def _pop(self) -> QueuedPodInfo | Probe | None:
        self.parts.core.cluster_events.catch_up()
        return self.queue.pop(asyncio.get_running_loop().time())

    def _try(self, pod: QueuedPodInfo) -> None:
        self.tries += 1
        placed = self.parts.core.scheduler.schedule(pod)
        if placed is None:
            return
        shown = placed.info.pod
        self._on_placed(shown.metadata.name)
        given = {
            **(shown.metadata.annotations or {}),
            **decision_annotations(placed.plan, "2026-01-01T00:00:00Z"),
        }
        spec = msgspec.structs.replace(shown.spec, nodeName=placed.plan.booking.node)
        metadata = msgspec.structs.replace(shown.metadata, annotations=given)
        self.show(msgspec.structs.replace(shown, metadata=metadata, spec=spec))


@asynccontextmanager
async def scene(
    pool_namespace: str = "",
    relocation: RelocationRules | None = None,
    rooms: RelocationMemory | None = None,
    *,
    places_unheld: bool = True,
) -> AsyncIterator[Scene]:
    """A front end that explains refusals meanwhile, on a loop whose clock the tests advance."""
    made = Scene(pool_namespace, relocation, rooms, places_unheld=places_unheld)
    loop = asyncio.get_running_loop()
    real_s = loop.time
    async with running(made.parts.core.failures.run(), "explain refusals"):
        with patch.object(loop, "time", lambda: real_s() + made.late_s):
            yield made
