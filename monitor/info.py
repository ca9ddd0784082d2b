"""`node.info`: the node's hardware, published at the start, after a change, and every hour.

What always holds: the newest `node.info` of a node that runs is in the stream. Subscribers that come later read it as
the last message of its subject; without the hourly repetition the stream's limits of size and age would drop it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from monitor.sampler import Hardware, Sampler
from plimsoll.gpu_events import NodeInfo
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.nvml.readings import GpuReading

EVERY_S: Final = 3600.0
"""Heartbeats fill a stream of 1 GiB in some six hours at 1000 nodes. This is one message beside 60 of theirs, and
costs little."""

LABELS: Final = "nvidia.com/"
"""The prefix of the labels that GPU feature discovery sets on a node."""

_Gpus = tuple[tuple[GpuUuid, int], ...]


class Informer:
    """Knows which `node.info` was published, and says when another one is due."""

    def __init__(
        self, node: NodeName, heartbeat_s: float, sampler: Sampler, changed: Callable[[], None]
    ) -> None:
        """Begin; `changed` is called when labels ask for an event before the next round is due."""
        self._node = node
        self._heartbeat_s = heartbeat_s
        self._sampler = sampler
        self._changed = changed
        self._labels: dict[str, str] = {}
        self._read: tuple[_Gpus, Hardware] | None = None
        self._published: NodeInfo | None = None
        self._due_s = 0.0

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Note the node's labels; only those of GPU feature discovery count."""
        found = {name: value for name, value in labels.items() if name.startswith(LABELS)}
        if found != self._labels:
            self._labels = found
            self._changed()

    async def due(self, readings: Iterable[GpuReading], now_s: float) -> NodeInfo | None:
        """The `node.info` to publish now; None if the last one holds, and is not older than an hour.

        The hardware is read when the GPUs have changed, and once an hour: a link may be down since.

        Args:
            readings: the GPUs that answered now.
            now_s: monotonic clock.

        Raises:
            NvmlAwayError: see `Sampler.hardware`.
        """
        gpus = tuple((one.uuid, one.index) for one in readings)
        is_due = now_s >= self._due_s
        if self._read is None or self._read[0] != gpus or is_due:
            self._read = gpus, await self._sampler.hardware({uuid for uuid, _ in gpus})
        hardware = self._read[1]
        info = NodeInfo(
            node=self._node,
            heartbeat_s=self._heartbeat_s,
            driver=hardware.driver,
            gpus=hardware.gpus,
            labels=self._labels,
        )
        return info if is_due or info != self._published else None

    def stored(self, info: NodeInfo, now_s: float) -> None:
        """The event is on disk."""
        self._published, self._due_s = info, now_s + EVERY_S
