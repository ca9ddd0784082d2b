"""The servers of a benchmark: one etcd and kube-apiserver, one NATS, one Valkey, all on loopback.

Neither scheduler is throttled: both are members of `system:masters`, which API priority and fairness exempts. etcd
does not wait for the disk, so the figures show the schedulers and the API server, and not the disk.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench.measures.process_cost import cpu_ns
from plimsoll_cli.demo.servers import EmbeddedServer, nats_server, valkey_server
from tests.servers.control_plane import ADMIN, ControlPlane, control_plane

Json = dict[str, Any]

OPTIONS: Final = (
    # No controller removes the taint that this plugin puts on a new node.
    "--disable-admission-plugins=TaintNodesByCondition",
    # Thousands of pods are deleted between two rounds.
    "--delete-collection-workers=4",
)
CONNECTIONS: Final = 32
"""Requests at once while objects are made: enough to keep the API server busy."""
TIMEOUT_S: Final = 300.0


class RefusedError(Exception):
    """The API server refused a request that the benchmark needs; the message holds its answer."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers, and an administrator's session on the API server."""

    plane: ControlPlane
    nats: EmbeddedServer
    valkey: EmbeddedServer
    http: aiohttp.ClientSession
    directory: Path

    @property
    def redis_url(self) -> str:
        """The URL of Valkey for Redis clients."""
        return self.valkey.url.replace("valkey://", "redis://")

    def api_cpu_s(self) -> float:
        """The CPU time of kube-apiserver and etcd until now, in seconds."""
        return (cpu_ns(self.plane.server.pid) + cpu_ns(self.plane.etcd.pid)) / 1e9

    async def call(self, method: str, path: str, body: object = None) -> Json:
        """Send one request and return the decoded answer; raises `RefusedError` for any status from 400."""
        data = None if body is None else msgspec.json.encode(body)
        async with self.http.request(method, path, data=data) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise RefusedError(f"{method} {path}: {answer.status} {text[:300]!r}")
            decoded: Json = msgspec.json.decode(text)
            return decoded


@asynccontextmanager
async def running_servers(directory: Path) -> AsyncIterator[Servers]:
    """Run the servers until the context ends."""
    async with (
        control_plane(directory / "cluster", OPTIONS) as plane,
        nats_server(directory / "nats") as nats,
        valkey_server(directory / "valkey") as valkey,
        session(plane) as http,
    ):
        yield Servers(plane, nats, valkey, http, directory)


@asynccontextmanager
async def session(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """An administrator's session with connections of its own, so that a client of the benchmark is independent."""
    context = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
    headers = {"Authorization": f"Bearer {plane.tokens[ADMIN]}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(
        plane.url, headers=headers, connector=connector, timeout=timeout, read_bufsize=2**21
    ) as http:
        yield http
