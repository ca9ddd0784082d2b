"""Decides about the kubelet's requests for volumes, and carries them out.

A request waits for the pod's lines. The kubelet repeats a refused request ever more rarely, up to two minutes apart,
so a pod whose lines come a little late starts sooner if its request waits inside the call.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Final, assert_never

from hook.broker.core.ids import ContainerKey
from hook.broker.core.volume import VolumeTarget
from hook.broker.csi.volumes import InlineVolumes
from hook.broker.engine import Engine
from hook.broker.layouts import LaidOut, Layouts, RefusedLayout, WithoutGpus
from plimsoll.broker.volume import CONTAINER_ATTRIBUTE
from plimsoll.ids import ContainerName, NodeName
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.log import get_logger

UID_KEY: Final = "csi.storage.k8s.io/pod.uid"
NAMESPACE_KEY: Final = "csi.storage.k8s.io/pod.namespace"
NAME_KEY: Final = "csi.storage.k8s.io/pod.name"
EPHEMERAL_KEY: Final = "csi.storage.k8s.io/ephemeral"

_log: Final = get_logger()


class NoLinesError(PlimsollError):
    """The pod's lines are not laid out. The message says why, and the pod's events show it."""


class VolumePublisher:
    """Publishes and unpublishes the volumes of a node's pods; for the loop's thread only."""

    def __init__(
        self, engine: Engine, volumes: InlineVolumes, layouts: Layouts, node: NodeName, wait_s: float
    ) -> None:
        """Begin.

        Args:
            engine: the broker.
            volumes: the mounts; the engine's thread for files works on them.
            layouts: which pods are laid out.
            node: this node's name, for messages.
            wait_s: seconds that a request waits for the pod's lines.
        """
        self._engine = engine
        self._volumes = volumes
        self._layouts = layouts
        self._node = node
        self._wait_s = wait_s

    async def publish(self, path: str, context: Mapping[str, str], *, is_block: bool) -> None:
        """Mount a pod's volume, once its lines are laid out. A volume that is mounted stays as it is.

        Cancelling ends the wait. Mounts that have begun are finished, and the next request finds them.

        Args:
            path: the kubelet's target path.
            context: the kubelet's words about the pod.
            is_block: the pod wants a block device.

        Raises:
            InputError: no kubelet would ask like this.
            NoLinesError: the pod's lines are not laid out.
            NotCarriedOutError: the pages could not be written.
            OSError: the mounts failed.
        """
        target = self._volumes.target(path)
        _check(target, context, is_block=is_block)
        where = f"{context.get(NAMESPACE_KEY, '')}/{context.get(NAME_KEY, '')}"
        if await self._engine.in_files_thread(partial(self._volumes.is_published, target)):
            return
        begun_s = time.monotonic()
        laid_out = await self._laid_out(target, where)
        container = ContainerKey(target.pod, _container(context, laid_out, where))
        containers = [ContainerKey(target.pod, name) for name in laid_out.containers]
        make_counts = partial(self._volumes.make_counts, containers)
        if not await self._engine.lay_out_again(target.pod, make_counts):
            raise NoLinesError(f"pod {where} ended on node {self._node} before its volume was mounted")
        if problem := await self._engine.driver_lines.before_start(target.pod):
            raise NoLinesError(
                f"the driver does not hold the lines of pod {where} on node {self._node}: {problem}"
            )
        await self._engine.in_files_thread(partial(self._volumes.publish, target, container))
        waited_s = round(time.monotonic() - begun_s, 3)
        _log.info("volume_published", pod=where, uid=target.pod, waited_s=waited_s)

    async def unpublish(self, path: str) -> None:
        """Take a pod's volume away; a volume that is not there is no error.

        Raises:
            InputError: something is mounted at a path that is no volume of a pod.
            OSError: the mounts could not be removed.
        """
        try:
            target = self._volumes.target(path)
        except InputError:
            # A broker with another setting mounted nothing there. Refusing would keep the pod from ending.
            if await self._engine.in_files_thread(partial(self._volumes.is_mounted, path)):
                raise
            return
        if await self._engine.in_files_thread(partial(self._volumes.unpublish, target)):
            _log.info("volume_unpublished", uid=target.pod)

    async def _laid_out(self, target: VolumeTarget, where: str) -> LaidOut:
        layout = await self._layouts.settled(target.pod, self._wait_s)
        if isinstance(layout, LaidOut):
            return layout
        raise NoLinesError(self._problem(layout, where))

    def _problem(self, layout: RefusedLayout | WithoutGpus | None, where: str) -> str:
        match layout:
            case RefusedLayout(problem):
                return f"the lines of pod {where} are not laid out on node {self._node}: {problem}"
            case WithoutGpus():
                return (
                    f"pod {where} asks for no GPU of Plimsoll's, so it has no lines: remove the volume with driver "
                    "plimsoll.dev, or request plimsoll.dev/gpu-memory with schedulerName: plimsoll"
                )
            case None if not self._layouts.is_synced:
                return (
                    f"the lines of pod {where} are not laid out: the broker of node {self._node} has not read this "
                    "node's pods yet; its log says whether it reaches the API server"
                )
            case None:
                return (
                    f"the lines of pod {where} are not laid out: the API server shows no such pod on node "
                    f"{self._node}; if the pod's node has another name, mend PLIMSOLL_BROKER_NODE"
                )
            case _:
                assert_never(layout)


def _container(context: Mapping[str, str], laid_out: LaidOut, where: str) -> ContainerName:
    """The container whose volume is asked for.

    The pod's author may write any name, and the volume has the pages of a container of this pod at most.

    Raises:
        NoLinesError: the pod has no such container with GPUs.
    """
    name = context.get(CONTAINER_ATTRIBUTE)
    if name in laid_out.containers:
        return ContainerName(name)
    raise NoLinesError(
        f"pod {where} has no container {name!r} with GPUs of Plimsoll's: in the volume's volumeAttributes, set "
        f"{CONTAINER_ATTRIBUTE} to one of {', '.join(laid_out.containers)}"
    )


def _check(target: VolumeTarget, context: Mapping[str, str], *, is_block: bool) -> None:
    """Refuse requests that the CSIDriver object rules out.

    The target path names the pod. A pod's author may write any volume attribute. The kubelet's own words replace such
    attributes only where the CSIDriver object says `podInfoOnMount: true`.

    Raises:
        InputError: the request is not for an inline volume of a pod.
    """
    remedy = "apply deploy/csi-driver.yaml"
    if context.get(EPHEMERAL_KEY) != "true":
        value = context.get(EPHEMERAL_KEY)
        raise InputError(f"volume_context[{EPHEMERAL_KEY}]", value, "is not true", remedy)
    if context.get(UID_KEY) != target.pod:
        value, problem = context.get(UID_KEY), f"is not {target.pod}, whose volume is asked for"
        raise InputError(f"volume_context[{UID_KEY}]", value, problem, remedy)
    if is_block:
        raise InputError("volume_capability", "block", "is no directory", "use volumeMode: Filesystem")
