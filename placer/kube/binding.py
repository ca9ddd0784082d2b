"""The one write that places a pod: node and GPUs together, or neither.

The API server merges a Binding's annotations into the pod in the same write as `spec.nodeName`, and refuses a second
bind with 409. What always holds: the pod's uid is a precondition, so another pod of the same name is never bound.
When an answer is lost, the pod is read again; the result is never guessed. Until the result is known, the caller
keeps the pod assumed.
"""

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from placer.core.ledger import decided
from placer.core.plan import Plan
from plimsoll.contract import ASSIGNED_PREFIX
from plimsoll.decision import Decision, annotations_of
from plimsoll.ids import NodeName
from plimsoll.kube.client import (
    ApiError,
    ConflictError,
    NotFoundError,
    RefusedError,
    TransientError,
    Transport,
)
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.part.ending import heed_cancellation

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
    REFUSED = "refused"


class _NotBoundError(TransientError):
    """The write had no clear answer, and a read showed that the pod has no node."""


@dataclass(frozen=True, slots=True)
class Target:
    """The node for a pod, and the annotations of the same write."""

    pod: Pod
    node: NodeName
    annotations: Mapping[str, str]

    @property
    def path(self) -> str:
        """The path of the pod in the API."""
        return f"/api/v1/namespaces/{self.pod.metadata.namespace}/pods/{self.pod.metadata.name}"

    def body(self) -> dict[str, object]:
        """The Binding to post."""
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": self.pod.metadata.name,
                "namespace": self.pod.metadata.namespace,
                "uid": self.pod.metadata.uid,
                "annotations": dict(self.annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }


def answer(plan: Plan, time: str) -> dict[str, str]:
    """The annotations that give a pod its GPUs and the reasons for them; empty for a pod that asked for none.

    Args:
        plan: the place of the pod.
        time: the time of the decision, RFC 3339 in UTC.
    """
    if not plan.booking.grants:
        return {}
    containers = decided(plan.booking)
    return annotations_of(
        Decision(
            containers=containers, score=plan.score, policy=plan.policy, time=time, parts=plan.sub_scores
        )
    )


@dataclass(frozen=True, slots=True)
class Binder:
    """Carries out placements on the API server."""

    transport: Transport

    async def bind(
        self, target: Target, on_long_wait: Callable[[], None] = lambda: None
    ) -> tuple[BindResult, str]:
        """Write a placement; returns the result, and the server's message where the result is not `BOUND`.

        Returns only once the result is known. While the server does not answer, the write is repeated, because a lost
        answer may mean that the pod is bound. `REFUSED` also means that no earlier write can still arrive.
        Cancelling leaves the result open.

        Args:
            target: the placement.
            on_long_wait: called before a wait of a minute without any write.
        """
        pause_s, undone = FIRST_PAUSE_S, 0
        unclear_s: float | None = None  # the loop's time at the end of the last write without a clear answer
        while True:
            heed_cancellation()
            try:
                result, message = await self._attempt(target)
            except TransientError as error:
                unclear_s = asyncio.get_running_loop().time()
                undone += isinstance(error, _NotBoundError)
                structlog.get_logger().warning("bind unanswered", pod=target.path, error=str(error))
                if undone == ATTEMPTS:
                    on_long_wait()
                    return await self._outlive(target, unclear_s, str(error))
                pause_s = max(pause_s, min(error.retry_after_s or 0.0, LONGEST_PAUSE_S))
            else:
                if result is BindResult.REFUSED and unclear_s is not None:
                    on_long_wait()
                    return await self._outlive(target, unclear_s, message)
                return result, message
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _outlive(self, target: Target, unclear_s: float, message: str) -> tuple[BindResult, str]:
        """Wait until no write can arrive any more, then read the pod until the API server answers."""
        end_s = unclear_s + WRITE_LIFETIME_S
        # A read before this moment could miss a write that still arrives.
        await asyncio.sleep(max(end_s - asyncio.get_running_loop().time(), 0.0))
        while True:
            heed_cancellation()
            try:
                return await self._read(target, message) or (BindResult.REFUSED, message)
            except TransientError as error:
                structlog.get_logger().warning("bind unknown", pod=target.path, error=str(error))
            await asyncio.sleep(LONGEST_PAUSE_S)

    async def _attempt(self, target: Target) -> tuple[BindResult, str]:
        """Write once; read once where the answer is unclear.

        Raises:
            TransientError: the placement may be written or not: the pod had no node yet, or could not be read. The
                same write again does no harm.
        """
        try:
            await self.transport.post(f"{target.path}/binding", target.body())
        except (ConflictError, TransientError) as error:
            return await self._clear_up(target, error)
        except (NotFoundError, RefusedError) as error:
            return (BindResult.GONE if isinstance(error, NotFoundError) else BindResult.REFUSED), str(error)
        return BindResult.BOUND, ""

    async def _clear_up(self, target: Target, error: ApiError) -> tuple[BindResult, str]:
        known = await self._read(target, str(error))
        if known is not None:
            return known
        if isinstance(error, TransientError):
            raise _NotBoundError(str(error), error.status, error.reason, error.retry_after_s) from error
        # A conflict on a pod without a node: it is being deleted, or has scheduling gates.
        return BindResult.REFUSED, str(error)

    async def _read(self, target: Target, message: str) -> tuple[BindResult, str] | None:
        """The result as the pod shows it; None while the pod has no node.

        Raises:
            TransientError: the pod cannot be read.
        """
        try:
            pod = decode_pod(await self.transport.get(target.path))
        except NotFoundError:
            return BindResult.GONE, message
        except RefusedError as refused:
            raise TransientError(f"{target.path} cannot be read: {refused}") from refused
        except msgspec.MsgspecError as damaged:
            raise TransientError(f"{target.path} cannot be read: {damaged}") from damaged
        if pod.metadata.uid != target.pod.metadata.uid:
            return BindResult.GONE, message
        if not pod.spec.nodeName:
            return None
        given = _given(pod.metadata.annotations)
        mine = pod.spec.nodeName == target.node and given == _given(target.annotations)
        return (BindResult.BOUND if mine else BindResult.ELSEWHERE), message


def _given(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (annotations or {}).items() if name.startswith(ASSIGNED_PREFIX)}
