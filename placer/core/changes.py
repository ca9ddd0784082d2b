"""A log of the nodes that changed, for readers that each remember how far they have read.

A node stands in the log once, at its last change, so the log grows with the nodes and not with the changes.
"""

from collections.abc import Iterator
from typing import Final

from plimsoll.ids import NodeName

KEPT: Final = 200_000
"""The number of nodes that the log keeps at least. Names of nodes that left the cluster fall out behind them."""


class Changes:
    """The log. Not thread-safe: one event loop owns it.

    Attributes:
        serial: the number of the last change; it grows with each change.
    """

    def __init__(self) -> None:
        self.serial = 0
        self._last: dict[NodeName, int] = {}  # the node that changed last stands last
        self._complete_from = 0

    def note(self, node: NodeName) -> None:
        """Note a change of a node."""
        self.serial += 1
        self._last.pop(node, None)
        self._last[node] = self.serial
        if len(self._last) > 2 * KEPT:
            kept = list(self._last.items())[-KEPT:]
            self._complete_from = kept[0][1] - 1
            self._last = dict(kept)

    def reaches_back_to(self, serial: int) -> bool:
        """Whether the log still holds all changes after `serial`."""
        return serial >= self._complete_from

    def last(self, node: NodeName) -> int:
        """The number of a node's last change; another one whenever the node has changed since."""
        return self._last.get(node, 0)

    def since(self, serial: int) -> Iterator[NodeName]:
        """The nodes that changed after `serial`, the last change first. Note no change while you iterate."""
        for node, changed in reversed(self._last.items()):
            if changed <= serial:
                return
            yield node
