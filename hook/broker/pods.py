"""Follows the pods that are bound to this node, so that their lines are laid out before their programs start.

What always holds: a pod that cannot be understood is named in the log and has no directories, so its programs fail
closed, and the others go on; what `plimsoll run` registered is left alone; a pod that vanished while nobody
watched is found missing from the next list.
"""

import asyncio
from typing import Final

import structlog

from hook.broker.core.pod_lines import registration
from hook.broker.engine import Engine, NotCarriedOutError
from plimsoll.brokerwire import RUN_NAMESPACE, Register, Unregister
from plimsoll.errors import InputError
from plimsoll.kube.client import connect, kubeconfig_path
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced
from plimsoll.names import NodeName, PodUid

RETRY_S: Final = 5.0
"""Before a layout that could not be carried out (a full disk, say) is tried again."""

_log: Final = structlog.get_logger()


async def follow_pods(engine: Engine, node: NodeName, kubeconfig: str) -> None:
    """Register the node's pods as they are bound, and unregister them as they end, until cancelled.

    Args:
        engine: the broker.
        node: this node's name.
        kubeconfig: a path, or `in-cluster`.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    changes: asyncio.Queue[Change[Pod]] = asyncio.Queue()
    async with connect(kubeconfig_path(kubeconfig)) as transport:
        query = (("fieldSelector", f"spec.nodeName={node}"),)
        reflector = Reflector(transport, "/api/v1/pods", Pod, changes.put_nowait, query)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run(), name="watch pods")
            group.create_task(_Follower(engine).follow(changes), name="lay out pods")


class _Follower:
    """Takes changes one by one, so that a pod's end never overtakes its beginning."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._present: dict[PodUid, Register] = {}

    async def follow(self, changes: asyncio.Queue[Change[Pod]]) -> None:
        while True:
            match await changes.get():
                case Added(pod) | Modified(pod) if pod.status.phase not in TERMINAL_PHASES:
                    await self._appear(pod)
                case Added(pod) | Modified(pod) | Deleted(pod):
                    await self._vanish(PodUid(pod.metadata.uid))
                case Synced():
                    await self._forget_absent()

    async def _appear(self, pod: Pod) -> None:
        try:
            asked = registration(pod)
            if asked is not None and self._present.get(asked.pod) != asked:
                await self._take(asked)
                self._present[asked.pod] = asked
        except InputError as error:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            _log.error(
                "pod_has_no_lines", pod=where, problem=str(error), effect="its programs cannot use a GPU"
            )

    async def _vanish(self, pod: PodUid) -> None:
        if self._present.pop(pod, None) is not None:
            await self._take(Unregister(pod=pod))

    async def _forget_absent(self) -> None:
        """Let go of pods of an earlier broker's time that are not in the list."""
        for use in (await self._engine.describe()).containers:
            if use.namespace != RUN_NAMESPACE and use.pod not in self._present:
                await self._take(Unregister(pod=use.pod))

    async def _take(self, request: Register | Unregister) -> None:
        """Carry a request out, however long the disk takes to allow it.

        Raises:
            InputError: it cannot be fulfilled.
        """
        while True:
            try:
                await self._engine.take(request)
            except NotCarriedOutError as error:
                _log.error("pod_not_laid_out", pod=request.pod, problem=str(error), again_in_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
            else:
                return
