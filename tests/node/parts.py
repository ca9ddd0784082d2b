"""Plimsoll's parts beside a test node: as processes of this tree, each of which a test may kill and start again."""

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.part.program import program_of
from plimsoll_cli.demo.cluster import READY
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, nats_server, running, valkey_server
from tests.node.driver import GPUS
from tests.node.node import Node
from tests.node.places import NODE, ROOT
from tests.node.pool import NAMESPACE
from tests.servers.waiting import until

MODULES: Final = {"broker": "hook.broker", "monitor": "monitor", "placer": "placer"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts, and the servers that they use."""

    nats: EmbeddedServer
    valkey: EmbeddedServer
    broker: EmbeddedServer
    monitor: EmbeddedServer
    placer: EmbeddedServer


@contextlib.asynccontextmanager
async def running_parts(node: Node, **of_placer: str) -> AsyncIterator[Parts]:
    """Run all parts until the context ends; entered once the node shows its GPUs.

    Args:
        node: the node.
        of_placer: further settings of the placer.
    """
    directory = node.directory / "parts"
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(_driver_known(node))
        nats = await stack.enter_async_context(nats_server(directory / "nats"))
        valkey = await stack.enter_async_context(valkey_server(directory / "valkey"))

        async def part(name: str, settings: Mapping[str, str]) -> EmbeddedServer:
            kind = _kind(name, settings, node.driver.environment)
            return await stack.enter_async_context(running(kind, directory / name))

        broker = await part("broker", _broker_settings(node, directory))
        monitor = await part("monitor", _monitor_settings(node, directory, nats.url))
        placer = await part("placer", _placer_settings(node, nats.url, valkey.url) | of_placer)
        await until(lambda: shows_gpus(node), timeout_s=120)
        yield Parts(nats, valkey, broker, monitor, placer)


def _kind(name: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> ServerKind:
    variables = {f"PLIMSOLL_{key.upper()}": value for key, value in settings.items()}
    return ServerKind(
        name=name,
        scheme="http",
        ready=READY[name],
        program=lambda: Path(sys.executable),
        arguments=lambda *_: program_of(MODULES[name])[1:],
        environment={**variables, **environment},
    )


def _broker_settings(node: Node, directory: Path) -> dict[str, str]:
    return {
        "broker_root": str(directory / "broker-root"),
        "broker_kubeconfig": str(node.api.kubeconfig()),
        "broker_node": NODE,
        "broker_kubelet_root": str(node.directory / "kubelet"),
        "broker_pool_namespace": NAMESPACE,
    }


def _monitor_settings(node: Node, directory: Path, nats_url: str) -> dict[str, str]:
    return {
        "broker_root": str(directory / "broker-root"),
        "node": NODE,
        "nats_url": nats_url,
        "state_dir": str(directory / "monitor-state"),
        "kubeconfig": str(node.api.kubeconfig()),
        "reconcile_s": "1",
        "heartbeat_s": "5",
    }


def _placer_settings(node: Node, nats_url: str, valkey_url: str) -> dict[str, str]:
    return {
        "nats_url": nats_url,
        "redis_url": valkey_url.replace("valkey://", "redis://"),
        "kubeconfig": str(node.api.kubeconfig()),
    }


@contextlib.asynccontextmanager
async def _driver_known(node: Node) -> AsyncIterator[None]:
    """The CSIDriver object. It goes in the end, as Helm installs no release over objects that are not its own."""
    manifest = ("--filename", str(ROOT / "deploy" / "csi-driver.yaml"))
    await node.api.kubectl("apply", *manifest)
    yield
    await node.api.kubectl("delete", *manifest)


async def shows_gpus(node: Node) -> bool:
    """Whether the node's allocatable resources are those of its GPUs: the kubelet copies what the monitor wrote."""
    allocatable = (await node.api.get(f"/api/v1/nodes/{NODE}"))["status"].get("allocatable", {})
    return bool(allocatable.get("plimsoll.dev/gpu-share") == str(100 * GPUS))
