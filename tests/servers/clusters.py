"""Clusters of servers: three NATS servers, and Valkey with a replica and three sentinels.

Both are real processes on loopback, to be killed and restarted one by one. Each cluster takes some seconds to agree
on its leaders, so a test that only needs a server takes one of `tests.servers.stores`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nats as nats_client
import nats.errors
import redis.asyncio as redis
from nats.js.api import ClusterInfo

from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, free_port, running
from tests.servers.waiting import PATIENCE_S, until

NATS_SERVERS = ("nats-1", "nats-2", "nats-3")
MASTER = "plimsoll"
SENTINELS = 3
QUORUM = 2
# A failover begins this long after the master's death, and not while the machine stands still for some seconds.
DOWN_MS = 5000
# A sentinel that itself stood still for two seconds watches for the next thirty and does nothing ("tilt").


@dataclass(frozen=True, slots=True)
class NatsCluster:
    """Three NATS servers with JetStream, as one cluster.

    Attributes:
        servers: by their names in the cluster; `ClusterInfo.leader` is such a name.
    """

    servers: dict[str, EmbeddedServer]

    @property
    def url(self) -> str:
        """The URLs of all servers, as clients take them."""
        return ",".join(server.url for server in self.servers.values())

    async def kill(self, cluster: ClusterInfo | None) -> EmbeddedServer:
        """Kill the leader of a stream or a consumer, by SIGKILL, and return that server."""
        assert cluster is not None
        assert cluster.leader is not None
        server = self.servers[cluster.leader]
        await server.kill()
        return server


@dataclass(frozen=True, slots=True)
class SentinelValkey:
    """A Valkey master with one replica, and three sentinels that watch over them.

    Attributes:
        master: the master at the start.
        replica: its replica, which becomes the master when the first one dies.
        sentinels: the sentinels.
    """

    master: EmbeddedServer
    replica: EmbeddedServer
    sentinels: tuple[EmbeddedServer, ...]

    @property
    def url(self) -> str:
        """The URL of the master by its sentinels, as the placer takes it."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER}/0"

    async def fail_over(self) -> None:
        """Kill the master by SIGKILL, and return once the sentinels have made the replica the master."""
        await self.master.kill()
        await until(self._is_promoted, timeout_s=PATIENCE_S)

    async def _is_promoted(self) -> bool:
        """Whether the replica has become the master. The promotion itself cuts clients off."""
        async with redis.Redis.from_url(self.replica.url, protocol=2) as client:
            with contextlib.suppress(redis.ConnectionError):
                return bool((await client.info("replication"))["role"] == "master")
        return False


@contextlib.asynccontextmanager
async def nats_cluster(directory: Path) -> AsyncIterator[NatsCluster]:
    """Run three NATS servers until the context ends; entered once they can store replicated streams."""
    routes = {name: free_port() for name in NATS_SERVERS}
    async with contextlib.AsyncExitStack() as stack:
        entered = await asyncio.gather(
            *(
                stack.enter_async_context(running(_nats_kind(name, routes), directory / name))
                for name in NATS_SERVERS
            )
        )
        cluster = NatsCluster(dict(zip(NATS_SERVERS, entered, strict=True)))
        await _until_streams_can_be_made(cluster)
        yield cluster


@contextlib.asynccontextmanager
async def sentinel_valkey(directory: Path) -> AsyncIterator[SentinelValkey]:
    """Run master, replica and sentinels until the context ends; entered once a failover could begin."""
    async with contextlib.AsyncExitStack() as stack:
        master = await stack.enter_async_context(running(_valkey_kind(()), directory / "master"))
        following = ("--replicaof", "127.0.0.1", str(master.port))
        replica = await stack.enter_async_context(running(_valkey_kind(following), directory / "replica"))
        await _until_replicated(replica)
        sentinels = await asyncio.gather(
            *(_sentinel(stack, directory / f"sentinel-{number}", master.port) for number in range(SENTINELS))
        )
        for sentinel in sentinels:
            await _until_watching(sentinel)
        yield SentinelValkey(master, replica, tuple(sentinels))


def _nats_kind(name: str, routes: dict[str, int]) -> ServerKind:
    def arguments(port: int, directory: Path) -> Sequence[str]:
        return (
            *servers._nats_arguments(port, directory),
            *("--server_name", name),
            *("--cluster_name", "plimsoll-test"),
            *("--cluster", f"nats://127.0.0.1:{routes[name]}"),
            *("--routes", ",".join(f"nats://127.0.0.1:{port}" for port in routes.values())),
        )

    return ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)


def _valkey_kind(more: Sequence[str]) -> ServerKind:
    def arguments(port: int, directory: Path) -> Sequence[str]:
        return (*servers._valkey_arguments(port, directory), "--repl-diskless-sync-delay", "0", *more)

    return ServerKind(
        "valkey-server", "redis", "Ready to accept connections", servers._valkey_program, arguments
    )


async def _sentinel(
    stack: contextlib.AsyncExitStack, directory: Path, master_port: int, more: str = ""
) -> EmbeddedServer:
    """Run a sentinel until the stack ends. Its configuration file is written once, as it keeps its state there."""
    configuration = f"""
        bind 127.0.0.1
        sentinel monitor {MASTER} 127.0.0.1 {master_port} {QUORUM}
        sentinel down-after-milliseconds {MASTER} {DOWN_MS}
        sentinel failover-timeout {MASTER} 10000
        {more}
    """
    path = directory / "sentinel.conf"
    await asyncio.to_thread(directory.mkdir, parents=True)
    await asyncio.to_thread(path.write_text, configuration)

    def arguments(port: int, directory: Path) -> Sequence[str]:
        return (str(path), "--sentinel", "--port", str(port), "--dir", str(directory))

    kind = ServerKind("sentinel", "redis", f"+monitor master {MASTER}", servers._valkey_program, arguments)
    return await stack.enter_async_context(running(kind, directory))


async def _until_streams_can_be_made(cluster: NatsCluster) -> None:
    client = await nats_client.connect(cluster.url.split(","))
    try:

        async def look() -> bool:
            try:
                made = await client.jetstream().add_stream(name="READY", subjects=["ready"], num_replicas=3)
            except (nats.errors.Error, TimeoutError):
                return False
            return made.cluster is not None and bool(made.cluster.leader)

        await until(look)
    finally:
        await client.close()


async def _until_replicated(replica: EmbeddedServer) -> None:
    async with redis.Redis.from_url(replica.url, protocol=2) as client:

        async def look() -> bool:
            return (await client.info("replication")).get("master_link_status") == "up"

        await until(look)


async def _until_watching(sentinel: EmbeddedServer) -> None:
    """Wait until a sentinel knows the replica and the other sentinels."""
    async with redis.Redis.from_url(sentinel.url, protocol=2) as client:

        async def look() -> bool:
            state = await client.sentinel_master(MASTER)
            assert isinstance(state, dict)
            return (state["num-slaves"], state["num-other-sentinels"]) == (1, SENTINELS - 1)

        await until(look)
