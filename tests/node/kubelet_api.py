"""The kubelet's gRPC interfaces for device plugins (`v1beta1`) and about the devices of pods (`v1`).

The messages have the fields of `k8s.io/kubelet/pkg/apis/{deviceplugin/v1beta1,podresources/v1}` that tests use.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PLAIN: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
}

_Fields = Mapping[str, tuple[int, str]]
"""The fields of a message: a name, its number, and its type; `*` before the type: repeated, `map`: of strings."""

_DEVICES: Final[Mapping[str, _Fields]] = {
    "DevicePluginOptions": {
        "pre_start_required": (1, "bool"),
        "get_preferred_allocation_available": (2, "bool"),
    },
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "Empty": {},
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, "*string"),
        "must_include_deviceIDs": (2, "*string"),
        "allocation_size": (3, "int32"),
    },
    "PreferredAllocationRequest": {"container_requests": (1, "*ContainerPreferredAllocationRequest")},
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, "*string")},
    "PreferredAllocationResponse": {"container_responses": (1, "*ContainerPreferredAllocationResponse")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "ContainerAllocateResponse": {"envs": (1, "map")},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}

_PODS: Final[Mapping[str, _Fields]] = {
    "ListPodResourcesRequest": {},
    "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "*string")},
    "ContainerResources": {"name": (1, "string"), "devices": (2, "*ContainerDevices")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "*ContainerResources"),
    },
    "ListPodResourcesResponse": {"pod_resources": (1, "*PodResources")},
}


def _build(package: str, messages: Mapping[str, _Fields]) -> dict[str, Any]:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind, package)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add(message: DescriptorProto, name: str, number: int, kind: str, package: str) -> None:
    repeated = kind.startswith("*") or kind == "map"
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    bare = kind.removeprefix("*")
    if bare == "map":
        entry = f"{name.title()}Entry"
        pair = message.nested_type.add(name=entry)
        pair.options.map_entry = True
        _add(pair, "key", 1, "string", package)
        _add(pair, "value", 2, "string", package)
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{message.name}.{entry}"
    elif bare in _PLAIN:
        field.type = _PLAIN[bare]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{bare}"


DEVICES: Final = _build("v1beta1", _DEVICES)
"""Message classes by name, for `v1beta1.Registration` and `v1beta1.DevicePlugin`."""
PODS: Final = _build("v1", _PODS)
"""Message classes by name, for `v1.PodResourcesLister`."""
