"""The one write that places a pod: node and GPUs together, or neither.

The API server merges a Binding's annotations into the pod in the same write as `spec.nodeName`, and refuses a second
bind with 409. What always holds: the pod's uid is a precondition, so another pod of the same name is never bound.
When an answer is lost, the pod is read again; the result is never guessed. Until the result is known, the caller
keeps the pod assumed.
"""

import asyncio
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from placer.core.plan import Plan
from plimsoll.contract import ASSIGNED_PREFIX, DECISION, Decision, assigned_annotation
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
"""Writes without a clear answer before the place is given up; after each, a read showed that the pod is not bound.
They span some 15 s: a write that was still under way in the network has arrived or died by then."""


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
    given = {assigned_annotation(container): ",".join(gpus) for container, gpus in plan.gpus.items()}
    if not given:
        return {}
    lines: dict[str, dict[str, int]] = {container: {} for container in plan.gpus}
    for grant in plan.booking.grants:
        lines[grant.container][grant.gpu] = grant.line_bytes
    decision = Decision(score=plan.score, policy=plan.policy, time=time, parts=plan.sub_scores, lines=lines)
    return {**given, DECISION: msgspec.json.encode(decision).decode()}


@dataclass(frozen=True, slots=True)
class Binder:
    """Carries out placements on the API server."""

    transport: Transport

    async def bind(self, target: Target) -> tuple[BindResult, str]:
        """Write a placement; returns the result, and the server's message where the result is not `BOUND`.

        Returns only once the result is known. While the server does not answer, the write is repeated, because a lost
        answer may mean that the pod is bound. Cancelling leaves the result open.
        """
        pause_s, undone = FIRST_PAUSE_S, 0
        while True:
            heed_cancellation()
            try:
                return await self._attempt(target)
            except TransientError as error:
                undone += isinstance(error, _NotBoundError)
                if undone == ATTEMPTS:
                    return BindResult.REFUSED, str(error)
                structlog.get_logger().warning("bind unanswered", pod=target.path, error=str(error))
                pause_s = max(pause_s, min(error.retry_after_s or 0.0, LONGEST_PAUSE_S))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

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
        try:
            pod = decode_pod(await self.transport.get(target.path))
        except NotFoundError:
            return BindResult.GONE, str(error)
        except RefusedError as refused:
            raise TransientError(f"{target.path} cannot be read: {refused}") from refused
        except msgspec.MsgspecError as damaged:
            raise TransientError(f"{target.path} cannot be read: {damaged}") from damaged
        if pod.metadata.uid != target.pod.metadata.uid:
            return BindResult.GONE, str(error)
        if pod.spec.nodeName:
            mine = pod.spec.nodeName == target.node and _given(pod.metadata.annotations) == _given(
                target.annotations
            )
            return (BindResult.BOUND if mine else BindResult.ELSEWHERE), str(error)
        if isinstance(error, TransientError):
            raise _NotBoundError(str(error), error.status, error.reason, error.retry_after_s) from error
        # A conflict on a pod without a node: it is being deleted, or has scheduling gates.
        return BindResult.REFUSED, str(error)


def _given(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (annotations or {}).items() if name.startswith(ASSIGNED_PREFIX)}
