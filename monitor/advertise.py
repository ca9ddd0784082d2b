"""Keeps the node's GPU resources in `status.capacity`, where Kubernetes counts them.

The kubelet keeps what others write there and copies it to allocatable. What always holds: only our three
resources are written, and only when the node does not show them with their present amounts; a node object made
anew gets them within `advertise_s`.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from monitor.core.capacity import capacity, missing
from monitor.core.lifecycle import Fact
from monitor.settings import Settings
from plimsoll.events import Gpu
from plimsoll.kube.client import ApiError, PatchKind, Transport, connect, kubeconfig_path
from plimsoll.kube.models import Node, NodeStatus

RETRY_S: Final = 5.0
"""After a refused or failed request, and while the node is not registered yet."""

log = structlog.get_logger("monitor.advertise")


class Advertiser:
    """Advertises one node; `run` it as a task, and tell it `looked` after each turn."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = f"/api/v1/nodes/{settings.node}"
        self._offered: Mapping[str, str] | None = None
        self._changed = asyncio.Event()
        self._trouble = ""

    def looked(self, gpus: tuple[Gpu, ...], _: tuple[Fact, ...]) -> None:
        """A turn ended with these GPUs."""
        ratio, sharers = self._settings.overcommit_ratio, self._settings.sharers_per_gpu
        offered = capacity(gpus, ratio, sharers)
        if offered != self._offered:
            self._offered = offered
            self._changed.set()

    async def run(self) -> None:
        """Advertise for ever.

        Raises:
            InputError: the cluster's configuration cannot be used.
        """
        async with connect(kubeconfig_path(self._settings.kubeconfig)) as transport:
            while True:
                await self._wait_changed()
                pause_s = await self._advertise(transport)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()

    async def _wait_changed(self) -> None:
        """Until the first turn there is nothing to offer."""
        if self._offered is None:
            await self._changed.wait()
        self._changed.clear()

    async def _advertise(self, transport: Transport) -> float:
        """Look, patch what is missing, and return the time until the next look in seconds."""
        assert self._offered is not None
        offered = dict(self._offered)
        try:
            status = msgspec.json.decode(await transport.get(self._path), type=Node).status
            if lacks := self._lacks(offered, status):
                await transport.patch(f"{self._path}/status", {"status": lacks}, PatchKind.MERGE)
                log.info("advertised", node=self._settings.node, **lacks)
        except (ApiError, msgspec.MsgspecError) as error:
            self._troubled(str(error))
            return RETRY_S
        self._trouble = ""
        return self._settings.advertise_s

    def _lacks(self, offered: Mapping[str, str], status: NodeStatus) -> dict[str, dict[str, str]]:
        lacks = {"capacity": missing(offered, status.capacity or {})}
        if self._settings.advertise_allocatable:
            lacks["allocatable"] = missing(offered, status.allocatable or {})
        return {name: quantities for name, quantities in lacks.items() if quantities}

    def _troubled(self, what: str) -> None:
        if what != self._trouble:
            self._trouble = what
            log.error("the node's resources could not be advertised", node=self._settings.node, error=what)
