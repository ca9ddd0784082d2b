"""The cards of a test node as an independent watch sees them: who has which, by the kubelet's and the pods' own word.

It shares no code with the pool. The kubelet says which pod has which device of the device plugin (`PodResources`).
Pods that share have their cards in an annotation. Both are compared several times a second and after each change.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from tests.node.kubelet_api import PODS
from tests.node.node import Node
from tests.servers.apiserver import Object

RESOURCE: Final = "nvidia.com/gpu"
LOOK_S: Final = 0.1
PREFIX: Final = "gpus.plimsoll.dev/"


@dataclass(frozen=True, slots=True)
class Holders:
    """The pods of one card, by namespace and name.

    Attributes:
        native: pods that have it of the device plugin.
        reserving: the pool's reservations among them.
        sharing: pods that Plimsoll placed on it.
    """

    native: tuple[str, ...] = ()
    reserving: tuple[str, ...] = ()
    sharing: tuple[str, ...] = ()

    @property
    def is_double(self) -> bool:
        """Whether two owners have the card: two pods of the device plugin, or a native pod and one that shares."""
        return len(self.native) + len(self.reserving) > 1 or bool(self.native and self.sharing)


@dataclass(slots=True)
class Watch:
    """The observations so far.

    Attributes:
        looks: the number of checks.
        double: each state in which a card had two owners.
        most_sharing: the most pods that shared one card.
        native_seen, shared_seen: the cards that were seen with such a pod.
    """

    node: Node
    socket: Path
    namespace: str
    looks: int = 0
    double: list[tuple[str, Holders]] = field(default_factory=list)
    most_sharing: int = 0
    native_seen: set[str] = field(default_factory=set)
    shared_seen: set[str] = field(default_factory=set)

    async def look(self) -> dict[str, Holders]:
        """The holders of each card now."""
        # The annotations first: a pod that shares and has ended since is then compared with a card that is still its.
        pods = (await self.node.api.get("/api/v1/pods"))["items"]
        devices = await self._devices()
        again = {
            one["metadata"]["uid"]
            for one in (await self.node.api.get("/api/v1/pods"))["items"]
            if _lives(one)
        }
        native: defaultdict[str, list[str]] = defaultdict(list)
        reserving: defaultdict[str, list[str]] = defaultdict(list)
        sharing: defaultdict[str, list[str]] = defaultdict(list)
        alive = {_name(one): one for one in pods if _lives(one)}
        for name, cards in devices.items():
            pod = alive.get(name)
            if pod is None or pod["metadata"]["uid"] not in again:
                continue  # it has ended between the questions
            for card in cards:
                (reserving if pod["metadata"]["namespace"] == self.namespace else native)[card].append(name)
        for name, pod in alive.items():
            if pod["metadata"]["uid"] in again:
                for card in _shared_cards(pod):
                    sharing[card].append(name)
        return {
            card: Holders(tuple(native[card]), tuple(reserving[card]), tuple(sharing[card]))
            for card in {*native, *reserving, *sharing}
        }

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                found = await self.look()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(LOOK_S)  # a test has killed the kubelet, which starts no pod then
                continue
            for card, holders in found.items():
                if holders.is_double:
                    self.double.append((card, holders))
                self.most_sharing = max(self.most_sharing, len(holders.sharing))
                self.native_seen |= {card} if holders.native else set()
                self.shared_seen |= {card} if holders.sharing else set()
            self.looks += 1
            await asyncio.sleep(LOOK_S)

    async def _devices(self) -> dict[str, list[str]]:
        async with grpc.aio.insecure_channel(f"unix:{self.socket}") as channel:
            call = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=PODS["ListPodResourcesRequest"].SerializeToString,
                response_deserializer=PODS["ListPodResourcesResponse"].FromString,
            )
            answer: Any = await call(PODS["ListPodResourcesRequest"](), timeout=20)
        found: dict[str, list[str]] = {}
        for pod in answer.pod_resources:
            cards = {
                card
                for container in pod.containers
                for devices in container.devices
                if devices.resource_name == RESOURCE
                for card in devices.device_ids
            }
            if cards:
                found[f"{pod.namespace}/{pod.name}"] = sorted(cards)
        return found


@contextlib.asynccontextmanager
async def watching(node: Node, namespace: str) -> AsyncIterator[Watch]:
    """Watch the node's cards until the context ends.

    Args:
        node: the node.
        namespace: the namespace of the pool's reservations.
    """
    watch = Watch(node, node.directory / "kubelet" / "pod-resources" / "kubelet.sock", namespace)
    task = asyncio.create_task(watch.run(), name="watch cards")
    try:
        yield watch
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _lives(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _shared_cards(pod: Object) -> set[str]:
    annotations = pod["metadata"].get("annotations") or {}
    return {
        card for name, value in annotations.items() if name.startswith(PREFIX) for card in value.split(",")
    }


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
