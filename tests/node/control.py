"""The whole control plane of a test node: etcd, kube-apiserver, every controller, kube-scheduler.

It differs from the API server of other tests: service accounts get tokens, as controllers make them here, and pods
with a network of their own reach the API server by the address of its Service.
"""

import asyncio
import contextlib
import dataclasses
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import aiohttp

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.cluster import assets
from tests.node.network import NODE_IP
from tests.node.places import NODE
from tests.servers import control_plane
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import USERS, ControlPlane
from tests.servers.controllers import controllers

KUBELET_USER: Final = f"system:node:{NODE}"
PORT: Final = 443
"""As in the Service `kubernetes`, whose address the node itself has."""


@contextlib.asynccontextmanager
async def control(directory: Path) -> AsyncIterator[ApiServer]:
    """Run the control plane until the context ends; entered once it answers.

    Raises:
        EmbeddedServerError: a part did not start.
        MissingBinaryError: a part is not built.
    """
    tokens = {user: secrets.token_hex(16) for user in USERS}
    await asyncio.to_thread(control_plane.write_credentials, directory, tokens)
    tokens[KUBELET_USER] = secrets.token_hex(16)
    with (directory / "tokens.csv").open("a") as file:
        file.write(f"{tokens[KUBELET_USER]},{KUBELET_USER},uid-kubelet,system:nodes\n")
    async with running(control_plane.etcd_kind(), directory / "etcd") as etcd:
        server = EmbeddedServer(_apiserver_kind(etcd, directory), directory / "apiserver", PORT)
        await server.start()
        try:
            certificate = directory / "apiserver" / "apiserver.crt"
            plane = ControlPlane(f"https://{NODE_IP}:{PORT}", certificate, tokens, directory, etcd, server)
            await asyncio.to_thread(control_plane.write_kubeconfigs, plane)
            await control_plane.until_ready(plane)
            async with _controllers(plane), _scheduler(plane), _reached(plane) as api:
                yield api
        finally:
            await server.kill()  # on SIGTERM it would wait for open watches


@contextlib.asynccontextmanager
async def _reached(plane: ControlPlane) -> AsyncIterator[ApiServer]:
    context = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(plane.url, connector=connector) as http:
        yield ApiServer(plane, http)


def _apiserver_kind(etcd: EmbeddedServer, directory: Path) -> ServerKind:
    kind = control_plane.apiserver_kind(etcd, directory)
    changed: Mapping[str, str] = {
        "--bind-address": "0.0.0.0",  # noqa: S104 - of a network namespace that nothing leads to
        "--advertise-address": NODE_IP,
        "--allow-privileged": "true",
        "--disable-admission-plugins": "",  # left out
    }
    more = ("--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP")

    def arguments(port: int, folder: Path) -> Sequence[str]:
        kept = [one for one in kind.arguments(port, folder) if one.partition("=")[0] not in changed]
        return (*kept, *(f"{name}={value}" for name, value in changed.items() if value), *more)

    return dataclasses.replace(kind, arguments=arguments)


def _controllers(plane: ControlPlane) -> contextlib.AbstractAsyncContextManager[EmbeddedServer]:
    options = (
        f"--flex-volume-plugin-dir={plane.directory / 'volume-plugins'}",
        f"--service-account-private-key-file={plane.directory / 'service-account.key'}",
        f"--root-ca-file={plane.ca_file}",
    )
    return controllers(plane, ("*",), plane.directory / "controllers", options)


def _scheduler(plane: ControlPlane) -> contextlib.AbstractAsyncContextManager[EmbeddedServer]:
    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--kubeconfig={plane.kubeconfig()}", "--secure-port=0", "--leader-elect=false")

    kind = ServerKind(
        "kube-scheduler",
        "http",
        "Starting Kubernetes Scheduler",
        lambda: assets.binary("kube-scheduler"),
        arguments,
    )
    return running(kind, plane.directory / "kube-scheduler")
