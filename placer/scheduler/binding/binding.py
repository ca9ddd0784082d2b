"""The one write that places a pod: node and GPUs together, or neither.

The API server merges a Binding's annotations into the pod in the same write as `spec.nodeName`, and refuses a second
bind with 409. What always holds: the pod's uid and resourceVersion are preconditions, so neither another pod of the
same name is ever bound, nor a pod that changed since it was read. When an answer is lost, the pod is read again; the
result is never guessed. Until the result is known, the caller keeps the pod assumed.

A pod that changed in nothing that its decision reads (a condition of our own, for instance) is bound in its new
version at once. No write of the earlier version can succeed then.
"""

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from placer.core.booking import decided, start_of
from placer.core.plan import Plan
from placer.scheduler.binding.scope import WriteScopes
from placer.scheduler.pods.pod_info import same_pod
from plimsoll.contract import ASSIGNED_PREFIX
from plimsoll.decision import Decision, annotations_of
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.kube.transport import (
    ApiError,
    ConflictError,
    GoneError,
    NotFoundError,
    RefusedError,
    TransientError,
    Transport,
)
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
"""Pauses between attempts while the API server does not answer. They delay one pod, not the queue."""
ATTEMPTS: Final = 8
"""Writes without a clear answer before no more are sent; after each, a read showed that the pod is not bound."""
WRITE_LIFETIME_S: Final = 70.0
"""The time in which a write without a clear answer may still arrive: the API server gives a request 60 s
(`--request-timeout`), and the rest is for network and store. The place stays taken until a read after that time."""


class BindResult(enum.Enum):
    """The result of a bind."""

    BOUND = "bound"
    ELSEWHERE = "bound by somebody else"
    GONE = "gone"
    CHANGED = "changed meanwhile"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a bind.

    Attributes:
        result: the result.
        message: the server's message; empty for `BOUND`.
        pod: the pod as it is now, for `CHANGED`.
    """

    result: BindResult
    message: str = ""
    pod: Pod | None = None


class _NotBoundError(TransientError):
    """The write had no clear answer, and a read showed that the pod has no node."""


class _ChangedError(ApiError):
    """A pod without a node has a later version than the write named, so the write cannot succeed any more."""

    def __init__(self, message: str, pod: Pod) -> None:
        super().__init__(message)
        self.pod = pod


@dataclass(frozen=True, slots=True)
class PodBinding:
    """The node for a pod in its version, and the annotations of the same write."""

    pod: Pod
    node: NodeName
    annotations: Mapping[str, str]

    def body(self) -> dict[str, object]:
        """The Binding to post."""
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": self.pod.metadata.name,
                "namespace": self.pod.metadata.namespace,
                "uid": self.pod.metadata.uid,
                "resourceVersion": self.pod.metadata.resourceVersion,
                "annotations": dict(self.annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }


def decision_annotations(plan: Plan, time: str) -> dict[str, str]:
    """The annotations that give a pod its GPUs and the reasons for them; empty for a pod that asked for none.

    Args:
        plan: the place of the pod.
        time: the time of the decision, RFC 3339 in UTC.
    """
    if not plan.booking.grants:
        return {}
    return annotations_of(
        Decision(
            containers=decided(plan.booking),
            score=plan.score,
            policy=plan.policy,
            time=time,
            parts=plan.sub_scores,
            expected=plan.expected,
            start=start_of(plan.booking),
            cpus=plan.cpus,
            note=plan.note,
            labels=plan.booking.locality.stated,
        )
    )


@dataclass(frozen=True, slots=True)
class Binder:
    """Carries out placements on the API server, each within the scope of the Lease. `clock` is the wall clock."""

    transport: Transport
    scopes: WriteScopes
    clock: Callable[[], datetime]

    def binding(self, pod: Pod, plan: Plan) -> PodBinding:
        """The binding of a pod to its place, at this moment."""
        return PodBinding(pod, plan.booking.node, decision_annotations(plan, rfc3339(self.clock())))

    async def bind(self, binding: PodBinding, on_long_wait: Callable[[], None] = lambda: None) -> Ending:
        """Write a placement; returns only once the result is known.

        While the server does not answer, the write is repeated, because a lost answer may mean that the pod is bound.
        `REFUSED` and `CHANGED` also mean that no earlier write can still succeed. Cancelling leaves the result open.

        Args:
            binding: the placement.
            on_long_wait: called before a wait of a minute without any write.
        """
        ending = await self._bind(binding, on_long_wait)
        self.scopes.end_bind(binding.pod)
        return ending

    async def _bind(self, binding: PodBinding, on_long_wait: Callable[[], None]) -> Ending:
        pause_s, undone = FIRST_PAUSE_S, 0
        unclear_s: float | None = None  # the loop's time at the end of the last write without a clear answer
        while True:
            heed_cancellation()
            try:
                ending = await self._attempt(binding)
            except _ChangedError as error:
                if not same_pod(error.pod, binding.pod):
                    return Ending(BindResult.CHANGED, str(error), error.pod)
                binding = replace(binding, pod=error.pod)
                pause_s, undone, unclear_s = FIRST_PAUSE_S, 0, None
                continue
            except TransientError as error:
                unclear_s = asyncio.get_running_loop().time()
                undone += isinstance(error, _NotBoundError)
                get_logger().warning("bind unanswered", pod=binding.pod.path, error=str(error))
                if undone == ATTEMPTS:
                    on_long_wait()
                    return await self._outlive(binding, unclear_s, str(error))
                pause_s = max(pause_s, min(error.retry_after_s or 0.0, LONGEST_PAUSE_S))
            else:
                if ending.result is BindResult.REFUSED and unclear_s is not None:
                    on_long_wait()
                    return await self._outlive(binding, unclear_s, ending.message)
                return ending
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _outlive(self, binding: PodBinding, unclear_s: float, message: str) -> Ending:
        """Wait until no write can arrive any more, then read the pod until the API server answers."""
        end_s = unclear_s + WRITE_LIFETIME_S
        # A read before this moment could miss a write that still arrives.
        await asyncio.sleep(max(end_s - asyncio.get_running_loop().time(), 0.0))
        while True:
            heed_cancellation()
            try:
                return await self._read(binding, message) or Ending(BindResult.REFUSED, message)
            except _ChangedError as error:
                return Ending(BindResult.CHANGED, message, error.pod)
            except TransientError as error:
                get_logger().warning("bind unknown", pod=binding.pod.path, error=str(error))
            await asyncio.sleep(LONGEST_PAUSE_S)

    async def _attempt(self, binding: PodBinding) -> Ending:
        """Write once; read once where the answer is unclear.

        Raises:
            TransientError: the placement may be written or not: the pod had no node yet, or could not be read. The
                same write again does no harm.
            _ChangedError: the placement was not written, and cannot be written in this version.
        """
        await self.scopes.begin_bind(binding.pod)
        try:
            await self.transport.post(f"{binding.pod.path}/binding", binding.body())
        except (ConflictError, GoneError, TransientError) as error:
            if isinstance(error, TransientError) and error.is_unwritten:
                return Ending(BindResult.REFUSED, str(error))
            return await self._clear_up(binding, error)
        except (NotFoundError, RefusedError) as error:
            result = BindResult.GONE if isinstance(error, NotFoundError) else BindResult.REFUSED
            return Ending(result, str(error))
        return Ending(BindResult.BOUND)

    async def _clear_up(self, binding: PodBinding, error: ApiError) -> Ending:
        known = await self._read(binding, str(error))
        if known is not None:
            return known
        if isinstance(error, TransientError):
            raise _NotBoundError(str(error), error.status, error.reason, error.retry_after_s) from error
        # A conflict on a pod without a node: it is being deleted, or has scheduling gates.
        return Ending(BindResult.REFUSED, str(error))

    async def _read(self, binding: PodBinding, message: str) -> Ending | None:
        """The result as the pod shows it; None while the pod has no node and this version.

        Raises:
            TransientError: the pod cannot be read.
            _ChangedError: the pod has no node, and has changed.
        """
        try:
            pod = decode_pod(await self.transport.get(binding.pod.path))
        except NotFoundError:
            return Ending(BindResult.GONE, message)
        except (GoneError, RefusedError) as refused:
            raise TransientError(f"{binding.pod.path} cannot be read: {refused}") from refused
        except msgspec.MsgspecError as damaged:
            raise TransientError(f"{binding.pod.path} cannot be read: {damaged}") from damaged
        if pod.metadata.uid != binding.pod.metadata.uid:
            return Ending(BindResult.GONE, message)
        if not pod.spec.nodeName:
            if pod.metadata.resourceVersion != binding.pod.metadata.resourceVersion:
                raise _ChangedError(message, pod)
            return None
        given = _given(pod.metadata.annotations)
        mine = pod.spec.nodeName == binding.node and given == _given(binding.annotations)
        return Ending(BindResult.BOUND if mine else BindResult.ELSEWHERE, message)


def _given(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (annotations or {}).items() if name.startswith(ASSIGNED_PREFIX)}
