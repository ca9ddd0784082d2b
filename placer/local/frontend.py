"""The queue of local pods and their lifecycle: waiting, decided, running, ended.

What always holds: pods are tried in order of arrival, and a pod without room does not delay the ones behind it (room
that appears during a round goes to the pod that is tried next). A pod is booked before it is registered, and the
booking ends with the pod's last process. A node takes no pods before its broker has described the pods that run
there, so the successor of a killed placer does not promise the same room twice.

Limits: the exit code of a pod that outlived its placer is unknown. A command that `plimsoll run` registers after the
placer's start counts by its measured memory only, as unattributed bytes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from placer.core.owners import owner_of
from placer.core.plan import Plan
from placer.core.planning import check_supported
from placer.core.policies import Policy, policy_named
from placer.core.policy_context import Request
from placer.core.reasons import summary
from placer.core.refusal import Refusal
from placer.core.registration import adopted
from placer.decide import Decider
from placer.local.pods import PodTable
from placer.local.process import end_survivors, until_all_gone
from placer.local.runner import CANNOT_START, LocalNode, LocalSettings, PodEnd, Runner, StartError
from placer.publisher import Publisher, placement
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import RUN_NAMESPACE, Description
from plimsoll.contract import AFFINITY, ANTI_AFFINITY, EXCLUSION, POLICY
from plimsoll.demand import PodDemand, parse_pod
from plimsoll.events import Placement
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.part.backoff import Pauses
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.http import PodRow

MAX_WAITING: Final = 10_000
"""Pods that may wait. A round over more would take longer than the time between two reports."""

SETTLE_S: Final = 0.02
"""The pause after a round: reports that come in a burst cause one more round, not one each."""

ADOPT_S: Final = 5.0
"""How long pods wait at the start for brokers that do not answer."""

BROKER_AWAY: Final = "node(s) had a broker that does not answer"

log = get_logger()


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A local pod that waits in the queue for its place.

    Attributes:
        arrival: the order of arrival; pods are tried in this order.
        pod: the pod as it was submitted.
        request: the pod as decisions read it.
        policy: the policy that it names, or the placer's.
        since_s: when it was submitted, on the loop's clock.
    """

    arrival: int
    pod: Pod
    request: Request
    policy: Policy
    since_s: float

    @property
    def uid(self) -> PodUid:
        """The pod's uid."""
        return self.request.pod

    def unplaceable(self, reason: str) -> Placement:
        """The event that the pod has no place now."""
        metadata = self.pod.metadata
        return Placement(
            namespace=metadata.namespace,
            name=metadata.name,
            pod=self.uid,
            policy=self.policy.name,
            reason=reason,
        )


class LocalFrontEnd:
    """Places pods on local nodes and runs them there, while `run` runs.

    Attributes:
        pods: every pod and its phase; `pods.on_change` adds a listener to changes.
    """

    def __init__(
        self,
        nodes: Sequence[LocalNode],
        decider: Decider,
        settings: LocalSettings,
        *,
        policy: str = "headroom",
        publisher: Publisher | None = None,
    ) -> None:
        self.pods = PodTable()
        self._nodes = {node.name: node for node in nodes}
        self._decider = decider
        self._settings = settings
        self._policy = policy
        self._publisher = publisher
        self._brokers = {node.name: BrokerClient(node.broker_root) for node in nodes}
        self._adopted: set[NodeName] = set()
        self._waiting: dict[PodUid, QueuedPod] = {}
        self._arrivals = 0
        self._running: dict[PodUid, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Serve the queue. Returns only by cancellation, which ends the processes of all pods first."""
        stop_listening = self._decider.reports.on_report(lambda _: self._news.set())
        try:
            async with asyncio.TaskGroup() as tasks:
                for node in self._nodes.values():
                    tasks.create_task(self._adopt(node, tasks), name=f"adopt pods of {node.name}")
                tasks.create_task(self._serve(tasks), name="place local pods")
        finally:
            stop_listening()
            for broker in self._brokers.values():
                await broker.close()

    def enqueue(self, pod: Pod) -> PodRow:
        """Queue a pod. It is tried at once, and again whenever a report or an end may have made room.

        The same manifest again is the same pod, until that pod ends.

        Raises:
            InputError: the pod can never run; nothing was queued.
        """
        demand, policy = self.check(pod)
        if len(self._waiting) >= MAX_WAITING:
            raise InputError("pods", len(self._waiting), "are waiting already", "try again later")
        row = self.pods.add(pod)
        if row.uid not in self._waiting and row.uid not in self._running:
            self._arrivals += 1
            request = Request(row.uid, demand, owner_of(pod))
            now_s = asyncio.get_running_loop().time()
            self._wait(QueuedPod(self._arrivals, pod, request, policy, now_s))
        return row

    def check(self, pod: Pod) -> tuple[PodDemand, Policy]:
        """Read a pod's demand and policy.

        Raises:
            InputError: the pod can never run here; the message names field, value and remedy.
        """
        demand = parse_pod(pod)
        check_supported(demand)
        _refuse_labels(pod)
        policy = policy_named(demand.policy or self._policy, f"metadata.annotations[{POLICY}]")
        for container in pod.spec.containers:
            if not container.command:
                field = f"spec.containers[{container.name}].command"
                remedy = "give the command; local pods run no image"
                raise InputError(field, container.command, "is missing", remedy)
        return demand, policy

    async def end(self, uid: PodUid) -> PodRow | None:
        """End a pod that waits or runs. Returns its last row, or None for an unknown uid."""
        row = self.pods.get(uid)
        if row is None or row.phase in TERMINAL_PHASES:
            return row
        self._waiting.pop(uid, None)
        task = self._running.get(uid)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return self._end_row(uid, "ended on request")

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """All local nodes."""
        return tuple(self._nodes)

    def queued(self, uid: PodUid) -> QueuedPod | None:
        """A pod in the queue; None for a pod that does not wait."""
        return self._waiting.get(uid)

    def ahead_of(self, queued: QueuedPod) -> int:
        """The number of pods that are tried before this one."""
        return sum(one.arrival < queued.arrival for one in self._waiting.values())

    def _wait(self, waiting: QueuedPod) -> None:
        self._waiting[waiting.uid] = waiting
        self._news.set()

    def _end_row(self, uid: PodUid, message: str) -> PodRow | None:
        row = self.pods.get(uid)
        if row is None or row.phase in TERMINAL_PHASES:
            return row
        return self.pods.change(uid, phase="Failed", message=message)

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        await self._all_adopted()
        while True:
            await self._news.wait()
            self._news.clear()
            for waiting in sorted(self._waiting.values(), key=lambda one: one.arrival):
                self._try(waiting, tasks)
                await asyncio.sleep(0)  # a decision awaits nothing, and a long round must not block the loop
            await asyncio.sleep(SETTLE_S)

    async def _all_adopted(self) -> None:
        """Wait a moment for every broker, so that the first pods do not all go to the first node that is adopted."""
        try:
            async with asyncio.timeout(ADOPT_S):
                while len(self._adopted) < len(self._nodes):
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            log.warning("placing begins without some nodes", missing=sorted(set(self._nodes) - self._adopted))
        self._news.set()

    def _try(self, waiting: QueuedPod, tasks: asyncio.TaskGroup) -> None:
        if self._waiting.get(waiting.uid) is not waiting:  # ended during the round
            return
        decided = self._decider.decide(waiting.request, waiting.policy, self.obstacles, self._nodes)
        if isinstance(decided, Refusal):
            self._keep_waiting(waiting, decided)
        else:
            del self._waiting[waiting.uid]
            name = f"pod {waiting.pod.full_name}"
            self._follow(waiting.uid, tasks.create_task(self._live(waiting, decided), name=name))

    def _follow(self, uid: PodUid, task: asyncio.Task[None]) -> None:
        self._running[uid] = task
        task.add_done_callback(lambda _: self._running.pop(uid, None))

    def obstacles(self, node: NodeName) -> tuple[str, ...]:
        """The reasons why a node takes no pods now, apart from its GPUs; empty if it does."""
        return () if node in self._adopted else (BROKER_AWAY,)

    def _keep_waiting(self, waiting: QueuedPod, refusal: Refusal) -> None:
        message = summary(len(self._nodes), refusal.reasons)
        before = self.pods.get(waiting.uid)
        if before is not None and before.message != message:
            self.pods.change(waiting.uid, message=message)
            if self._publisher is not None:
                self._publisher.unplaceable(waiting.unplaceable(message))

    async def _live(self, waiting: QueuedPod, plan: Plan) -> None:
        """Run one pod, from its booking to its end."""
        node = plan.booking.node
        runner = Runner(self._nodes[node], self._brokers[node], self._settings)
        try:
            processes = await runner.start(waiting.pod, plan)
        except (RefusedError, StartError) as error:
            self._free(waiting.uid)
            self.pods.change(waiting.uid, phase="Failed", exit_code=CANNOT_START, message=str(error))
            return
        except BrokerAwayError as error:
            self._free(waiting.uid)
            self.pods.change(waiting.uid, message=str(error))
            self._wait(waiting)
            return
        except BaseException:
            self._free(waiting.uid)
            raise
        self._report_running(waiting, plan)
        try:
            end = await processes.wait()
        except BaseException:
            self._free(waiting.uid)
            await runner.forget_or_log(waiting.uid)
            raise
        self._free(waiting.uid)
        self._report_ended(waiting.uid, end)
        await runner.forget(waiting.uid)

    def _free(self, uid: PodUid) -> None:
        self._decider.ledger.forget(uid)
        self._news.set()

    def _report_running(self, waiting: QueuedPod, plan: Plan) -> None:
        gpus: dict[str, tuple[GpuUuid, ...]] = {str(name): gpus for name, gpus in plan.gpus.items()}
        self.pods.change(waiting.uid, phase="Running", node=plan.booking.node, gpus=gpus, message="")
        if self._publisher is not None:
            self._publisher.placed(placement(waiting.pod.metadata, plan))

    def _report_ended(self, uid: PodUid, end: PodEnd) -> None:
        self.pods.change(uid, phase=end.phase, exit_code=end.exit_code, message=end.message)

    async def _adopt(self, node: LocalNode, tasks: asyncio.TaskGroup) -> None:
        """Count the pods that already run on a node, then let the node take pods."""
        description = await self._described(node.name)
        for row, booking in adopted(node.name, description):
            self._decider.ledger.restore(booking)
            self.pods.put(row)
            self._follow(row.uid, tasks.create_task(self._outlive(node, row), name=f"survivor {row.uid}"))
        self._adopted.add(node.name)
        self._news.set()

    async def _described(self, node: NodeName) -> Description:
        pauses = Pauses()
        while True:
            try:
                return await self._brokers[node].describe()
            except BrokerAwayError as error:
                log.warning("a node takes no pods yet", node=node, error=str(error))
                await asyncio.sleep(pauses.next_s())

    async def _outlive(self, node: LocalNode, row: PodRow) -> None:
        """Follow a pod that ran before this placer started, to its end."""
        runner = Runner(node, self._brokers[node.name], self._settings)
        ours = row.namespace != RUN_NAMESPACE
        try:
            await until_all_gone(row.uid)
        except BaseException:
            self._free(row.uid)
            if ours:
                await end_survivors(row.uid)
                await runner.forget_or_log(row.uid)
            raise
        self._free(row.uid)
        self._end_row(row.uid, "ended; its exit code is unknown, as the placer was started anew meanwhile")
        if ours:
            await runner.forget(row.uid)


def _refuse_labels(pod: Pod) -> None:
    """Refuse locality labels: after the placer's restart, brokers describe the running pods without them."""
    for name in (AFFINITY, ANTI_AFFINITY, EXCLUSION):
        value = (pod.metadata.annotations or {}).get(name)
        if value is not None:
            problem = "is not handled for pods without Kubernetes"
            raise InputError(f"metadata.annotations[{name}]", value, problem, "remove the annotation")
