"""Carries a resize out on the API server: one annotation of the pod, written over nobody else's change.

What always holds: room is taken in the ledger before the write and given back after it; pod uid and resourceVersion
are preconditions, so a namesake made meanwhile is never touched and no change is lost; an answer that was lost is
cleared up by reading the pod again, never by guessing. One resize at a time: the caller sees to that.

After a lowering the ledger gives the room back before the node's broker has applied it. That is safe: whoever gets
the room needs a line from the same broker, which takes the pods' changes in their order.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.core.resize import FIELD, LineChange, NotNowError, check_room, line_change
from placer.decide import Decider
from placer.kube.cluster import Cluster
from plimsoll.contract import (
    LINES,
    Lines,
    assigned_gpus,
    declared_line,
    format_lines,
    parse_pod,
    resized_lines,
)
from plimsoll.errors import InputError
from plimsoll.kube.client import (
    ApiError,
    ConflictError,
    NotFoundError,
    PatchKind,
    RefusedError,
    TransientError,
    Transport,
)
from plimsoll.kube.models import TERMINAL_PHASES, Pod, decode_pod
from plimsoll.names import GpuUuid, PodUid
from plimsoll.rpc import Resize, Resizing

ATTEMPTS: Final = 8
PAUSE_S: Final = 0.2
"""Writes that met a change of somebody else's, or no clear answer, before the person is told to ask again."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class KubeResizer:
    """Resizes pods of one cluster."""

    transport: Transport
    decider: Decider
    cluster: Cluster

    async def resize(self, request: Resize) -> Resizing:
        """Check a new line against the ledger, count it, and write it on the pod.

        Cancelling leaves open whether it was written; the ledger counts the larger line until the watch tells.

        Raises:
            InputError: it cannot be; nothing was changed.
            NotNowError: it could not be judged or written now.
        """
        pod = await self._read(request)
        change = self._change(pod, request)
        before = _stated(pod, change)
        if before != change.after:
            view = self.decider.reports.view(change.old.node)
            check_room(change, request.gpu_memory, self.decider.ledger, view)
            await self._write(pod, change, request)
        elif change.container not in _lines_of(pod):
            problem = "is the line that it has already"
            raise InputError(FIELD, request.gpu_memory, problem, "give another size")
        return Resizing(
            node=change.old.node,
            pod=change.old.pod,
            container=change.container,
            before=before,
            lines=change.after,
        )

    def _change(self, pod: Pod, request: Resize) -> LineChange:
        name = f"{request.namespace}/{request.pod}"
        if not pod.spec.nodeName:
            remedy = "change its manifest, or wait until it is placed"
            raise InputError("pod", name, "is not placed yet", remedy)
        if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletionTimestamp:
            raise InputError("pod", name, "has ended, or is being deleted", "name a running pod")
        if not assigned_gpus(pod):
            raise InputError("pod", name, "was given no GPU by Plimsoll", "name a pod with a line")
        booking = self.decider.ledger.booking(PodUid(pod.metadata.uid))
        if booking is None:
            raise NotNowError(f"pod {name} is not in the ledger yet; ask again")
        return line_change(booking, request.container, request.gpu_memory)

    async def _read(self, request: Resize) -> Pod:
        try:
            return decode_pod(await self.transport.get(_path(request)))
        except NotFoundError as error:
            name = f"{request.namespace}/{request.pod}"
            remedy = "see `kubectl get pods --all-namespaces`"
            raise InputError("pod", name, "does not exist", remedy) from error
        except (ApiError, msgspec.MsgspecError) as error:
            raise NotNowError(f"the pod cannot be read ({error}); ask again") from error

    async def _write(self, pod: Pod, change: LineChange, request: Resize) -> None:
        try:
            await self._until_written(pod, change, request)
        except (InputError, RefusedError) as error:
            self.cluster.settle_lines(change.old, written=False)
            if isinstance(error, RefusedError):
                remedy = "give the placer's account the right to patch pods"
                raise InputError(
                    f"metadata.annotations[{LINES}]", "", f"is refused ({error})", remedy
                ) from error
            raise
        except BaseException:
            self.cluster.settle_lines(change.larger, written=False)
            raise
        self.cluster.settle_lines(change.new, written=True)

    async def _until_written(self, pod: Pod, change: LineChange, request: Resize) -> None:
        """Returns once the annotation holds the new lines.

        Raises:
            InputError: the pod is gone.
            RefusedError: the API server does not allow it.
            NotNowError: nothing clear came of it.
        """
        for _ in range(ATTEMPTS):
            lines = {**_lines_of(pod), change.container: change.after}
            self.cluster.assume_lines(change.larger, lines)
            try:
                await self.transport.patch(_path(request), _patch(pod, lines), PatchKind.MERGE)
            except (ConflictError, NotFoundError, TransientError):
                await asyncio.sleep(PAUSE_S)
                pod = await self._read(request)
            else:
                return
            if pod.metadata.uid != change.old.pod:
                name = f"{request.namespace}/{request.pod}"
                raise InputError("pod", name, "was deleted meanwhile", "resize the new one")
            if _lines_of(pod) == lines:
                return  # written after all, though the answer was lost
        raise NotNowError("the API server gives no clear answer, or the pod changes all the time; ask again")


def _patch(pod: Pod, lines: Lines) -> dict[str, object]:
    meta = pod.metadata
    preconditions = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
    return {"metadata": {**preconditions, "annotations": {LINES: format_lines(lines)}}}


def _stated(pod: Pod, change: LineChange) -> dict[GpuUuid, int]:
    """The container's lines by its pod's own words, which the broker reads; the ledger may be ahead of them."""
    demand = next(one for one in parse_pod(pod).containers if one.container == change.container)
    lines = {gpu: declared_line(demand, gpu, _lines_of(pod)) for gpu in change.after}
    return {gpu: line_bytes for gpu, line_bytes in lines.items() if line_bytes is not None}


def _lines_of(pod: Pod) -> Lines:
    """A damaged annotation is written anew."""
    try:
        return resized_lines(pod)
    except InputError:
        return {}


def _path(request: Resize) -> str:
    for field, name in (("namespace", request.namespace), ("pod", request.pod)):
        if not _NAME.fullmatch(name):
            raise InputError(field, name, "cannot be a name in Kubernetes", "use lower case, digits, - and .")
    return f"/api/v1/namespaces/{request.namespace}/pods/{request.pod}"
