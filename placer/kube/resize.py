"""Carries a resize out on the API server: annotations of the pod, in one write that overwrites no other change.

What always holds: room is taken in the ledger before the write and given back after it. The pod's uid and
resourceVersion are preconditions, so another pod of the same name is never changed and no change is lost. When an
answer is lost, the pod is read again; the result is never guessed. The caller runs one resize at a time.

After a lowering the ledger frees the room before the node's broker has applied the lowering. That is safe: a pod that
gets the room needs its line and share from the same broker, which takes the changes of pods in their order. A broker
that reads the changes from a list has no order; it refuses shares past 100, and tries again when other pods changed.
"""

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from placer.core.ledger import Booking, Grant, grant_of
from placer.core.resize.change import Change, NotNowError, asked_field, change_of
from placer.core.resize.room import check_room
from placer.decide import Decider
from placer.kube.cluster import Cluster
from plimsoll.contract import LINES, SHARES, assigned_gpus, parse_pod
from plimsoll.ids import PodUid
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
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, Resizing
from plimsoll.resizes import Resized, Share, annotations_of, readable_resizes

ATTEMPTS: Final = 8
"""Writes that meet another change of the pod, or get no clear answer, before the person has to ask again."""
PAUSE_S: Final = 0.2
"""The time between such a write and the next reading of the pod."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class KubeResizer:
    """Resizes pods of one cluster."""

    transport: Transport
    decider: Decider
    cluster: Cluster

    async def resize(self, request: Resize) -> Resizing:
        """Check a resize against the ledger, count it, and write it on the pod.

        Cancelling leaves open whether it was written. The ledger counts the larger of both until the watch shows the
        pod again.

        Raises:
            InputError: the pod cannot have the change; nothing was changed.
            NotNowError: the resize could not be checked or written now.
        """
        pod = await self._read(request)
        change = self._change(pod, request)
        if change.before != change.after:
            view = self.decider.reports.view(change.new.node)
            check_room(change, request, self.decider.ledger, view)
            await self._write(pod, change, request)
        elif not _was_resized(pod, change, request):
            raise InputError(*asked_field(request), "is what it has already", "give another value")
        return Resizing(
            node=change.new.node,
            pod=change.new.pod,
            container=change.container,
            before=change.before,
            after=change.after,
        )

    def _change(self, pod: Pod, request: Resize) -> Change:
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
        return change_of(booking, request, _in_force(pod, booking))

    async def _read(self, request: Resize) -> Pod:
        try:
            return decode_pod(await self.transport.get(_path(request)))
        except NotFoundError as error:
            name = f"{request.namespace}/{request.pod}"
            remedy = "see `kubectl get pods --all-namespaces`"
            raise InputError("pod", name, "does not exist", remedy) from error
        except (ApiError, msgspec.MsgspecError) as error:
            raise NotNowError(f"the pod cannot be read ({error}); ask again") from error

    async def _write(self, pod: Pod, change: Change, request: Resize) -> None:
        try:
            await self._until_written(pod, change, request)
        except (InputError, RefusedError) as error:
            self.cluster.settle_resize(change.counted, written=False)
            if isinstance(error, RefusedError):
                name = LINES if request.gpu_memory is not None else SHARES
                remedy = "give the placer's account the right to patch pods"
                raise InputError(
                    f"metadata.annotations[{name}]", "", f"is refused ({error})", remedy
                ) from error
            raise
        except BaseException:
            self.cluster.settle_resize(change.larger, written=False)
            raise
        self.cluster.settle_resize(change.new, written=True)

    async def _until_written(self, pod: Pod, change: Change, request: Resize) -> None:
        """Write until the annotations hold the change.

        Raises:
            InputError: the pod is gone.
            RefusedError: the API server does not allow it.
            NotNowError: no write had a clear answer.
        """
        for _ in range(ATTEMPTS):
            wanted = _wanted(pod, change, request)
            self.cluster.assume_resize(change.larger, wanted)
            try:
                await self.transport.patch(_path(request), _patch(pod, wanted), PatchKind.MERGE)
            except (ConflictError, NotFoundError, TransientError):
                await asyncio.sleep(PAUSE_S)
                pod = await self._read(request)
            else:
                return
            if pod.metadata.uid != change.new.pod:
                name = f"{request.namespace}/{request.pod}"
                raise InputError("pod", name, "was deleted meanwhile", "resize the new one")
            if readable_resizes(pod) == wanted:
                return  # written after all, though the answer was lost
            if _in_force(pod, change.counted) != change.old:
                raise NotNowError("what the pod has was changed by somebody else meanwhile; ask again")
        raise NotNowError("the API server gives no clear answer, or the pod changes all the time; ask again")


def _patch(pod: Pod, wanted: Resized) -> dict[str, object]:
    meta = pod.metadata
    preconditions = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
    # A merge patch removes an annotation that is null here, and ignores one that was missing.
    return {"metadata": {**preconditions, "annotations": annotations_of(wanted)}}


def _wanted(pod: Pod, change: Change, request: Resize) -> Resized:
    """The resizes for the pod's annotations: the earlier ones, with the requested values of the container."""
    name, resized = change.container, readable_resizes(pod)
    lines, shares = dict(resized.lines), dict(resized.shares)
    if request.gpu_memory is not None:
        lines[name] = {line.gpu: line.line_bytes for line in change.after}
    if request.gpu_share is not None or request.gpu_share_limit is not None:
        of_each = change.after[0]
        shares[name] = Share(share_pct=of_each.share_pct, limit_pct=of_each.limit_pct)
    return Resized(lines, shares)


def _was_resized(pod: Pod, change: Change, request: Resize) -> bool:
    """Whether an earlier resize, announced in its time, may have given the container the asked values."""
    resized = readable_resizes(pod)
    asks_time = request.gpu_share is not None or request.gpu_share_limit is not None
    was_given_time = asks_time and change.container in resized.shares
    return was_given_time or (request.gpu_memory is not None and change.container in resized.lines)


def _in_force(pod: Pod, counted: Booking) -> Booking:
    """The pod's booking by its annotations, which the broker reads. The ledger may count more."""
    demands = {demand.container: demand for demand in parse_pod(pod).containers}
    resized = readable_resizes(pod)

    def stated(grant: Grant) -> Grant:
        demand = demands.get(grant.container)
        return (
            grant if demand is None else grant_of(resized.of(demand, grant.gpu), grant.gpu, grant.line_bytes)
        )

    return replace(counted, grants=tuple(map(stated, counted.grants)))


def _path(request: Resize) -> str:
    for field, name in (("namespace", request.namespace), ("pod", request.pod)):
        if not _NAME.fullmatch(name):
            raise InputError(field, name, "cannot be a name in Kubernetes", "use lower case, digits, - and .")
    return f"/api/v1/namespaces/{request.namespace}/pods/{request.pod}"
