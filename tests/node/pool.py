"""The pool's controller and the stub of NVIDIA's device plugin beside a test node, as processes that tests kill."""

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.part.program import program_of
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.node import device_plugin
from tests.node.driver import UUIDS
from tests.node.images import PROGRAM
from tests.node.node import START_S, Node
from tests.node.places import NODE, ROOT
from tests.servers.apiserver import Object
from tests.servers.waiting import until

NAMESPACE: Final = "plimsoll-pool"
READY: Final = "pool ready"
# The tests' own image has no Python. The program of Plimsoll's image is tested by itself.
CARD: Final = "sh -c 'echo -n $NVIDIA_VISIBLE_DEVICES > /dev/termination-log'"
RESERVATION: Final = "pool.plimsoll.dev/reservation=true"
GPU: Final = "pool.plimsoll.dev/gpu"


@dataclass(slots=True)
class Pool:
    """The pool of a test node.

    Attributes:
        plugin: the device plugin, which may be killed and started again.
        preferred: the file with the order in which the plugin has the kubelet give cards; may be absent.
    """

    node: Node
    plugin: EmbeddedServer
    preferred: Path

    async def reservations(self) -> list[Object]:
        """The reservations that are not being deleted."""
        found = await self.node.pods(NAMESPACE, RESERVATION)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    async def cards(self) -> list[str]:
        """The cards that reservations name, sorted."""
        return sorted(
            one["metadata"]["annotations"][GPU]
            for one in await self.reservations()
            if GPU in one["metadata"]["annotations"]
        )

    async def until_cards(self, *cards: str) -> None:
        """Wait until the pool has these cards, no more and no fewer, and no reservation is anywhere else."""

        async def look() -> bool:
            every = await self.node.pods(NAMESPACE, RESERVATION)
            return await self.cards() == sorted(cards) and len(every) == len(cards)

        await until(look, timeout_s=START_S)

    async def until_count(self, count: int) -> list[str]:
        """Wait until the pool has this many cards, and return them."""

        async def look() -> bool:
            return len(await self.cards()) == len(await self.node.pods(NAMESPACE, RESERVATION)) == count

        await until(look, timeout_s=START_S)
        return await self.cards()


@contextlib.asynccontextmanager
async def running_plugin(node: Node) -> AsyncIterator[Pool]:
    """Run the device plugin until the context ends; entered once the node shows its devices."""
    preferred = node.directory / "preferred"
    kind = ServerKind(
        name="device-plugin",
        scheme="unix",
        ready=device_plugin.READY,
        program=lambda: Path(sys.executable),
        arguments=lambda *_: ("-m", "tests.node.device_plugin", *UUIDS),
        environment={"TEST_PREFERRED_CARDS": str(preferred), "PYTHONPATH": str(ROOT)},
    )
    await node.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})  # it may be there
    await node.until_account(NAMESPACE)
    async with running(kind, node.directory / "device-plugin") as plugin:
        await until(lambda: has_devices(node, len(UUIDS)), timeout_s=START_S)
        yield Pool(node, plugin, preferred)


@contextlib.asynccontextmanager
async def running_controller(
    node: Node, policy: str, name: str = "pool", **more: str
) -> AsyncIterator[EmbeddedServer]:
    """Run a pool controller with this policy until the context ends; entered once it holds the Lease."""
    settings: Mapping[str, str] = {
        "image": PROGRAM,
        "pull_policy": "Never",
        "namespace": NAMESPACE,
        "policy": policy,
        "runtime_class": "nvidia",
        "card_command": CARD,
        "kubeconfig": str(node.api.kubeconfig()),
        "instance": name,
        "lease_s": "1",
        **more,
    }
    kind = ServerKind(
        name=name,
        scheme="http",
        ready=READY,
        program=lambda: Path(sys.executable),
        arguments=lambda *_: program_of("placer.pool")[1:],
        environment={f"PLIMSOLL_POOL_{key.upper()}": value for key, value in settings.items()},
    )
    async with running(kind, node.directory / name) as server:
        yield server


async def has_devices(node: Node, count: int) -> bool:
    """Whether the node has this many GPUs to give, by its device plugin."""
    status = (await node.api.get(f"/api/v1/nodes/{NODE}"))["status"]
    return bool(status.get("allocatable", {}).get("nvidia.com/gpu") == str(count))
