"""The volume service on two sockets: the kubelet finds the first in its plugin registry, and it names the second.

The messages are gRPC's, over UNIX sockets that only root may use.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NoReturn

from plimsoll.part.log import get_logger

# gRPC writes its own lines to standard error unless this variable is set before its first import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from hook.broker.csi.messages import SERVICES
from hook.broker.csi.publishing import NoLinesError, VolumePublisher
from hook.broker.csi.volumes import InlineVolumes
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.layouts import Layouts
from hook.broker.settings import Settings
from plimsoll.broker.volume import DRIVER
from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError

SOCKET_BYTES_MOST: Final = 107
"""The longest address of a UNIX socket."""
DIRECTORY_MODE: Final = 0o700
VOLUME_WAIT_S: Final = 45.0
"""Seconds that a request of the kubelet for a volume waits for the lines of its pod. The kubelet gives up after two
minutes."""
STOP_S: Final = 0.0
"""Seconds that requests under way get at the end. The kubelet repeats them, so none is waited for."""

_log: Final = get_logger()
_Untyped = Any
"""An object of gRPC or protobuf, which ship no types."""
_Handler = Callable[[_Untyped, _Untyped], Awaitable[_Untyped]]


@dataclass(frozen=True, slots=True)
class Sockets:
    """The paths of the two sockets, as the kubelet sees them too.

    Attributes:
        registration: the registration in the kubelet's plugin registry.
        volumes: the CSI endpoint.
    """

    registration: Path
    volumes: Path


def sockets_of(kubelet: Path) -> Sockets:
    """The sockets below the kubelet's root directory, of which one is in its plugin registry.

    Raises:
        InputError: a path is too long for a socket.
    """
    sockets = Sockets(
        kubelet / "plugins_registry" / f"{DRIVER}-reg.sock", kubelet / "plugins" / DRIVER / "csi.sock"
    )
    for path in (sockets.registration, sockets.volumes):
        if len(os.fsencode(path)) > SOCKET_BYTES_MOST:
            problem = f"leads to a socket's path of more than {SOCKET_BYTES_MOST} bytes"
            raise InputError("PLIMSOLL_BROKER_KUBELET_ROOT", str(path), problem, "use a shorter directory")
    return sockets


async def serve_volumes(
    engine: Engine, volumes: InlineVolumes, layouts: Layouts, settings: Settings
) -> NoReturn:
    """Serve the kubelet's requests for volumes until cancelled.

    Raises:
        InputError: a socket cannot be made.
    """
    node, kubelet = NodeName(settings.node), Path(settings.kubelet_root)
    publisher = VolumePublisher(engine, volumes, layouts, node, VOLUME_WAIT_S)
    async with serving_volumes(publisher, node, sockets_of(kubelet)):
        while True:
            await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving_volumes(
    publisher: VolumePublisher, node: NodeName, sockets: Sockets
) -> AsyncIterator[None]:
    """Serve the kubelet until the context ends; then the kubelet takes the driver off the node's CSINode.

    Raises:
        InputError: a socket cannot be made.
    """
    server = grpc.aio.server()
    handlers = {
        "csi.v1.Identity": _identity(),
        "csi.v1.Node": _node(publisher, node),
        "pluginregistration.Registration": _registration(sockets.volumes),
    }
    server.add_generic_rpc_handlers([_generic(service, calls) for service, calls in handlers.items()])
    # The endpoint is there before the kubelet can learn of it.
    for path in (sockets.volumes, sockets.registration):
        await asyncio.to_thread(_make_directory, path.parent)
        _listen(server, path)
    await server.start()
    _log.info("volumes_ready", driver=DRIVER, registration=str(sockets.registration))
    try:
        yield
    finally:
        await server.stop(STOP_S)
        for path in (sockets.registration, sockets.volumes):
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(path.unlink)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "mount the kubelet's directory into the broker's container at the same path, writable"
        raise InputError(
            "PLIMSOLL_BROKER_KUBELET_ROOT", str(path), f"cannot be used ({error})", remedy
        ) from error


def _listen(server: _Untyped, path: Path) -> None:
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        remedy = "see whether the directory is there and writable"
        raise InputError(
            "PLIMSOLL_BROKER_KUBELET_ROOT", str(path), f"cannot be a socket ({error})", remedy
        ) from error


def _generic(service: str, handlers: Mapping[str, _Handler]) -> _Untyped:
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            handlers[name],
            request_deserializer=call.request.FromString,
            response_serializer=call.response.SerializeToString,
        )
        for name, call in SERVICES[service].items()
    }
    return grpc.method_handlers_generic_handler(service, methods)


def _registration(endpoint: Path) -> dict[str, _Handler]:
    async def notify(request: _Untyped, _: _Untyped) -> _Untyped:
        if request.plugin_registered:
            _log.info("driver_registered", driver=DRIVER)
        else:
            remedy = "the kubelet's log says more; restart the broker once that is mended"
            _log.error("driver_not_registered", driver=DRIVER, problem=request.error, remedy=remedy)
        return calls["NotifyRegistrationStatus"].response()

    calls = SERVICES["pluginregistration.Registration"]
    info = calls["GetInfo"].response(
        type="CSIPlugin", name=DRIVER, endpoint=str(endpoint), supported_versions=["1.0.0"]
    )
    return {"GetInfo": partial(_answer, info), "NotifyRegistrationStatus": notify}


def _identity() -> dict[str, _Handler]:
    calls = SERVICES["csi.v1.Identity"]
    info = calls["GetPluginInfo"].response(name=DRIVER, vendor_version=_version())
    return {
        "GetPluginInfo": partial(_answer, info),
        "GetPluginCapabilities": partial(_answer, calls["GetPluginCapabilities"].response()),
        "Probe": partial(_answer, calls["Probe"].response()),
    }


def _node(publisher: VolumePublisher, node: NodeName) -> dict[str, _Handler]:
    calls = SERVICES["csi.v1.Node"]

    async def publish(request: _Untyped, call: _Untyped) -> _Untyped:
        is_block = request.volume_capability.HasField("block")
        context = dict(request.volume_context)
        work = publisher.publish(request.target_path, context, is_block=is_block)
        await _done(work, call, "publish", request.target_path)
        return calls["NodePublishVolume"].response()

    async def unpublish(request: _Untyped, call: _Untyped) -> _Untyped:
        work = publisher.unpublish(request.target_path)
        await _done(work, call, "unpublish", request.target_path)
        return calls["NodeUnpublishVolume"].response()

    return {
        "NodePublishVolume": publish,
        "NodeUnpublishVolume": unpublish,
        "NodeGetInfo": partial(_answer, calls["NodeGetInfo"].response(node_id=node)),
        "NodeGetCapabilities": partial(_answer, calls["NodeGetCapabilities"].response()),
    }


async def _answer(response: _Untyped, request: _Untyped, call: _Untyped) -> _Untyped:  # noqa: ARG001 - gRPC passes both
    return response


async def _done(work: Awaitable[None], call: _Untyped, what: str, path: str) -> None:
    """Await a request's work. The kubelet shows the message of a failure in the pod's events."""
    try:
        await work
        return
    except NoLinesError as error:
        code, problem = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        _log.warning("volume_refused", target=path, problem=problem)
    except InputError as error:
        code, problem = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        _log.error("volume_not_served", call=what, target=path, problem=problem)
    except (NotCarriedOutError, OSError) as error:
        code, problem = grpc.StatusCode.UNAVAILABLE, str(error)
        _log.error("volume_not_served", call=what, target=path, problem=problem)
    except Exception as error:  # noqa: BLE001 - no request may end the node's broker
        code, problem = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        _log.error("volume_not_served", call=what, target=path, exc_info=True)
    await call.abort(code, problem)


def _version() -> str:
    try:
        return version("plimsoll")
    except PackageNotFoundError:
        return "0"
