"""Nodes that have been silent for too long, and nodes whose reports are late again and again.

What always holds: a report costs a dictionary's write, and nothing looks at all nodes. Each node has one entry in a
heap. An entry that comes due while its node has reported since goes back into the heap with the node's new time.
Times are seconds of any clock that never goes back.
"""

import heapq
from dataclasses import dataclass
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


LONG_S: Final = 60.0
"""Late reports that go on for this long are not the rest of an outbox: a monitor empties 100 000 events in less."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Late reports of a node that follow each other within three of its heartbeats."""

    began_s: float
    last_s: float
    is_named: bool = False


class Lateness:
    """Knows for each node since when its reports are older than what is known: two monitors report as one node.

    A report may be late once: it waited in an outbox, or the server delivered it again. Late reports that go on for
    long are another monitor's, whose epoch is lower.
    """

    def __init__(self) -> None:
        self._runs: dict[NodeName, _Run] = {}

    def was_late(self, node: NodeName, now_s: float, heartbeat_s: float) -> bool:
        """Note a report that is older than the node's newest one.

        Returns:
            Whether the node must be named now: its late reports have gone on for long, and it is not named yet.
        """
        run = self._runs.get(node)
        if run is None or now_s - run.last_s > HEARTBEATS * heartbeat_s:
            run = _Run(now_s, now_s)
        is_due = not run.is_named and now_s - run.began_s >= LONG_S
        self._runs[node] = _Run(run.began_s, now_s, run.is_named or is_due)
        return is_due

    def forget(self, node: NodeName) -> None:
        """Drop a node; an unknown one is no error."""
        self._runs.pop(node, None)
