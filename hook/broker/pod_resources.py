"""The kubelet's answer to the question which container of this node has which devices (`PodResources`, `v1`).

The kubelet gives devices to a pod when it admits the pod, before it makes a sandbox, and lists them from then on. It
lists pods by their names, without uids, and no init container but sidecars.

The messages have the fields of `k8s.io/kubelet/pkg/apis/podresources/v1` that are used here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# gRPC writes its own lines to standard error unless this variable is set before its first import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from hook.broker.protobuf import STRING, STRINGS, Fields, build_messages

ANSWER_S: Final = 5.0
"""The kubelet answers within milliseconds."""

_MESSAGES: Final[Mapping[str, Fields]] = {
    "ListPodResourcesRequest": {},
    "ContainerDevices": {"resource_name": (1, STRING), "device_ids": (2, STRINGS)},
    "ContainerResources": {"name": (1, STRING), "devices": (2, "*ContainerDevices")},
    "PodResources": {
        "name": (1, STRING),
        "namespace": (2, STRING),
        "containers": (3, "*ContainerResources"),
    },
    "ListPodResourcesResponse": {"pod_resources": (1, "*PodResources")},
}
_BUILT: Final = build_messages("v1", _MESSAGES)


class SilentError(Exception):
    """The kubelet does not answer; the message says why."""


@dataclass(frozen=True, slots=True)
class KubeletContainer:
    """A container as the kubelet names it.

    Attributes:
        namespace, pod, container: names.
    """

    namespace: str
    pod: str
    container: str


Devices = Mapping[KubeletContainer, tuple[str, ...]]
"""The ids of each container's devices of one resource."""


async def devices_of(socket: Path, resource: str) -> Devices:
    """The containers that have devices of a resource, such as `nvidia.com/gpu`.

    A channel of its own for each question: the socket is another one after a restart of the kubelet.

    Raises:
        SilentError: no answer, or a refusal.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=_BUILT["ListPodResourcesRequest"].SerializeToString,
            response_deserializer=_BUILT["ListPodResourcesResponse"].FromString,
        )
        try:
            answer: Any = await call(_BUILT["ListPodResourcesRequest"](), timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            raise SilentError(f"{error.code().name}: {error.details()}") from error
    found = {
        KubeletContainer(pod.namespace, pod.name, container.name): tuple(
            device
            for given in container.devices
            if given.resource_name == resource
            for device in given.device_ids
        )
        for pod in answer.pod_resources
        for container in pod.containers
    }
    return {holder: devices for holder, devices in found.items() if devices}
