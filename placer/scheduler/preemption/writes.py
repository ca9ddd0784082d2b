"""The writes of a preemption: the nomination of a pod, and the end of each victim.

A victim gets the condition `DisruptionTarget` and is deleted gracefully, with its own grace period, as by
kube-scheduler. A pod that moves is evicted, which respects disruption budgets. What always holds: the uid is a
precondition of each write, so no other pod of the same name is ever touched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from placer.scheduler.pods.assigned_pods import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.kube.transport import ConflictError, NotFoundError, PatchKind, TransientError, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation

TRIES: Final = 6
"""Attempts of one write while the API server does not answer, or the object changes at the same time. They span some
seconds; after that the pod is tried anew."""


TOO_MANY_REQUESTS: Final = 429
"""The status by which the eviction API says that a disruption budget does not allow it now."""


@dataclass(frozen=True, slots=True)
class PreemptionWrites:
    """Writes to the API server.

    Attributes:
        transport: the connection; without the Lease it refuses writes.
        clock: the wall clock in UTC.
    """

    transport: Transport
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def nominate(self, pod: Pod, node: NodeName | None) -> bool:
        """Write a pod's nominated node; None takes it back. Returns whether the pod still exists.

        Raises:
            ApiError: the API server refuses the write, or does not answer.
        """
        body = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"nominatedNodeName": node},
        }
        patch = self.transport.patch
        return await self._written(pod, lambda: patch(f"{pod.path}/status", body, PatchKind.MERGE))

    async def end(self, victim: Pod, preemptor: Pod) -> bool:
        """Delete a victim; returns whether it still existed.

        Raises:
            ApiError: the API server refuses the write, or does not answer.
        """
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTED_BY_SCHEDULER,
            "message": f"{preemptor.spec.schedulerName}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [condition]}}
        patch, delete = self.transport.patch, self.transport.delete
        path = victim.path
        if not await self._written(victim, lambda: patch(f"{path}/status", body, PatchKind.STRATEGIC)):
            return False
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": victim.metadata.uid},
        }
        return await self._written(victim, lambda: delete(path, options))

    async def evict(self, pod: Pod, *, is_trial: bool = False) -> bool:
        """Evict a pod, as far as its disruption budgets allow; returns whether it still existed.

        Args:
            pod: the pod.
            is_trial: the API server judges the eviction, as its webhooks do, and the pod stays.

        Raises:
            ApiError: the API server refuses the eviction, with status 429 for a budget, or does not answer.
        """
        post, body = self.transport.post, eviction_of(pod, is_trial=is_trial)
        return await self._written(pod, lambda: post(f"{pod.path}/eviction", body), final=TOO_MANY_REQUESTS)

    async def _written(
        self, pod: Pod, write: Callable[[], Awaitable[bytes]], final: int | None = None
    ) -> bool:
        """Write until it is clear that the write arrived (True), or that the pod is gone (False).

        An answer of status `final` is not tried again.
        """
        pauses, tries = Pauses(), 0
        while True:
            heed_cancellation()
            try:
                await write()
            except NotFoundError:
                return False
            except (TransientError, ConflictError) as error:
                tries += 1
                if isinstance(error, ConflictError) and not await self._exists(pod):
                    return False
                if tries == TRIES or error.status == final:
                    raise
            else:
                return True
            await asyncio.sleep(pauses.next_s())  # the API server is away, or the pod changes just now

    async def _exists(self, pod: Pod) -> bool:
        """Whether the same pod, not another one of its name, is on the API server, as far as it answers."""
        try:
            return decode_pod(await self.transport.get(pod.path)).metadata.uid == pod.metadata.uid
        except NotFoundError:
            return False
        except (TransientError, msgspec.MsgspecError):
            return True


def eviction_of(pod: Pod, *, is_trial: bool = False) -> dict[str, object]:
    """The body that evicts this very pod, and no other one of its name; as a trial, it is judged and stays."""
    meta = pod.metadata
    options = {"preconditions": {"uid": meta.uid}}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {**options, "dryRun": ["All"]} if is_trial else options,
    }
