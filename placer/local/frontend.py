"""The queue of local pods and their lives: waiting, decided, running, ended.

What always holds: pods are tried in order of arrival, and one that finds no room holds up nobody behind it (room
that appears in the middle of a round goes to whoever is tried next). A pod is booked before it is registered, and
the booking goes when its last process did. A node takes no pods before its broker has told what already runs there,
so a placer that was killed does not promise the same room twice.

Limits: of pods that outlived a placer the exit code is unknown; what `plimsoll run` registers after our start is
seen through its measured memory only, as memory of nobody's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from placer.core.plan import Plan, Refusal, Request, check_supported
from placer.core.policies import Policy, policy_named
from placer.core.reasons import Reason, summary
from placer.core.registration import adopted
from placer.core.resize.change import NotNowError
from placer.decide import Decider
from placer.local.node import LocalNode
from placer.local.pods import PodTable
from placer.local.resize import resize
from placer.local.runner import CANNOT_START, LocalSettings, Outcome, Runner, StartError
from placer.local.survivors import end_survivors, until_all_gone
from placer.publisher import Publisher, placement
from placer.scores import ScoresAwayError
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import RUN_NAMESPACE, Description
from plimsoll.contract import POLICY, PodDemand, parse_pod
from plimsoll.events import Placement
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.part.backoff import Pauses
from plimsoll.part.errors import InputError
from plimsoll.placer_api.http import PodRow
from plimsoll.placer_api.rpc import Resize, Resizing

MAX_WAITING: Final = 10_000
"""Pods that may wait; more would take longer to look through than their reports take to come."""

SETTLE_S: Final = 0.02
"""After news, wait for what comes with it: a burst of reports is one reason to try again."""

ADOPT_S: Final = 5.0
"""How long pods wait at the start for nodes whose brokers do not answer."""

NOT_OURS: Final = "node(s) were not given to the local front end"
BROKER_AWAY: Final = "node(s) had a broker that does not answer"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod's place; its processes run there."""

    pod: PodUid
    node: NodeName
    gpus: dict[str, tuple[GpuUuid, ...]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a pod can never run, with the remedy."""

    message: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    arrival: int
    uid: PodUid
    pod: Pod
    demand: PodDemand
    policy: Policy
    answer: asyncio.Future[Placed | Refused]


class LocalFrontEnd:
    """Places pods on local nodes and runs them there until cancelled, which ends their processes.

    Attributes:
        pods: every pod and its phase; `pods.on_change` tells of each change.
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
        self._waiting: dict[PodUid, _Waiting] = {}
        self._arrivals = 0
        self._running: dict[PodUid, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Serve the queue; returns only by cancellation, after the processes of all pods ended."""
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
        """Take a pod in; it is tried at once, and again whenever a report, an end or a resize may have made room.

        The same unfinished manifest again is the same pod.

        Raises:
            InputError: it can never run; nothing was taken.
        """
        return self._enqueue(pod)[0]

    async def submit(self, pod: Pod) -> Placed | Refused:
        """Take a pod in and wait until it runs, or never will; cancelling takes it out of the queue again."""
        try:
            row, waiting = self._enqueue(pod)
        except InputError as error:
            return Refused(str(error))
        if waiting is None:
            return Refused(f"pod {row.namespace}/{row.name} is here already; it is {row.phase}")
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            self._waiting.pop(row.uid, None)
            self._end_row(row.uid, "taken back before it was placed")
            raise

    def check(self, pod: Pod) -> tuple[PodDemand, Policy]:
        """What a pod asks, if it can ever run here.

        Raises:
            InputError: it cannot; the message names field, value and remedy.
        """
        demand = parse_pod(pod)
        check_supported(demand)
        policy = policy_named(demand.policy or self._policy, f"metadata.annotations[{POLICY}]")
        for container in pod.spec.containers:
            if not container.command:
                field = f"spec.containers[{container.name}].command"
                remedy = "give the command; local pods run no image"
                raise InputError(field, container.command, "is missing", remedy)
        return demand, policy

    async def end(self, uid: PodUid) -> PodRow | None:
        """End a pod, wherever it stands; returns its last row, or None if there is none of that uid."""
        row = self.pods.get(uid)
        if row is None or row.phase in TERMINAL_PHASES:
            return row
        waiting = self._waiting.pop(uid, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(Refused("ended before it was placed"))
        task = self._running.get(uid)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return self._end_row(uid, "ended on request")

    def has(self, namespace: str, pod: str) -> bool:
        """Whether a pod of that name is here and has not ended."""
        return self.pods.find(namespace, pod) is not None

    async def resize(self, request: Resize) -> Resizing:
        """Change a running container's line, see `placer.local.resize`.

        Raises:
            InputError: it cannot be; nothing was changed.
            NotNowError: it could not be judged, or the broker is away.
        """
        row = self.pods.find(request.namespace, request.pod)
        if row is None:
            raise NotNowError(f"pod {request.namespace}/{request.pod} ended just now")
        if row.node is None:
            name = f"{request.namespace}/{request.pod}"
            raise InputError("pod", name, "is not placed yet", "end it and submit it anew, or wait")
        view = self._decider.reports.view(row.node)
        resized = await resize(request, row.uid, self._brokers[row.node], self._decider.ledger, view)
        self._news.set()  # a lowering makes room
        return resized

    def _enqueue(self, pod: Pod) -> tuple[PodRow, _Waiting | None]:
        demand, policy = self.check(pod)
        if len(self._waiting) >= MAX_WAITING:
            raise InputError("pods", len(self._waiting), "are waiting already", "try again later")
        row = self.pods.add(pod)
        if row.uid in self._waiting or row.uid in self._running:
            return row, self._waiting.get(row.uid)
        self._arrivals += 1
        answer: asyncio.Future[Placed | Refused] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(self._arrivals, row.uid, pod, demand, policy, answer)
        self._wait(waiting)
        return row, waiting

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting[waiting.uid] = waiting
        self._news.set()

    def _end_row(self, uid: PodUid, message: str) -> PodRow | None:
        row = self.pods.get(uid)
        if row is None or row.phase in TERMINAL_PHASES:
            return row
        return self.pods.change(uid, phase="Failed", message=message)

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        await self._all_adopted()
        pauses = Pauses()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                for waiting in sorted(self._waiting.values(), key=lambda one: one.arrival):
                    await self._try(waiting, tasks)
            except ScoresAwayError as error:
                log.warning("placing waits for the sorted list", pods=len(self._waiting), error=str(error))
                await asyncio.sleep(pauses.next_s())
                self._news.set()
            else:
                pauses.reset()
                await asyncio.sleep(SETTLE_S)

    async def _all_adopted(self) -> None:
        """Wait a moment for every broker, so that the first pods do not all go to the node that was first."""
        try:
            async with asyncio.timeout(ADOPT_S):
                while len(self._adopted) < len(self._nodes):
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            log.warning("placing begins without some nodes", missing=sorted(set(self._nodes) - self._adopted))
        self._news.set()

    async def _try(self, waiting: _Waiting, tasks: asyncio.TaskGroup) -> None:
        decided = await self._decider.decide(
            Request(waiting.uid, waiting.demand), waiting.policy, self._unfit
        )
        if isinstance(decided, Refusal):
            if waiting.uid in self._waiting:
                self._keep_waiting(waiting, decided)
        elif self._waiting.pop(waiting.uid, None) is None:  # ended while it was decided
            self._decider.ledger.forget(waiting.uid)
        else:
            name = f"pod {waiting.pod.metadata.namespace}/{waiting.pod.metadata.name}"
            self._follow(waiting.uid, tasks.create_task(self._live(waiting, decided), name=name))

    def _follow(self, uid: PodUid, task: asyncio.Task[None]) -> None:
        self._running[uid] = task
        task.add_done_callback(lambda _: self._running.pop(uid, None))

    def _unfit(self, node: NodeName) -> tuple[str, ...]:
        if node not in self._nodes:
            return (NOT_OURS,)
        return () if node in self._adopted else (BROKER_AWAY,)

    def _keep_waiting(self, waiting: _Waiting, refusal: Refusal) -> None:
        ours = {node: why for node, why in refusal.reasons.items() if node in self._nodes}
        reasons = {node: ours.get(node, (Reason.NO_REPORT.value,)) for node in self._nodes}
        message = summary(len(self._nodes), reasons)
        before = self.pods.get(waiting.uid)
        if before is not None and before.message != message:
            self.pods.change(waiting.uid, message=message)
            if self._publisher is not None:
                self._publisher.unplaceable(_unplaceable(waiting, message))

    async def _live(self, waiting: _Waiting, plan: Plan) -> None:
        """One pod, from its booking to its end."""
        node = plan.booking.node
        runner = Runner(self._nodes[node], self._brokers[node], self._settings)
        try:
            processes = await runner.start(waiting.pod, plan)
        except (RefusedError, StartError) as error:
            self._free(waiting.uid)
            self.pods.change(waiting.uid, phase="Failed", exit_code=CANNOT_START, message=str(error))
            _answer(waiting, Refused(str(error)))
            return
        except BrokerAwayError as error:
            self._free(waiting.uid)
            self.pods.change(waiting.uid, message=str(error))
            self._wait(waiting)
            return
        except BaseException:
            self._free(waiting.uid)
            raise
        self._tell_running(waiting, plan)
        try:
            outcome = await processes.wait()
        except BaseException:
            self._free(waiting.uid)
            await runner.forget_or_log(waiting.uid)
            raise
        self._free(waiting.uid)
        self._tell_ended(waiting.uid, outcome)
        await runner.forget(waiting.uid)

    def _free(self, uid: PodUid) -> None:
        self._decider.ledger.forget(uid)
        self._news.set()

    def _tell_running(self, waiting: _Waiting, plan: Plan) -> None:
        gpus: dict[str, tuple[GpuUuid, ...]] = {str(name): gpus for name, gpus in plan.gpus.items()}
        self.pods.change(waiting.uid, phase="Running", node=plan.booking.node, gpus=gpus, message="")
        _answer(waiting, Placed(waiting.uid, plan.booking.node, gpus))
        if self._publisher is not None:
            self._publisher.placed(placement(waiting.pod.metadata, plan))

    def _tell_ended(self, uid: PodUid, outcome: Outcome) -> None:
        self.pods.change(uid, phase=outcome.phase, exit_code=outcome.exit_code, message=outcome.message)

    async def _adopt(self, node: LocalNode, tasks: asyncio.TaskGroup) -> None:
        """Count what already runs on a node, then let it take pods."""
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
        """A pod that was running before we started, to its end."""
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


def _answer(waiting: _Waiting, answer: Placed | Refused) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)


def _unplaceable(waiting: _Waiting, reason: str) -> Placement:
    metadata = waiting.pod.metadata
    return Placement(
        namespace=metadata.namespace,
        name=metadata.name,
        pod=waiting.uid,
        policy=waiting.policy.name,
        reason=reason,
    )
