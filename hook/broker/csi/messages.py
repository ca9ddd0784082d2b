"""The messages between kubelet and volume service: the parts of two protocols that this service reads and writes.

`pluginregistration` is `k8s.io/kubelet/pkg/apis/pluginregistration/v1`, and `csi.v1` is the Container Storage
Interface 1.x. `protobuf` builds the messages when the module is imported, and skips fields that are not named
here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hook.broker.protobuf import BOOLEAN, MAP, STRING, STRINGS, Fields, build_messages

_REGISTRATION: Final[Mapping[str, Fields]] = {
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
_CSI: Final[Mapping[str, Fields]] = {
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


def _calls(messages: Mapping[str, Any], *names: str) -> dict[str, Call]:
    return {name: Call(messages[f"{name}Request"], messages[f"{name}Response"]) for name in names}


_registration: Final = build_messages("pluginregistration", _REGISTRATION)
_csi: Final = build_messages("csi.v1", _CSI)

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
