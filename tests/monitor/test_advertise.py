"""The advertiser publishes the node's resources on a real API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from monitor import advertise
from monitor.advertise import Advertiser, capacity, missing
from monitor.settings import Settings
from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid
from plimsoll.quantity import GIB
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S

NODE = "node-1"
PATH = f"/api/v1/nodes/{NODE}"
GPUS = tuple(
    Gpu(
        uuid=GpuUuid(f"GPU-{index}"),
        index=index,
        model="card",
        usable_bytes=20 * 10**9,
        used_bytes=0,
        idle_pct=100,
    )
    for index in range(2)
)
OFFERED = {"plimsoll.dev/gpu-memory": "40G", "plimsoll.dev/gpu-share": "200", "plimsoll.dev/gpu": "60"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is read more often."""
    monkeypatch.setattr(advertise, "CHECK_S", 0.2)


@contextlib.asynccontextmanager
async def advertising(apiserver: ApiServer) -> AsyncIterator[Advertiser]:
    """A running advertiser that has read two GPUs."""
    kubeconfig = str(await asyncio.to_thread(apiserver.kubeconfig))
    advertiser = Advertiser(Settings(node=NODE, kubeconfig=kubeconfig), lambda _: None)
    advertiser.set_gpus(GPUS)
    task = asyncio.create_task(advertiser.run())
    try:
        yield advertiser
    finally:
        task.cancel()
        await asyncio.wait([task])


async def make_node(apiserver: ApiServer) -> None:
    """A node that its kubelet has just registered."""
    await apiserver.must("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
    status = {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}
    await apiserver.must("PATCH", f"{PATH}/status", status)


async def until_shown(apiserver: ApiServer, expected: dict[str, Any]) -> None:
    """Wait until the node's status has exactly these quantities."""
    shown: dict[str, Any] = {}
    async with asyncio.timeout(PATIENCE_S):
        while shown != expected:
            status = (await apiserver.must("GET", PATH)).get("status", {})
            shown = {name: status.get(name, {}) for name in expected}
            await asyncio.sleep(0.05)


async def test_capacity_is_offered_and_nothing_else_is_touched(apiserver: ApiServer) -> None:
    """Two cards appear in capacity beside the kubelet's resources; allocatable stays the kubelet's."""
    await make_node(apiserver)
    async with advertising(apiserver):
        await until_shown(apiserver, {"capacity": {"cpu": "4", **OFFERED}, "allocatable": {"cpu": "3"}})


async def test_the_nodes_labels_are_passed_on(apiserver: ApiServer) -> None:
    """A caller that asked for the node's labels gets them with each reading of the node."""
    await make_node(apiserver)
    await apiserver.must("PATCH", PATH, {"metadata": {"labels": {"nvidia.com/gpu.family": "ampere"}}})
    read: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()
    kubeconfig = str(await asyncio.to_thread(apiserver.kubeconfig))
    advertiser = Advertiser(Settings(node=NODE, kubeconfig=kubeconfig), read.put_nowait)
    advertiser.set_gpus(GPUS)
    task = asyncio.create_task(advertiser.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            labels = await read.get()
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert labels["nvidia.com/gpu.family"] == "ampere"


async def test_a_node_that_comes_late_or_anew_gets_its_resources(apiserver: ApiServer) -> None:
    """The advertiser waits for a missing node, and patches a node that was made anew."""
    async with advertising(apiserver):
        await asyncio.sleep(0.3)
        for _ in range(2):
            await make_node(apiserver)
            await until_shown(apiserver, {"capacity": {"cpu": "4", **OFFERED}})
            await apiserver.must("DELETE", PATH)


async def test_a_node_that_is_off_shows_none_of_our_resources(apiserver: ApiServer) -> None:
    """They are removed and not zero, which a kubelet that starts again would hold against running pods."""
    await make_node(apiserver)
    async with advertising(apiserver):
        shown = {"capacity": {"cpu": "4", **OFFERED}, "allocatable": {"cpu": "3"}}
        await until_shown(apiserver, shown)
        await apiserver.must("PATCH", PATH, {"metadata": {"labels": {"plimsoll.dev/node": "off"}}})
        await until_shown(apiserver, {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}})
        await apiserver.must("PATCH", PATH, {"metadata": {"labels": {"plimsoll.dev/node": None}}})
        await until_shown(apiserver, shown)


async def test_lost_gpus_are_taken_back(apiserver: ApiServer) -> None:
    """A node whose GPUs are gone advertises zeros and attracts no pod."""
    await make_node(apiserver)
    async with advertising(apiserver) as advertiser:
        await until_shown(apiserver, {"capacity": {"cpu": "4", **OFFERED}})
        advertiser.set_gpus(())
        await until_shown(apiserver, {"capacity": {"cpu": "4", **dict.fromkeys(OFFERED, "0")}})


def test_the_node_offers_usable_bytes_shares_and_sharers() -> None:
    """Two cards of 23 usable GiB at a ratio of 1.5 are advertised for 30 sharers each."""
    two = [replace(gpu, usable_bytes=23 * GIB) for gpu in GPUS]
    assert capacity(two, 1.5, 30) == {
        "plimsoll.dev/gpu-memory": str(69 * GIB),
        "plimsoll.dev/gpu-share": "200",
        "plimsoll.dev/gpu": "60",
    }
    assert set(capacity((), 1.0, 30).values()) == {"0"}


def test_a_quantity_rewritten_by_the_server_is_not_missing() -> None:
    """The API server writes 20000000000 as `20G`. The advertiser treats both as equal and does not patch again."""
    assert missing({"a": "20000000000", "b": "1"}, {"a": "20G", "b": "nonsense"}) == {"b": "1"}
    assert missing({"a": "1"}, {}) == {"a": "1"}
