"""Plimsoll as a cluster runs it: images from `make images`, and the chart's manifests, applied to a test node."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.node.containers import import_image
from tests.node.network import NODE_IP
from tests.node.node import START_S, Node
from tests.node.parts import shows_gpus
from tests.node.places import BUILD
from tests.servers.apiserver import Object
from tests.servers.waiting import until
from tools.chart import NAMESPACE, render

IMAGES: Final = BUILD / "images"
MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
ARCHIVES: Final = tuple(f"plimsoll-{target}-{MACHINE}.tar" for target in ("placer", "node"))
TAG: Final = "0.1.0"
"""The chart's appVersion, which `tools/images` takes from the wheel."""
PARTS: Final = ("plimsoll-broker", "plimsoll-monitor", "plimsoll-placer", "plimsoll-webhook")
WEBHOOK_PORT: Final = 8443


@dataclass(frozen=True, slots=True)
class Release:
    """An installed release, and the servers that it uses."""

    node: Node
    nats: EmbeddedServer
    values: Mapping[str, Any]

    async def apply(self, **more: Any) -> None:  # noqa: ANN401 - chart values
        """Apply the chart's manifests for these values, and wait until every part is ready on them."""
        manifests = await asyncio.to_thread(render, {**self.values, **more})
        for text in _in_order(manifests):
            await self.node.api.kubectl("apply", "--server-side", "--filename=-", stdin=text)
        for kind, name in (
            ("daemonset", "plimsoll-broker"),
            ("daemonset", "plimsoll-monitor"),
            ("deployment", "plimsoll-placer"),
            ("deployment", "plimsoll-webhook"),
            *([("deployment", "plimsoll-pool")] if self.values.get("pool", {}).get("enabled") else []),
        ):
            await until(functools.partial(self._is_rolled_out, kind, name), timeout_s=START_S)

    async def remove(self) -> None:
        """Remove everything of the release, in the reverse order of its installation, as `helm uninstall` does."""
        manifests = await asyncio.to_thread(render, self.values)
        for text in reversed(_in_order(manifests)):
            await self.node.api.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=text
            )

    async def _is_rolled_out(self, kind: str, name: str) -> bool:
        found = await self.node.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}s/{name}")
        status, wanted = found["status"], found["metadata"]["generation"]
        if status.get("observedGeneration") != wanted:
            return False
        if kind == "daemonset":
            desired = status["desiredNumberScheduled"]
            counts = status.get("updatedNumberScheduled"), status.get("numberReady")
        else:
            desired = found["spec"]["replicas"]
            counts = status.get("updatedReplicas"), status.get("readyReplicas")
            if status.get("replicas") != desired:
                return False
        return bool(desired and counts == (desired, desired))

    async def is_gone(self) -> bool:
        """Whether no part runs any more."""
        return not await self.pods()

    async def pods(self) -> list[Object]:
        """The pods of the parts."""
        return await self.node.pods(NAMESPACE)


def missing_images() -> tuple[str, ...]:
    """The archives that `make images` has not built."""
    return tuple(name for name in ARCHIVES if not (IMAGES / name).exists())


@contextlib.asynccontextmanager
async def installed(node: Node, **more: Any) -> AsyncIterator[Release]:  # noqa: ANN401 - chart values
    """Install a release; entered once every part is ready and the node shows its GPUs.

    Args:
        node: the node.
        more: chart values in place of those of `node_values`.
    """
    for name in ARCHIVES:
        await import_image(node.directory / "containerd", IMAGES / name)
    await _make_namespace(node)
    pulled = {"registry": "localhost", "tag": TAG, "pullPolicy": "Never"}
    async with servers_outside(node) as (nats, valkey):
        values = {**node_values(node, nats, valkey), "image": pulled, "nodeImage": pulled, **more}
        release = Release(node, nats, values)
        try:
            await release.apply()
            await until(lambda: shows_gpus(node), timeout_s=START_S)
        except AssertionError as error:
            accounts = [
                await node.account(NAMESPACE, pod["metadata"]["name"]) for pod in await release.pods()
            ]
            raise AssertionError("\n".join([str(error), *accounts])) from error
        yield release
        await release.remove()
        await until(release.is_gone, timeout_s=START_S)
        await node.remove_namespace(NAMESPACE)


@contextlib.asynccontextmanager
async def servers_outside(node: Node) -> AsyncIterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """NATS and Valkey on the node's address, outside of pods."""
    async with _nats(node) as nats, _valkey(node) as valkey:
        yield nats, valkey


def node_values(node: Node, nats: EmbeddedServer, valkey: EmbeddedServer) -> dict[str, Any]:
    """The chart values by which a test node differs from a cluster. Everything else is the chart's default.

    - It has no kube-proxy and no DNS, so no pod reaches a Service. NATS and Valkey are outside of the cluster, and
      the API server asks the webhook by the node's own address, which one webhook alone can have.
    - Its kubelet's directory, and ours, are in the run's own.
    - Its parts look around more often, so that tests need not wait.
    """
    return {
        "kubelet": {"directory": str(node.directory / "kubelet")},
        "nodeDirectory": str(node.directory / "b"),
        "monitorDirectory": str(node.directory / "m"),
        "nats": {"enabled": False, "external": {"url": f"nats://{NODE_IP}:{nats.port}"}},
        "redis": {"enabled": False, "external": {"url": f"redis://{NODE_IP}:{valkey.port}/0"}},
        "placer": {"replicas": 2},
        "webhook": {
            "replicas": 1,
            "hostNetwork": True,
            "port": WEBHOOK_PORT,
            "url": f"https://{NODE_IP}:{WEBHOOK_PORT}/review",
            "settings": {"check_s": "1", "certificate_life_s": "3600"},
        },
        "monitor": {"settings": {"reconcile_s": "1", "heartbeat_s": "5"}},
    }


async def _make_namespace(node: Node) -> None:
    """The release's namespace, where broker and monitor may be privileged."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    await node.until_account(NAMESPACE)


def _in_order(manifests: Mapping[str, str]) -> list[str]:
    """Accounts, rights and classes first, so that no pod is refused for what comes later."""
    objects = [one for text in manifests.values() for one in yaml.safe_load_all(text) if one]
    late = ("Deployment", "DaemonSet", "MutatingWebhookConfiguration")
    first = [one for one in objects if one["kind"] not in late]
    last = [one for one in objects if one["kind"] in late]
    return [yaml.safe_dump_all(first), yaml.safe_dump_all(last)]


def _nats(node: Node) -> contextlib.AbstractAsyncContextManager[EmbeddedServer]:
    """NATS on every address of the node, for pods with a network of their own."""

    def arguments(port: int, directory: Path) -> tuple[str, ...]:
        return ("--addr", "0.0.0.0", "--port", str(port), "--jetstream", "--store_dir", str(directory))  # noqa: S104

    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)
    return running(kind, node.directory / "release-nats")


def _valkey(node: Node) -> contextlib.AbstractAsyncContextManager[EmbeddedServer]:
    """Valkey, likewise."""

    def arguments(port: int, directory: Path) -> tuple[str, ...]:
        given = servers._valkey_arguments(port, directory)
        return (*("0.0.0.0" if one == "127.0.0.1" else one for one in given), "--protected-mode", "no")  # noqa: S104

    kind = ServerKind(
        "valkey-server", "redis", "Ready to accept connections", servers._valkey_program, arguments
    )
    return running(kind, node.directory / "release-valkey")
