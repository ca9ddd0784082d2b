"""A copy of what a placer shows of its cluster: nodes, waiting pods, and events, kept by the messages of its stream.

What always holds: after `synced` the copy is the placer's state of one moment, and each later message makes it newer.
A copy that lost its stream takes the next one up from the start.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from plimsoll.ids import NodeName
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api.live import LiveGpu, LiveNode, LostGpu, News, Sharer, Status, WaitingPods
from plimsoll_cli.asking import Where, asking

NEWS_KEPT: Final = 200

_STATUS: Final = msgspec.json.Decoder(Status)
_NODES: Final = msgspec.json.Decoder(list[LiveNode])
_GONE: Final = msgspec.json.Decoder(list[NodeName])
_WAITING: Final = msgspec.json.Decoder(WaitingPods)
_NEWS: Final = msgspec.json.Decoder(list[News])


class StreamError(PlimsollError):
    """The placer ended its stream before it had sent all, or it is none of a placer of this version."""


@dataclass(slots=True)
class LiveCluster:
    """The copy. Not thread-safe.

    Attributes:
        status: the placer's; None before the first message.
        waiting: the pods without a node; None before the first message.
        news: the events, the newest last.
    """

    status: Status | None = None
    nodes: dict[NodeName, LiveNode] = field(default_factory=dict)
    waiting: WaitingPods | None = None
    news: deque[News] = field(default_factory=lambda: deque(maxlen=NEWS_KEPT))
    _seen: set[NodeName] | None = None
    _has_waiting: bool = False
    _known_news: set[str] = field(default_factory=set)

    def connect(self) -> None:
        """A new stream begins: every node that it does not name up to `synced` is gone."""
        self._seen, self._has_waiting = set(), False

    def apply(self, kind: str, data: bytes) -> None:
        """Take a message in; kinds that are not known are left out.

        Raises:
            StreamError: the data is none of its kind.
        """
        try:
            self._apply(kind, data)
        except msgspec.MsgspecError as error:
            raise StreamError(
                f"the stream is none of this version's placer ({error}); update both"
            ) from error

    def _apply(self, kind: str, data: bytes) -> None:
        match kind:
            case "status":
                self.status = _STATUS.decode(data)
            case "nodes":
                for node in _NODES.decode(data):
                    self.nodes[node.node] = node
                    if self._seen is not None:
                        self._seen.add(node.node)
            case "gone":
                for name in _GONE.decode(data):
                    self.nodes.pop(name, None)
            case "synced":
                self.nodes = {
                    name: node
                    for name, node in self.nodes.items()
                    if self._seen is None or name in self._seen
                }
                self._seen = None
            case "waiting":
                self.waiting, self._has_waiting = _WAITING.decode(data), True
            case "news":
                self._note(_NEWS.decode(data))

    def _note(self, news: list[News]) -> None:
        self.news.extend(one for one in news if one.id not in self._known_news)
        self._known_news = {one.id for one in self.news}

    @property
    def is_complete(self) -> bool:
        """Whether every node and the waiting pods were sent since the stream began."""
        return self._seen is None and self._has_waiting

    def gpus(self) -> Iterator[tuple[LiveNode, LiveGpu]]:
        """Each GPU that can be read, with its node."""
        for node in self.nodes.values():
            for gpu in node.gpus:
                yield node, gpu

    def pods(self) -> dict[str, list[tuple[LiveNode, LiveGpu | LostGpu, Sharer]]]:
        """The GPUs of each pod that has some, by its uid; also those that cannot be read."""
        found: dict[str, list[tuple[LiveNode, LiveGpu | LostGpu, Sharer]]] = {}
        for node in self.nodes.values():
            gpus: tuple[LiveGpu | LostGpu, ...] = (*node.gpus, *node.lost)
            for gpu in gpus:
                for pod in gpu.pods:
                    found.setdefault(pod.pod, []).append((node, gpu, pod))
        return found


async def snapshot(where: Where) -> LiveCluster:
    """The cluster as it is now.

    Args:
        where: the placer.

    Raises:
        NoPlacerError: no placer answers there, or the URL is malformed.
        PlacerRefusedError: too many read its stream already.
        StreamError: the placer ended meanwhile.
    """
    cluster = LiveCluster()
    cluster.connect()
    async with asking(where) as placer, contextlib.aclosing(placer.live(once=True)) as messages:
        async for kind, data in messages:
            cluster.apply(kind, data)
            if cluster.is_complete:
                return cluster
    raise StreamError("the placer ended while it answered; ask again")
