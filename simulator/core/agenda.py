"""The queue of future events, in the order of their time, and of their rank where times are equal."""

import heapq
from typing import Generic, TypeVar

E = TypeVar("E")


class Agenda(Generic[E]):
    """A queue of events. With equal time and rank, the first added is the first out, so a replay is deterministic."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, E]] = []
        self._added = 0

    def add(self, time_s: float, rank: int, event: E) -> None:
        """Add an event at `time_s` seconds; a lower rank comes first at the same time."""
        heapq.heappush(self._heap, (time_s, rank, self._added, event))
        self._added += 1

    def next(self) -> tuple[float, E] | None:
        """Take out the next event and its time; None when no event is left."""
        if not self._heap:
            return None
        time_s, _, _, event = heapq.heappop(self._heap)
        return time_s, event
