"""Nodes whose reports are older than what is known, again and again: two monitors report as one node.

A report may be late once: it waited in an outbox, or the server delivered it again. Late reports that go on for long
are another monitor's, whose epoch is lower. Times are seconds of any clock that never goes back.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.silence import HEARTBEATS
from plimsoll.ids import NodeName

LONG_S: Final = 60.0
"""Late reports that go on for this long are not the rest of an outbox: a monitor empties 100 000 events in less."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Late reports of a node that follow each other within three of its heartbeats."""

    began_s: float
    last_s: float
    is_named: bool = False


class Lateness:
    """Knows for each node since when its reports are late."""

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
