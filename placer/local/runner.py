"""Carries out a plan on a local node: registers the pod with the broker, starts its processes, follows them.

What always holds: the broker knows a pod before its first process starts, and forgets it only after its last one
ended.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from placer.core.plan import Plan
from placer.local.node import LocalNode
from placer.local.process import Command, Enforcement, RunningProcess, command_of, start
from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.broker.wire import ContainerLines, Directories, Line, Register
from plimsoll.ids import ContainerName, PodUid
from plimsoll.kube.models import Container, Pod
from plimsoll.part.backoff import Pauses
from plimsoll.part.errors import PlimsollError

CANNOT_START: Final = 128
"""Exit code of a container whose command cannot be started, as in Kubernetes."""

log = structlog.get_logger(__name__)


class StartError(PlimsollError):
    """A container's command cannot be started: trying again would not help."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What processes of local pods are started with.

    Attributes:
        hook_library: `libplimsoll.so`.
        environment: beneath each node's and container's own, usually the placer's.
        output: folder for the processes' output; None for the placer's own output.
    """

    hook_library: Path
    environment: Mapping[str, str]
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pod ended: the first exit code that is not 0, and a word about it."""

    exit_code: int
    message: str = ""

    @property
    def phase(self) -> str:
        """Succeeded or Failed."""
        return "Failed" if self.exit_code else "Succeeded"


def registration(pod: Pod, plan: Plan) -> Register:
    """What the broker is told of a placed pod."""
    grants = plan.booking.grants
    containers = tuple(
        ContainerLines(
            name=name,
            lines=tuple(
                Line(gpu=g.gpu, line_bytes=g.line_bytes, share_pct=g.share_pct, limit_pct=g.limit_pct)
                for g in grants
                if g.container == name
            ),
            whole=any(g.whole for g in grants if g.container == name),
            best_effort=any(g.memory_bytes is None and not g.whole for g in grants if g.container == name),
        )
        for name in plan.gpus
    )
    metadata = pod.metadata
    return Register(
        pod=plan.booking.pod, namespace=metadata.namespace, name=metadata.name, containers=containers
    )


class Runner:
    """Runs pods on one node. Cancelling `start` or `follow` leaves nothing running."""

    def __init__(self, node: LocalNode, broker: BrokerClient, settings: LocalSettings) -> None:
        self.node = node
        self._broker = broker
        self._settings = settings

    async def start(self, pod: Pod, plan: Plan) -> "PodProcesses":
        """Register a pod and start its processes.

        Raises:
            RefusedError: the broker will not have it.
            BrokerAwayError: the broker did not answer; nothing runs.
            StartError: a command cannot be started; nothing runs any more.
        """
        uid = plan.booking.pod
        directories: Sequence[Directories] = ()
        if plan.booking.grants:
            directories = (await self._broker.register(registration(pod, plan))).containers
        started: dict[str, RunningProcess] = {}
        try:
            for container in pod.spec.containers:
                command = self._command(pod, container, plan, {one.name: one for one in directories})
                try:
                    started[container.name] = await start(command)
                except (OSError, ValueError) as error:
                    field = f"spec.containers[{container.name}].command"
                    remedy = "give a program that exists on this machine"
                    raise StartError(
                        f"{field}: {command.arguments[0]!r} cannot be started ({error}); {remedy}"
                    ) from error
        except BaseException:
            await end_all(started.values())
            await self.forget_or_log(uid)
            raise
        return PodProcesses(started)

    async def forget(self, pod: PodUid) -> None:
        """Have the broker forget a pod, however long the broker takes to answer."""
        pauses = Pauses()
        while True:
            try:
                await self._broker.unregister(pod)
            except BrokerAwayError as error:
                log.warning("the broker cannot be told of an end, trying on", pod=pod, error=str(error))
                await asyncio.sleep(pauses.next_s())
            else:
                return

    async def forget_or_log(self, pod: PodUid) -> None:
        """Ask the broker once to forget a pod, on the way out; the next placer finds what is left."""
        try:
            await self._broker.unregister(pod)
        except BrokerAwayError as error:
            log.warning("the broker was not told of an end", pod=pod, error=str(error))

    def _command(
        self, pod: Pod, container: Container, plan: Plan, directories: Mapping[ContainerName, Directories]
    ) -> Command:
        name = ContainerName(container.name)
        settings = self._settings
        enforcement = None
        if name in directories:
            enforcement = Enforcement(settings.hook_library, directories[name], plan.gpus[name])
        base = {**settings.environment, **self.node.environment}
        command = command_of(plan.booking.pod, container, base, enforcement)
        if settings.output is None:
            return command
        folder = f"{pod.metadata.namespace}_{pod.metadata.name}_{plan.booking.pod}"
        output = settings.output / folder / f"{container.name}.log"
        return Command(command.arguments, command.environment, command.directory, output)


@dataclass(frozen=True, slots=True)
class PodProcesses:
    """A pod's processes, by container."""

    by_container: Mapping[str, RunningProcess]

    async def wait(self) -> Outcome:
        """How it ended, once all have; cancelling ends them all."""
        try:
            codes = {name: await process.wait() for name, process in self.by_container.items()}
        except BaseException:
            await end_all(self.by_container.values())
            raise
        failed = next((name for name, code in codes.items() if code), None)
        if failed is None:
            return Outcome(0)
        return Outcome(codes[failed], await self.by_container[failed].last_words())


async def end_all(processes: Iterable[RunningProcess]) -> None:
    """End processes, all at once; cancelling does not keep them alive."""
    await asyncio.shield(asyncio.gather(*(process.end() for process in processes)))
