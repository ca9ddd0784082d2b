"""Follows the pods that are bound to this node, so that their lines are laid out before their programs start.

What always holds:

* A pod that cannot be understood is named in the log and gets no directories. So its programs fail closed, and other
  pods go on.
* Pods that `plimsoll run` registered are left alone.
* A pod that vanished while the watch was down is missing from the next list, and is then unregistered.
* A refused pod is registered again whenever another pod changed. A list is in no order of time, so a pod may come
  before the pod that made room for it.
"""

import asyncio
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from hook.broker.driver_lines import DriverLines
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.layouts import WITHOUT_GPUS, LaidOut, Layouts, RefusedLayout
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerLines, Description, Line, Register, Unregister
from plimsoll.contract import DECISION, asks_gpu
from plimsoll.decision import GpuGrant, decision_of
from plimsoll.ids import ContainerName, NodeName, PodUid
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced
from plimsoll.kube.transport import Transport
from plimsoll.lifespan import Lifespan
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

RETRY_S: Final = 5.0
"""Seconds until a pod is laid out again after a failure, such as a full disk."""

_log: Final = get_logger()


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool whose reservations on this node get the names of their GPUs.

    Attributes:
        namespace: the namespace of reservations.
        pod_resources: the kubelet's socket.
    """

    namespace: str
    pod_resources: Path


async def follow_pods(
    engine: Engine,
    node: NodeName,
    kubeconfig: str,
    layouts: Layouts,
    driver_lines: DriverLines | None = None,
    pool: Pool | None = None,
) -> None:
    """Register the node's pods as they are bound, and unregister them as they end, until cancelled.

    Args:
        engine: the broker.
        node: this node's name.
        kubeconfig: a path, or `in-cluster`.
        layouts: takes each pod's layout.
        driver_lines: takes the ids of containers.
        pool: the pool, if there is one.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    changes: asyncio.Queue[Change[Pod]] = asyncio.Queue()
    async with connect(kubeconfig_path(kubeconfig)) as transport:
        query = (("fieldSelector", f"spec.nodeName={node}"),)
        reservations = await _reservations(pool, transport) if pool is not None else None

        def take(change: Change[Pod]) -> None:
            changes.put_nowait(change)
            if reservations is not None:
                reservations.note(change)

        reflector = Reflector(transport, "/api/v1/pods", Pod, take, query)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run(), name="watch pods")
            if reservations is not None:
                group.create_task(reservations.run(), name="name reservations")
            follower = Follower(engine, layouts, driver_lines)
            group.create_task(follower.follow(changes), name="lay out pods")


async def _reservations(pool: Pool, transport: Transport) -> Any:  # noqa: ANN401 - imported late
    # Imported here: gRPC takes 20 MB, and most brokers have no pool.
    module = await asyncio.to_thread(importlib.import_module, "hook.broker.reservations")
    return module.Reservations.of_kubelet(transport, pool.namespace, pool.pod_resources)


class Registry(Protocol):
    """The part of the engine that a follower needs."""

    async def take(self, event: Register | Unregister) -> None:
        """Carry out a request, or raise `InputError` or `NotCarriedOutError`."""

    async def describe(self) -> Description:
        """Everything that is registered."""


@dataclass(frozen=True, slots=True)
class _RefusedPod:
    pod: Pod
    problem: str


class Follower:
    """Takes changes in their order, so that a pod's end never overtakes its start."""

    def __init__(
        self, engine: Registry, layouts: Layouts | None = None, driver_lines: DriverLines | None = None
    ) -> None:
        self._engine = engine
        self._driver_lines = driver_lines
        self._layouts = layouts or Layouts()
        self._present: dict[PodUid, Register] = {}
        self._refused: dict[PodUid, _RefusedPod] = {}
        self._taken = 0

    async def follow(self, changes: asyncio.Queue[Change[Pod]]) -> NoReturn:
        """Take changes until cancelled."""
        while True:
            before = self._taken
            await self._change(await changes.get())
            while self._refused and self._taken != before:
                before = self._taken
                for refused in list(self._refused.values()):
                    await self._appear(refused.pod)

    async def _change(self, change: Change[Pod]) -> None:
        match change:
            case Added(pod) | Modified(pod) if pod.status.phase not in TERMINAL_PHASES:
                await self._appear(pod)
            case Added(pod) | Modified(pod) | Deleted(pod):
                await self._vanish(PodUid(pod.metadata.uid))
            case Synced():
                await self._forget_absent()
                self._layouts.is_synced = True

    async def _appear(self, pod: Pod) -> None:
        uid = PodUid(pod.metadata.uid)
        try:
            asked = registration(pod)
        except InputError as error:
            self._refuse(pod, str(error), may_pass=False)
            return
        if asked is None:
            self._layouts.note(uid, WITHOUT_GPUS)
        try:
            if asked is not None and self._present.get(uid) != asked:
                await self._take(asked)
                self._present[uid] = asked
                self._layouts.note(uid, LaidOut(tuple(one.name for one in asked.containers)))
        except InputError as error:
            self._refuse(pod, str(error), may_pass=True)
        else:
            self._refused.pop(uid, None)
        if self._driver_lines is not None and uid in self._present:
            await self._driver_lines.containers_run(uid, _ids(pod))

    def _refuse(self, pod: Pod, problem: str, *, may_pass: bool) -> None:
        uid = PodUid(pod.metadata.uid)
        if uid not in self._present:
            self._layouts.note(uid, RefusedLayout(problem, may_pass))
        known = self._refused.get(uid)
        self._refused[uid] = _RefusedPod(pod, problem)
        if known is not None and known.problem == problem:
            return
        effect = "its earlier lines hold" if uid in self._present else "its programs cannot use a GPU"
        where = pod.full_name
        _log.error("pod_has_no_lines", pod=where, problem=problem, effect=effect)

    async def _vanish(self, pod: PodUid) -> None:
        self._layouts.forget(pod)
        refused, present = self._refused.pop(pod, None), self._present.pop(pod, None)
        if refused is not None or present is not None:  # an earlier broker may have registered a refused pod
            await self._take(Unregister(pod=pod))

    async def _forget_absent(self) -> None:
        """Unregister pods of an earlier broker that are not in the list."""
        for use in (await self._engine.describe()).containers:
            is_listed = use.pod in self._present or use.pod in self._refused
            if use.namespace != RUN_NAMESPACE and not is_listed:
                await self._take(Unregister(pod=use.pod))

    async def _take(self, request: Register | Unregister) -> None:
        """Carry out a request, and try again until the disk allows it.

        Raises:
            InputError: the request cannot be fulfilled.
        """
        while True:
            try:
                await self._engine.take(request)
            except NotCarriedOutError as error:
                _log.error("pod_not_laid_out", pod=request.pod, problem=str(error), again_in_s=RETRY_S)
                if isinstance(request, Register) and request.pod not in self._present:
                    self._layouts.note(request.pod, RefusedLayout(str(error), may_pass=True))
                await asyncio.sleep(RETRY_S)
            else:
                self._taken += 1
                return


def _ids(pod: Pod) -> dict[ContainerName, str]:
    """The ids of the pod's containers, as far as its node has reported them."""
    reported = (*(pod.status.initContainerStatuses or ()), *(pod.status.containerStatuses or ()))
    return {ContainerName(one.name): one.containerID for one in reported if one.containerID}


def registration(pod: Pod) -> Register | None:
    """A bound pod's registration; None for a pod without a GPU.

    Raises:
        InputError: the placer's decision cannot be read, or the pod requests a GPU and has none.
    """
    decision = decision_of(pod)
    if decision is None:
        if asks_gpu(pod):
            remedy = "let Plimsoll's placer bind it (schedulerName: plimsoll)"
            raise InputError(f"metadata.annotations[{DECISION}]", None, "is missing", remedy)
        return None
    return Register(
        pod=PodUid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        containers=tuple(
            _container(name, grants, decision.start.lifespan(name), decision.cpus.get(name, ""))
            for name, grants in sorted(decision.containers.items())
        ),
    )


def _container(
    name: ContainerName, grants: tuple[GpuGrant, ...], lifespan: Lifespan, cpus: str
) -> ContainerLines:
    lines = (
        Line(gpu=one.gpu, line_bytes=one.line_bytes, share_pct=one.share_pct, limit_pct=one.limit_pct)
        for one in grants
    )
    whole = any(one.whole for one in grants)
    best_effort = not whole and any(one.memory_bytes is None for one in grants)
    return ContainerLines(
        name=name, lines=tuple(lines), whole=whole, best_effort=best_effort, lifespan=lifespan, cpus=cpus
    )
