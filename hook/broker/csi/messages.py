"""The messages between kubelet and volume service: the parts of two protocols that this service reads and writes.

`pluginregistration` is `k8s.io/kubelet/pkg/apis/pluginregistration/v1`, and `csi.v1` is the Container Storage
Interface 1.x. The messages are described here and built when the module is imported, so the repository has no
generated code and the build needs no `protoc`. protobuf reads and writes them, and skips fields that are not named
here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

STRING: Final = "string"
BOOLEAN: Final = "boolean"
STRINGS: Final = "strings"
MAP: Final = "map of strings to strings"

_Fields = Mapping[str, tuple[int, str]]
"""The fields of a message: the name, its number, and its type, which may be the name of another message."""

_PLAIN: Final = {STRING: FieldDescriptorProto.TYPE_STRING, BOOLEAN: FieldDescriptorProto.TYPE_BOOL}

_REGISTRATION: Final[Mapping[str, _Fields]] = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, STRING),
        "name": (2, STRING),
        "endpoint": (3, STRING),
        "supported_versions": (4, STRINGS),
    },
    "RegistrationStatus": {"plugin_registered": (1, BOOLEAN), "error": (2, STRING)},
    "RegistrationStatusResponse": {},
}
_CSI: Final[Mapping[str, _Fields]] = {
    "GetPluginInfoRequest": {},
    "GetPluginInfoResponse": {"name": (1, STRING), "vendor_version": (2, STRING)},
    "GetPluginCapabilitiesRequest": {},
    "GetPluginCapabilitiesResponse": {},
    "ProbeRequest": {},
    "ProbeResponse": {},
    "NodeGetInfoRequest": {},
    "NodeGetInfoResponse": {"node_id": (1, STRING)},
    "NodeGetCapabilitiesRequest": {},
    "NodeGetCapabilitiesResponse": {},
    "BlockVolume": {},
    "VolumeCapability": {"block": (1, "BlockVolume")},
    "NodePublishVolumeRequest": {
        "volume_id": (1, STRING),
        "target_path": (4, STRING),
        "volume_capability": (5, "VolumeCapability"),
        "readonly": (6, BOOLEAN),
        "volume_context": (8, MAP),
    },
    "NodePublishVolumeResponse": {},
    "NodeUnpublishVolumeRequest": {"volume_id": (1, STRING), "target_path": (2, STRING)},
    "NodeUnpublishVolumeResponse": {},
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a service.

    Attributes:
        request: the class of its question.
        response: the class of its answer.
    """

    request: Any
    response: Any


def _build(package: str, messages: Mapping[str, _Fields]) -> dict[str, Any]:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            _add_field(message, field_name, number, kind, package)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: DescriptorProto, name: str, number: int, kind: str, package: str) -> None:
    is_repeated = kind in {STRINGS, MAP}
    label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind == MAP:  # on the wire a map is a list of pairs
        pair = message.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
        pair.options.map_entry = True
        _add_field(pair, "key", 1, STRING, package)
        _add_field(pair, "value", 2, STRING, package)
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{pair.name}"
    elif kind in {STRING, BOOLEAN, STRINGS}:
        field.type = _PLAIN[STRING if kind == STRINGS else kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def _calls(messages: Mapping[str, Any], *names: str) -> dict[str, Call]:
    return {name: Call(messages[f"{name}Request"], messages[f"{name}Response"]) for name in names}


_registration: Final = _build("pluginregistration", _REGISTRATION)
_csi: Final = _build("csi.v1", _CSI)

SERVICES: Final[Mapping[str, Mapping[str, Call]]] = {
    "pluginregistration.Registration": {
        "GetInfo": Call(_registration["InfoRequest"], _registration["PluginInfo"]),
        "NotifyRegistrationStatus": Call(
            _registration["RegistrationStatus"], _registration["RegistrationStatusResponse"]
        ),
    },
    "csi.v1.Identity": _calls(_csi, "GetPluginInfo", "GetPluginCapabilities", "Probe"),
    "csi.v1.Node": _calls(
        _csi, "NodePublishVolume", "NodeUnpublishVolume", "NodeGetInfo", "NodeGetCapabilities"
    ),
}
"""The calls of each gRPC service, by name."""
