"""The parts of the monitor that the observer calls."""

from collections.abc import Callable
from dataclasses import dataclass

from monitor.core.conditions import ConditionChanges, Conditions
from monitor.core.lifecycle import Fact
from plimsoll.events import Gpu
from plimsoll.nvml.readings import XidSeen


@dataclass(frozen=True, slots=True)
class Listeners:
    """The callbacks after a stored round.

    Attributes:
        events_stored: events wait in the outbox.
        announcements_stored: announcements up to this number are on disk.
        round_stored: the GPUs as of the end of the round, and the round's facts.
        gpus_measured: the same GPUs, and CLOCK_MONOTONIC in nanoseconds just before NVML was read. Not called where
            NVML was away.
        foreign_report: another monitor reported under this node's name.
        limit_event: the `<what>` of a stored `limit.<what>` event.
        driver_answered: whether NVML answered, after each reading.
        conditions_stored: the GPUs' conditions as of the end of a stored round, and the round's changes.
        xid_seen: an XID error, once it was taken in.
    """

    events_stored: Callable[[], None]
    announcements_stored: Callable[[int], None]
    round_stored: Callable[[tuple[Gpu, ...], tuple[Fact, ...]], None]
    gpus_measured: Callable[[tuple[Gpu, ...], int], None]
    foreign_report: Callable[[], None]
    limit_event: Callable[[str], None]
    driver_answered: Callable[[bool], None]
    conditions_stored: Callable[[Conditions, ConditionChanges], None]
    xid_seen: Callable[[XidSeen], None]
