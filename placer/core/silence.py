"""Nodes that have been silent for too long, found by the time at which each becomes silent.

What always holds: a report costs a dictionary's write, and nothing looks at all nodes. Each node has one entry in a
heap. An entry that comes due while its node has reported since goes back into the heap with the node's new time.
Times are seconds of any clock that never goes back.
"""

import heapq
from typing import Final

from plimsoll.ids import NodeName

HEARTBEATS: Final = 3
"""A node is silent after this many of its own heartbeats without a report: one may be late, and one may be lost."""


class Silence:
    """Knows for each node when it becomes silent, unless it reports again before."""

    def __init__(self) -> None:
        self._due_s: dict[NodeName, float] = {}
        self._entries: dict[NodeName, float] = {}  # the time of a node's entry in the heap; it may be early
        self._heap: list[tuple[float, NodeName]] = []

    def reported(self, node: NodeName, reported_s: float, heartbeat_s: float) -> bool:
        """Note a node's newest report.

        Args:
            node: the node.
            reported_s: when it reported.
            heartbeat_s: the longest time between two reports of this node.

        Returns:
            Whether `next_s` may be earlier than before.
        """
        due_s = self._due_s[node] = reported_s + HEARTBEATS * heartbeat_s
        if due_s >= self._entries.get(node, float("inf")):
            return False
        self._enter(node, due_s)
        return True

    def forget(self, node: NodeName) -> None:
        """Drop a node; an unknown one is no error."""
        self._due_s.pop(node, None)

    def next_s(self) -> float | None:
        """The time for the next `take`; None while no node can become silent."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: float) -> tuple[NodeName, ...]:
        """The nodes that have become silent by now, each once until it reports again."""
        silent: list[NodeName] = []
        while self._heap and self._heap[0][0] <= now_s:
            entry_s, node = heapq.heappop(self._heap)
            if self._entries.get(node) != entry_s:
                continue  # an earlier entry replaced this one
            del self._entries[node]
            due_s = self._due_s.get(node)
            if due_s is None:
                continue
            if due_s <= now_s:
                del self._due_s[node]
                silent.append(node)
            else:
                self._enter(node, due_s)
        return tuple(silent)

    def _enter(self, node: NodeName, due_s: float) -> None:
        self._entries[node] = due_s
        heapq.heappush(self._heap, (due_s, node))
