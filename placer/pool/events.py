"""The pool's events in `kubectl describe`, on reservations and on the pods that use a GPU.

What always holds: no step depends on an event. An event that cannot be written is logged and dropped, because the
metrics and the next round say the same.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from placer.core.holders import GpuKey
from placer.pool.core.facts import User
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.kube.names import fitted_name
from plimsoll.kube.transport import ApiError, Transport
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339
from plimsoll.pool import Reservation

log = get_logger()

CONTROLLER: Final = "plimsoll-pool"

LONGEST_INSTANCE: Final = 128
"""The API's limit on `reportingInstance`, which is shorter than a pod's name may be."""

Lost = Mapping[GpuKey, frozenset[User]]


@dataclass(slots=True)
class EventRecorder:
    """Writes events.

    Attributes:
        transport: the transport to the API server.
        namespace: the namespace of the reservations.
        instance: the name of this controller, for people.
    """

    transport: Transport
    namespace: str
    instance: str
    _lost: dict[GpuKey, frozenset[User]] = field(default_factory=dict)

    async def acquired(self, reservation: Reservation, gpu: GpuUuid) -> None:
        """Tell that a GPU joined the pool."""
        note = f"GPU {gpu} of node {reservation.node} has joined the pool"
        if reservation.gpu is not None:
            note += f" in place of {reservation.gpu}: the kubelet gave the reservation another GPU"
        kind = "Normal" if reservation.gpu is None else "Warning"
        await self._write(self._of(reservation), kind, "GpuAcquired", note)

    async def ended(self, reservation: Reservation, why: str) -> None:
        """Tell that a reservation is deleted: `why` it is of no use, or empty for a release."""
        if why:
            note = f"The reservation on node {reservation.node} is deleted: {why}"
            await self._write(self._of(reservation), "Warning", "ReservationFailed", note)
        else:
            note = f"GPU {reservation.gpu} of node {reservation.node} is given back"
            await self._write(self._of(reservation), "Normal", "GpuReleased", note)

    async def losses(self, lost: Lost) -> int:
        """Tell the pods of GPUs that have lost their reservations, and of those that have one again.

        Returns:
            The number of GPUs that were not lost before.
        """
        fresh = 0
        for (node, gpu), users in lost.items():
            before = self._lost.get((node, gpu), frozenset())
            fresh += (node, gpu) not in self._lost
            if (node, gpu) not in self._lost:
                log.error(
                    "gpu without reservation", node=node, gpu=gpu, pods=sorted(_name(one) for one in users)
                )
            for user in users - before:
                await self._write(user, "Warning", "ReservationLost", _lost_note(node, gpu))
        for (node, gpu), users in self._lost.items():
            if (node, gpu) not in lost:
                log.info("gpu reserved again, or unused", node=node, gpu=gpu)
                for user in users:
                    note = f"GPU {gpu} of node {node} is reserved again, or no pod uses it any more"
                    await self._write(user, "Normal", "ReservationRestored", note)
        self._lost = dict(lost)
        return fresh

    def _of(self, reservation: Reservation) -> User:
        return User(reservation.uid, self.namespace, reservation.name)

    async def _write(self, about: User, kind: str, reason: str, note: str) -> None:
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": fitted_name(f"{about.name}.{secrets.token_hex(8)}"),
                "namespace": about.namespace,
            },
            "eventTime": rfc3339(datetime.now(UTC)),
            "type": kind,
            "reason": reason,
            "action": "Pooling",
            "note": note[:1000],
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance[:LONGEST_INSTANCE],
        }
        try:
            await self.transport.post(f"/apis/events.k8s.io/v1/namespaces/{about.namespace}/events", event)
        except ApiError as error:
            log.warning("an event was not written", pod=_name(about), reason=reason, error=str(error))


def _lost_note(node: NodeName, gpu: GpuUuid) -> str:
    return (
        f"GPU {gpu} of node {node} has no reservation any more, so Kubernetes may give it to another pod too. "
        "This pod runs on, and the GPU is being reserved again"
    )


def _name(user: User) -> str:
    return f"{user.namespace}/{user.name}"
