"""When the GPUs are sampled next, and when the next round of the monitor may begin.

Announcements, changes of counts and deaths cause samples of their own. Timed samples find what no event reports: when
a task's memory stands still, and everything about processes without the hook. GPUs that change are sampled often, and
quiet ones rarely:

* While a task loads, at the fast pace, or after a hundredth of the time for which the youngest such task has been
  loading. A task whose memory never rests does not cost ten samples a second for ever. Another sample comes at the
  moment when its memory, if unchanged until then, counts as settled.
* After an unhooked task came, left or changed its memory, after a tenth of the time since. A node where such tasks
  come every second is sampled ten times a second.
* Otherwise at the slow pace.

A sample that an event causes is at most one fast pause late: many events in a row share one. While the node is calm,
a sample that a change of counts causes comes at once: the broker sees memory move before the next timed sample
would.

Rounds are throttled, so that many events in a row share one. A round with events of tasks costs a few milliseconds of
CPU and a write to disk, whatever their number. A timed sample while a task loads costs a quarter of that; it may find
that memory has moved, and publish the state alone. The pace of samples bounds such rounds already. What always holds:
on a quiet node an event waits for nothing, however many timed samples come between events.
"""

import math
from typing import Final

from monitor.core.lifecycle import LoadingRules, TaskKey
from monitor.core.tasks import Tasks
from plimsoll.events import Phase

_UNSETTLED: Final = (Phase.STARTED, Phase.LOADING)

LEAST_S: Final = 0.02
"""Seconds between two samples, at least, where the second one finds that memory has settled. A sample of eight GPUs
takes some milliseconds, and tasks that settle within so short a time share a sample."""


class Pace:
    """The pace of one node.

    Args:
        fast_s: the shortest pause, in seconds.
        slow_s: the longest.
        rules: when memory counts as moving.
    """

    def __init__(self, fast_s: float, slow_s: float, rules: LoadingRules) -> None:
        self._fast_s = fast_s
        self._slow_s = slow_s
        self._rules = rules
        self._unhooked: frozenset[TaskKey] = frozenset()
        self._rested: dict[TaskKey, int] = {}  # bytes of unhooked tasks that have loaded
        self._changed_s: float | None = None
        self._began_s = -math.inf
        self._settling_s = math.inf  # when the next task has settled, unless its memory moves before

    def begins(self, now_s: float) -> None:
        """A sample begins."""
        self._began_s = now_s

    def wait_s(self, now_s: float, *, at_once: bool = False) -> float:
        """How long a sample that an event causes must wait, in seconds; at most 0 for one that may begin now.

        Args:
            now_s: the time.
            at_once: for `LEAST_S` at most.
        """
        least_s = self._began_s + LEAST_S
        due_s = least_s if at_once else min(self._began_s + self._fast_s, max(self._settling_s, least_s))
        return due_s - now_s

    def sampled(self, tasks: Tasks, now_s: float) -> None:
        """Take in the table after a sample.

        A task without a container may still be announced, so it counts once it has loaded. Until then it is sampled
        at the pace of a task that loads.
        """
        unhooked = {key: life for key, life in tasks.lives.items() if life.owner.container is None}
        rested = {key: life.used_bytes for key, life in unhooked.items() if life.phase is Phase.LOADED}
        moved = {
            key
            for key, used_bytes in rested.items()
            if key not in self._rested or abs(used_bytes - self._rested[key]) > self._rules.tolerance_bytes
        }
        if moved or any(key not in tasks.lives for key in self._unhooked):
            self._changed_s = now_s
        settling_s = [
            life.still_since_s + self._rules.settle_s
            for life in tasks.lives.values()
            if life.phase in _UNSETTLED
        ]
        # A task that should have settled by now is one that the driver does not list.
        self._settling_s = min((at_s for at_s in settling_s if at_s > now_s), default=math.inf)
        self._unhooked = frozenset(unhooked)
        # A slow drift adds up to a change.
        self._rested = {key: rested[key] if key in moved else self._rested[key] for key in rested}

    def next_s(self, tasks: Tasks, now_s: float) -> float:
        """When the next sample is due, at least `LEAST_S` from now.

        Pauses are from begin to begin: so fast samples see a rise within a fast pause, however long a sample and the
        storing of its events take.
        """
        unsettled_s = [now_s - life.since_s for life in tasks.lives.values() if life.phase in _UNSETTLED]
        pauses_s = [min(unsettled_s) / 100] if unsettled_s else []
        pauses_s += [] if self._changed_s is None else [(now_s - self._changed_s) / 10]
        pause_s = max(self._fast_s, min(pauses_s)) if pauses_s else self._slow_s
        due_s = min(self._began_s + min(pause_s, self._slow_s), self._settling_s)
        return max(due_s, now_s + LEAST_S)


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
