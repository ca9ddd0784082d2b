"""Keeps the node's GPU resources in `status.capacity`, where Kubernetes counts them.

The kubelet keeps resources that others write there, and copies them to allocatable. What always holds: only our three
resources are written, and only when the node does not show them with their present amounts. A node object that was
deleted and made again gets them within `CHECK_S`. A node whose label opts out loses them as soon. They are
removed there and not set to 0: a kubelet that starts again refuses pods for what its node shows too little of, and
ignores what it does not show.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from monitor.settings import Settings
from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_SHARE, RESOURCES, opt_out_of
from plimsoll.events import Gpu
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.models import Node, NodeStatus
from plimsoll.kube.transport import ApiError, PatchKind, Transport
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.quantity import parse_whole

CHECK_S: Final = 60.0
"""Seconds between checks that the node still shows its resources. A change of its GPUs is advertised at once."""

RETRY_S: Final = 5.0
"""After a refused or failed request, and while the node is not registered yet."""

log = get_logger()


class Advertiser:
    """Advertises one node. `run` it as a task, and call `set_gpus` after each round."""

    def __init__(self, settings: Settings, labels_read: Callable[[Mapping[str, str]], None]) -> None:
        """Call `labels_read` with the node's labels whenever it was read."""
        self._settings = settings
        self._labels_read = labels_read
        self._path = f"/api/v1/nodes/{settings.node}"
        self._offered: Mapping[str, str] | None = None
        self._changed = asyncio.Event()
        self._trouble = ""

    def set_gpus(self, gpus: tuple[Gpu, ...]) -> None:
        """Offer these GPUs from now on."""
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
        """Before the first round there is nothing to offer."""
        if self._offered is None:
            await self._changed.wait()
        self._changed.clear()

    async def _advertise(self, transport: Transport) -> float:
        """Read the node, patch missing resources, and return the time until the next check in seconds."""
        assert self._offered is not None
        offered = dict(self._offered)
        try:
            node = msgspec.json.decode(await transport.get(self._path), type=Node)
            self._labels_read(node.metadata.labels or {})
            status = node.status
            is_off = opt_out_of(node.metadata.labels) is not None
            if lacks := self._shown(status) if is_off else self._lacks(offered, status):
                await transport.patch(f"{self._path}/status", {"status": lacks}, PatchKind.MERGE)
                log.info("withdrawn" if is_off else "advertised", node=self._settings.node, **lacks)
        except (ApiError, msgspec.MsgspecError) as error:
            self._troubled(str(error))
            return RETRY_S
        self._trouble = ""
        return CHECK_S

    def _shown(self, status: NodeStatus) -> dict[str, dict[str, None]]:
        """The patch that removes our resources; empty where the node shows none."""
        ours: dict[str, None] = dict.fromkeys(one for one in RESOURCES if one in (status.capacity or {}))
        return {"capacity": ours} if ours else {}

    def _lacks(self, offered: Mapping[str, str], status: NodeStatus) -> dict[str, dict[str, str]]:
        lacks = missing(offered, status.capacity or {})
        return {"capacity": lacks} if lacks else {}

    def _troubled(self, what: str) -> None:
        if what != self._trouble:
            self._trouble = what
            log.error("the node's resources could not be advertised", node=self._settings.node, error=what)


def capacity(gpus: Iterable[Gpu], overcommit_ratio: float, sharers_per_gpu: int) -> dict[str, str]:
    """The node's totals as Kubernetes quantities, all whole numbers.

    Args:
        gpus: all readable GPUs. Without any, all totals are zero, so that a node that lost its GPUs attracts no pod.
        overcommit_ratio: promised bytes per usable byte; 1 promises exactly the usable bytes.
        sharers_per_gpu: how many containers may share one GPU.
    """
    usable = [gpu.usable_bytes for gpu in gpus]
    return {
        GPU_MEMORY: str(int(sum(usable) * overcommit_ratio)),
        GPU_SHARE: str(100 * len(usable)),
        GPU_COUNT: str(sharers_per_gpu * len(usable)),
    }


def missing(offered: Mapping[str, str], shown: Mapping[str, str | int | float]) -> dict[str, str]:
    """The part of `offered` that a node does not show, or shows with another amount.

    Amounts are compared, not texts: the API server writes 20000000000 as `20G`.
    """
    return {name: value for name, value in offered.items() if _amount(shown.get(name)) != int(value)}


def _amount(quantity: str | float | None) -> int | None:
    if quantity is None:
        return None
    try:
        return parse_whole(quantity, "status.capacity", "units")
    except InputError:
        return None  # not a value that we write, so it differs and is patched
