"""When the next round of the monitor may begin, so that many events in a row share one.

A round with events of tasks costs a few milliseconds of CPU and a write to disk, whatever their number. A timed
sample while a task loads costs a quarter of that; it may find that memory has moved, and publish the state alone.
The pace of samples bounds such rounds already. What always holds: on a quiet node an event waits for nothing, however
many timed samples come between events.
"""

import math
from typing import Final

WRITING_S: Final = 0.1
"""Seconds that a round with events is charged: events that come without end share ten rounds a second."""

LOOKING_S: Final = 0.01
"""Seconds that a round without an event, or with the state alone, is charged."""

AT_ONCE_S: Final = 2.0
"""Seconds that may be charged in advance: twenty events in a row are published at once. With four programs that load
all the time, some six rounds a second have events; with half of this, one event in a hundred waited."""


class RoundThrottle:
    """The pauses between rounds. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._paid_s = -math.inf  # the time since then pays for the next rounds

    def pause_s(self, now_s: float, *, has_events: bool) -> float:
        """Charge a round that has just ended; returns how long the next one must wait, in seconds, or 0.

        Args:
            now_s: when it ended.
            has_events: it published more than the node's state.
        """
        self._paid_s = max(self._paid_s, now_s - AT_ONCE_S) + (WRITING_S if has_events else LOOKING_S)
        return max(0.0, self._paid_s - now_s)

    def is_calm(self, now_s: float) -> bool:
        """Whether half of what may be charged in advance is left: events do not come without end."""
        return self._paid_s <= now_s - AT_ONCE_S / 2
