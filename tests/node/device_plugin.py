"""Stands in for NVIDIA's device plugin: `python -m tests.node.device_plugin UUID …`, by the kubelet's real interface.

It gives the emulator's GPUs, by their UUIDs, as `nvidia.com/gpu`, and names theirs to containers by
`NVIDIA_VISIBLE_DEVICES`, as the original does by default. Like the original it registers again when the kubelet was
started anew. The file `TEST_PREFERRED_CARDS` names, if it is there, lists UUIDs in the order in which the kubelet
is to give them.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc.aio

from tests.node.kubelet_api import DEVICES

DIRECTORY: Final = Path("/var/lib/kubelet/device-plugins")
"""The kubelet's, whatever its root directory is."""
SOCKET: Final = "nvidia-gpu.sock"
RESOURCE: Final = "nvidia.com/gpu"
READY: Final = "device plugin registered"
LOOK_S: Final = 0.2
"""The pause between two searches for a new socket of the kubelet."""

_Untyped = Any


class Plugin:
    """The calls that the kubelet makes."""

    def __init__(self, uuids: list[str], preferred: Path | None) -> None:
        self._uuids = uuids
        self._preferred = preferred

    async def options(self, _: _Untyped, __: _Untyped) -> _Untyped:
        """The optional calls that this plugin answers."""
        return DEVICES["DevicePluginOptions"](get_preferred_allocation_available=True)

    async def list_and_watch(self, _: _Untyped, __: _Untyped) -> AsyncIterator[_Untyped]:
        """All GPUs, and then silence for as long as the kubelet listens."""
        devices = [DEVICES["Device"](ID=uuid, health="Healthy") for uuid in self._uuids]
        yield DEVICES["ListAndWatchResponse"](devices=devices)
        await asyncio.Event().wait()

    async def preferred(self, request: _Untyped, _: _Untyped) -> _Untyped:
        """The GPUs to give out of those that are free."""
        order = self._uuids
        if self._preferred is not None and self._preferred.exists():
            order = self._preferred.read_text().split()
        answers = []
        for one in request.container_requests:
            must, free = list(one.must_include_deviceIDs), set(one.available_deviceIDs)
            more = [uuid for uuid in order if uuid in free and uuid not in must]
            answers.append(
                DEVICES["ContainerPreferredAllocationResponse"](
                    deviceIDs=(must + more)[: one.allocation_size]
                )
            )
        return DEVICES["PreferredAllocationResponse"](container_responses=answers)

    async def allocate(self, request: _Untyped, _: _Untyped) -> _Untyped:
        """The settings with which containers with these GPUs are started."""
        answers = [
            DEVICES["ContainerAllocateResponse"](envs={"NVIDIA_VISIBLE_DEVICES": ",".join(one.devices_ids)})
            for one in request.container_requests
        ]
        return DEVICES["AllocateResponse"](container_responses=answers)


def _handler(plugin: Plugin) -> _Untyped:
    unary = {
        "GetDevicePluginOptions": (plugin.options, "Empty", "DevicePluginOptions"),
        "GetPreferredAllocation": (
            plugin.preferred,
            "PreferredAllocationRequest",
            "PreferredAllocationResponse",
        ),
        "Allocate": (plugin.allocate, "AllocateRequest", "AllocateResponse"),
    }
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=DEVICES[request].FromString,
            response_serializer=DEVICES[answer].SerializeToString,
        )
        for name, (call, request, answer) in unary.items()
    }
    methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
        plugin.list_and_watch,
        request_deserializer=DEVICES["Empty"].FromString,
        response_serializer=DEVICES["ListAndWatchResponse"].SerializeToString,
    )
    return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)


async def _register() -> None:
    async with grpc.aio.insecure_channel(f"unix:{DIRECTORY / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=DEVICES["RegisterRequest"].SerializeToString,
            response_deserializer=DEVICES["Empty"].FromString,
        )
        options = DEVICES["DevicePluginOptions"](get_preferred_allocation_available=True)
        await call(
            DEVICES["RegisterRequest"](
                version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE, options=options
            )
        )


async def _serve_once(plugin: Plugin) -> None:
    """Serve one life of the kubelet: until its socket is another one."""
    kubelet = DIRECTORY / "kubelet.sock"
    while not kubelet.exists():  # noqa: ASYNC110 - the kubelet tells nobody
        await asyncio.sleep(LOOK_S)
    began = kubelet.stat().st_ino, kubelet.stat().st_ctime_ns
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_handler(plugin)])
    (DIRECTORY / SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{DIRECTORY / SOCKET}")
    await server.start()
    try:
        await _register()
        sys.stderr.write(f"{READY}\n")
        sys.stderr.flush()
        while True:
            with contextlib.suppress(FileNotFoundError):
                found = kubelet.stat()
                if (found.st_ino, found.st_ctime_ns) != began:
                    return
            await asyncio.sleep(LOOK_S)
    finally:
        await server.stop(0)


async def serve(uuids: list[str], preferred: Path | None) -> None:
    """Serve until a signal, anew after each end of a kubelet."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ended = asyncio.create_task(stop.wait())
    plugin = Plugin(uuids, preferred)
    while not stop.is_set():
        life = asyncio.create_task(_serve_once(plugin))
        await asyncio.wait({life, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not life.done():
            life.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            await life
        if not stop.is_set():
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    named = os.environ.get("TEST_PREFERRED_CARDS")
    asyncio.run(serve(sys.argv[1:], Path(named) if named else None))
