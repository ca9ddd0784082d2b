"""Carries out a plan on a local node: registers the pod with the broker, starts its processes, waits for their end.

What always holds: the broker knows a pod before the pod's first process starts, and forgets the pod only after the
last one ended.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from placer.core.plan import Plan
from placer.core.registration import registration
from placer.local.node import LocalNode
from placer.local.process import GRACE_S, command_of
from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.broker.environment import Enforcement
from plimsoll.broker.wire import Directories
from plimsoll.ids import ContainerName, PodUid
from plimsoll.kube.models import Container, Pod
from plimsoll.part.backoff import Pauses
from plimsoll.part.child import Child, Program, start
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger

CANNOT_START: Final = 128
"""Exit code of a container whose command cannot be started, as in Kubernetes."""

TAIL_BYTES: Final = 4096
"""How much of a container's output is searched for its last line."""

log = get_logger()


class StartError(PlimsollError):
    """A container's command cannot be started: trying again would not help."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings that processes of local pods are started with.

    Attributes:
        hook_library: `libplimsoll.so`.
        environment: variables that each node's and container's own replace, usually the placer's.
    """

    hook_library: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended.

    Attributes:
        exit_code: the first container's that is not 0; 0 where there is none.
        message: the last line of that container's output; empty where unknown.
    """

    exit_code: int
    message: str = ""

    @property
    def phase(self) -> str:
        """The pod's phase: Succeeded or Failed."""
        return "Failed" if self.exit_code else "Succeeded"


class Runner:
    """Runs pods on one node. Cancelling `start` or `follow` leaves nothing running."""

    def __init__(self, node: LocalNode, broker: BrokerClient, settings: LocalSettings) -> None:
        self.node = node
        self._broker = broker
        self._settings = settings

    async def start(self, pod: Pod, plan: Plan) -> "PodProcesses":
        """Register a pod and start its processes.

        Raises:
            RefusedError: the broker refuses the pod.
            BrokerAwayError: the broker did not answer; nothing runs.
            StartError: a command cannot be started; nothing runs any more.
        """
        uid = plan.booking.pod
        directories: Sequence[Directories] = ()
        if plan.booking.grants:
            directories = (await self._broker.register(registration(pod, plan))).containers
        started: dict[str, Child] = {}
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
        """Have the broker forget a pod; retries until the broker answers."""
        pauses = Pauses()
        while True:
            try:
                await self._broker.unregister(pod)
            except BrokerAwayError as error:
                log.warning("an ended pod cannot be unregistered, retrying", pod=pod, error=str(error))
                await asyncio.sleep(pauses.next_s())
            else:
                return

    async def forget_or_log(self, pod: PodUid) -> None:
        """Ask the broker once to forget a pod, while the placer ends; the next placer adopts the pod otherwise."""
        try:
            await self._broker.unregister(pod)
        except BrokerAwayError as error:
            log.warning("an ended pod was not unregistered", pod=pod, error=str(error))

    def _command(
        self, pod: Pod, container: Container, plan: Plan, directories: Mapping[ContainerName, Directories]
    ) -> Program:
        name = ContainerName(container.name)
        settings = self._settings
        enforcement = None
        if name in directories:
            enforcement = Enforcement(settings.hook_library, directories[name], plan.gpus[name])
        base = {**settings.environment, **self.node.environment}
        command = command_of(plan.booking.pod, container, base, enforcement)
        if self.node.output is None:
            return command
        folder = f"{pod.metadata.namespace}_{pod.metadata.name}_{plan.booking.pod}"
        output = self.node.output / folder / f"{container.name}.log"
        return replace(command, output=output)


@dataclass(frozen=True, slots=True)
class PodProcesses:
    """A pod's processes, by container."""

    by_container: Mapping[str, Child]

    async def wait(self) -> PodEnd:
        """Wait for all processes, and return how the pod ended; cancelling ends them all."""
        try:
            codes = {name: await process.wait() for name, process in self.by_container.items()}
        except BaseException:
            await end_all(self.by_container.values())
            raise
        failed = next((name for name, code in codes.items() if code), None)
        if failed is None:
            return PodEnd(0)
        lines = (await self.by_container[failed].written(TAIL_BYTES)).strip().splitlines()
        return PodEnd(codes[failed], lines[-1].strip() if lines else "")


async def end_all(processes: Iterable[Child]) -> None:
    """End processes, all at once; cancelling does not stop that."""
    await asyncio.shield(asyncio.gather(*(process.end(GRACE_S) for process in processes)))
