"""Names the GPU of each of the pool's reservations on this node, as soon as the kubelet has given it.

A reservation's first container names its GPU too, in its termination message. But a sandbox, a container and the
kubelet's next look at its runtime come first, and a user's pod waits for all of these. The kubelet gives a pod its
devices when it admits the pod, and says so at once when it is asked.

What always holds: a GPU is named on the reservation for which the kubelet lists it. The list has names and no uids,
and names of reservations are used again, so the container must have the name that it has in this very pod. A
reservation that is not named here, for whatever reason, is named by its container.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Self

from hook.broker.pod_resources import Devices, KubeletContainer, SilentError, devices_of
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.kube.transport import ApiError, PatchKind, TransientError, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.pool import CARD, DEVICE, is_reservation, reservation_of

FIRST_PAUSE_S: Final = 0.02
"""Between a Binding and the pod's admission by the kubelet lie some ten milliseconds. The kubelet answers 100
questions a second at most."""
LONGEST_PAUSE_S: Final = 1.0
GPU_PREFIX: Final = "GPU-"
"""The device plugin may be set to name devices by numbers, and those of a shared GPU have a suffix. A number is
not a UUID, so the container itself reports which GPU it has."""
SUFFIX: Final = "::"

_log: Final = get_logger()


@dataclass(slots=True)
class Reservations:
    """Writes the names of GPUs on reservations while `run` runs.

    Attributes:
        transport: the transport to the API server.
        namespace: the namespace of reservations.
        ask: asks the kubelet for the devices of all containers.
    """

    transport: Transport
    namespace: str
    ask: Callable[[], Awaitable[Devices]]
    _unnamed: dict[PodUid, Pod] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of_kubelet(cls, transport: Transport, namespace: str, socket: Path) -> Self:
        """Name the GPUs that the kubelet with this socket gives."""
        return cls(transport, namespace, partial(devices_of, socket, DEVICE))

    def note(self, change: Change[Pod]) -> None:
        """Take a change of any pod of this node."""
        match change:
            case Added(pod) | Modified(pod) if self._is_unnamed(pod):
                uid = PodUid(pod.metadata.uid)
                if uid not in self._unnamed:
                    self._news.set()
                self._unnamed[uid] = pod
            case Added(pod) | Modified(pod) | Deleted(pod):
                self._unnamed.pop(PodUid(pod.metadata.uid), None)
            case Synced():
                pass

    async def run(self) -> NoReturn:
        """Ask the kubelet while a reservation has no name, until cancelled."""
        pauses, is_silent = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S), False
        while True:
            heed_cancellation()
            if not self._unnamed:
                self._news.clear()
                await self._news.wait()
            if self._news.is_set():
                self._news.clear()
                pauses.reset()
            try:
                await self._name_all(await self.ask())
            except SilentError as error:
                if not is_silent:
                    remedy = (
                        "see the kubelet; until then reservations of the pool name their GPUs by themselves"
                    )
                    _log.warning("kubelet_lists_no_devices", problem=str(error), remedy=remedy)
                is_silent = True
            else:
                is_silent = False
            await asyncio.sleep(pauses.next_s())

    async def _name_all(self, devices: Devices) -> None:
        for uid, pod in tuple(self._unnamed.items()):
            given = {device for one in _holders(pod) for device in devices.get(one, ())}
            if len(given) != 1 or not _is_gpu(gpu := given.pop()):
                continue  # not admitted yet, or not to be named here
            try:
                await self._name(pod, gpu)
            except TransientError as error:
                _log.warning("reservation_not_named_yet", pod=pod.metadata.name, problem=str(error))
                continue
            except ApiError as error:  # the pod is gone, or this account has no right to it
                _log.warning("reservation_not_named", pod=pod.metadata.name, problem=str(error))
            else:
                _log.info("reservation_named", pod=pod.metadata.name, gpu=gpu)
            self._unnamed.pop(uid, None)

    async def _name(self, pod: Pod, gpu: str) -> None:
        """Write the GPU on this very pod: the server refuses the uid of any other."""
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {CARD: gpu}}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod.metadata.name}"
        await self.transport.patch(path, body, PatchKind.MERGE)

    def _is_unnamed(self, pod: Pod) -> bool:
        if not is_reservation(pod, self.namespace):
            return False
        found = reservation_of(pod)
        return (
            found.bound and found.gpu is None and found.card is None and not found.leaving and not found.ended
        )


def _holders(pod: Pod) -> list[KubeletContainer]:
    named = pod.metadata.namespace, pod.metadata.name
    return [KubeletContainer(*named, container.name) for container in pod.spec.containers]


def _is_gpu(device: str) -> bool:
    return device.startswith(GPU_PREFIX) and SUFFIX not in device
