"""A stand-in for the kubelet: a gRPC client that finds the driver in the plugin registry and asks for volumes.

The real kubelet with containerd and runc is in the tests of a whole node. This one asks at once, and for odd things.
"""

from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from hook.broker.csi.messages import SERVICES
from tests.hook.broker.conftest import MAIN
from tests.servers.waiting import PATIENCE_S

DRIVER: Final = "plimsoll.dev"
_Untyped = Any
"""A message or a field of one; protobuf ships no types."""


class RefusedError(Exception):
    """The driver refused a request.

    Attributes:
        code: the name of gRPC's status.
        message: the message as the user's events show it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Kubelet:
    """The kubelet of one node."""

    def __init__(self, directory: Path) -> None:
        """Use this root directory."""
        self.directory = directory
        self.registry = directory / "plugins_registry"
        self.registry.mkdir(parents=True, exist_ok=True)
        self.endpoint = ""

    async def register(self) -> str:
        """Find the driver and accept it; returns the node's name as the driver knows it."""
        socket = self.registry / f"{DRIVER}-reg.sock"
        service = "pluginregistration.Registration"
        info = await self._call(socket, service, "GetInfo")
        assert (info.type, info.name, list(info.supported_versions)) == ("CSIPlugin", DRIVER, ["1.0.0"])
        self.endpoint = info.endpoint
        node = await self._call(Path(self.endpoint), "csi.v1.Node", "NodeGetInfo")
        await self._call(socket, service, "NotifyRegistrationStatus", plugin_registered=True)
        return str(node.node_id)

    def target(self, uid: str, volume: str = "plimsoll") -> Path:
        """The directory in which a pod's volume appears."""
        return self.directory / "pods" / uid / "volumes" / "kubernetes.io~csi" / volume / "mount"

    async def publish(
        self,
        uid: str,
        container: str | None = MAIN,
        *,
        context: dict[str, str] | None = None,
        **fields: _Untyped,
    ) -> Path:
        """Ask for a volume; returns its directory.

        Args:
            uid: the uid of the pod.
            container: the container that the volume names; None if it names none.
            context: replaces what the kubelet says of the pod.
            fields: replace other fields of the request.

        Raises:
            RefusedError: the driver refuses.
        """
        attributes = {} if container is None else {"container": container}
        words = attributes | {
            "csi.storage.k8s.io/pod.uid": uid,
            "csi.storage.k8s.io/pod.namespace": "ns",
            "csi.storage.k8s.io/pod.name": f"pod-{uid}",
            "csi.storage.k8s.io/ephemeral": "true",
        }
        target = self.target(uid)
        target.parent.mkdir(parents=True, exist_ok=True)
        request = {
            "volume_id": f"csi-{uid}",
            "target_path": str(target),
            "volume_context": words | (context or {}),
        }
        await self.ask("NodePublishVolume", **(request | fields))
        return target

    async def unpublish(self, uid: str) -> None:
        """Give a pod's volume back.

        Raises:
            RefusedError: the driver refuses.
        """
        await self.ask("NodeUnpublishVolume", volume_id=f"csi-{uid}", target_path=str(self.target(uid)))

    async def ask(self, method: str, **fields: _Untyped) -> _Untyped:
        """Call the driver.

        Raises:
            RefusedError: the driver refuses.
        """
        return await self._call(Path(self.endpoint), "csi.v1.Node", method, **fields)

    async def _call(self, socket: Path, service: str, method: str, **fields: _Untyped) -> _Untyped:
        kind = SERVICES[service][method]
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call = channel.unary_unary(
                f"/{service}/{method}",
                request_serializer=kind.request.SerializeToString,
                response_deserializer=kind.response.FromString,
            )
            try:
                return await call(kind.request(**fields), timeout=PATIENCE_S, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                raise RefusedError(error.code().name, error.details() or "") from error
