"""The kubelet's gRPC interfaces for device plugins (`v1beta1`) and about the devices of pods (`v1`).

The messages have the fields of `k8s.io/kubelet/pkg/apis/{deviceplugin/v1beta1,podresources/v1}` that tests use.
"""

from collections.abc import Mapping
from typing import Final

from hook.broker.protobuf import BOOLEAN, INT32, MAP, STRING, STRINGS, Fields, build_messages

_DEVICES: Final[Mapping[str, Fields]] = {
    "DevicePluginOptions": {
        "pre_start_required": (1, BOOLEAN),
        "get_preferred_allocation_available": (2, BOOLEAN),
    },
    "RegisterRequest": {
        "version": (1, STRING),
        "endpoint": (2, STRING),
        "resource_name": (3, STRING),
        "options": (4, "DevicePluginOptions"),
    },
    "Empty": {},
    "Device": {"ID": (1, STRING), "health": (2, STRING)},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, STRINGS),
        "must_include_deviceIDs": (2, STRINGS),
        "allocation_size": (3, INT32),
    },
    "PreferredAllocationRequest": {"container_requests": (1, "*ContainerPreferredAllocationRequest")},
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, STRINGS)},
    "PreferredAllocationResponse": {"container_responses": (1, "*ContainerPreferredAllocationResponse")},
    "ContainerAllocateRequest": {"devices_ids": (1, STRINGS)},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "ContainerAllocateResponse": {"envs": (1, MAP)},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}

_PODS: Final[Mapping[str, Fields]] = {
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


DEVICES: Final = build_messages("v1beta1", _DEVICES)
"""Message classes by name, for `v1beta1.Registration` and `v1beta1.DevicePlugin`."""
PODS: Final = build_messages("v1", _PODS)
"""Message classes by name, for `v1.PodResourcesLister`."""
