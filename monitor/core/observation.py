"""A round of the monitor: announcements, NVML's process lists and deaths go in; a new table and findings come out.

What always holds: an announcement counts once, in its order, however often the broker delivers it. The process lists
are applied after the announcements, because they were read after them. Deaths are applied last, because nothing can
happen to a process after its death.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from monitor.core import tasks as table
from monitor.core.lifecycle import Fact, Owner, Rules, TaskKey
from monitor.core.tasks import Listing, Step, Tasks
from plimsoll.broker.announcements import (
    Announcement,
    Context,
    Exited,
    Hello,
    LimitAnnouncement,
    Other,
    Unknown,
)
from plimsoll.ids import ProcessKey


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The last announcement that was taken in: its number and its time, as the broker gave them."""

    seq: int = 0
    time: str = ""


JOURNAL_START: Final = JournalPosition()


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of a round.

    Attributes:
        announcements: the announcements in the order in which they came.
        listing: NVML's process lists; None if no GPU could be read at all.
        deaths: processes that have ended.
        peaks: the largest use that hooked programs counted so far, of those that changed.
    """

    announcements: tuple[Announcement, ...] = ()
    listing: Listing | None = None
    deaths: tuple[ProcessKey, ...] = ()
    peaks: Mapping[TaskKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a round.

    Attributes:
        tasks: the table after the round.
        position: the last announcement taken in by now.
        facts: task events to publish, in order.
        limits: announcements about a container's limits, to publish.
        notes: announcements that are worth a log line only.
    """

    tasks: Tasks
    position: JournalPosition
    facts: tuple[Fact, ...] = ()
    limits: tuple[LimitAnnouncement, ...] = ()
    notes: tuple[Unknown | Other, ...] = ()


def observe(
    tasks: Tasks, position: JournalPosition, observation: Observation, now_s: float, rules: Rules
) -> Findings:
    """Apply an observation to the table; the arguments are unchanged."""
    facts: list[Fact] = []
    limits: list[LimitAnnouncement] = []
    notes: list[Unknown | Other] = []
    tasks = _counted(tasks, observation.peaks)
    for each in observation.announcements:
        if not is_new(each, position):
            continue
        position = JournalPosition(each.seq, each.time)
        process, owner = each.process, Owner(each.pod, each.container)
        new: tuple[Fact, ...] = ()
        match each:
            case Hello():
                tasks = table.own(tasks, process, owner)
            case Context():
                tasks, new = table.announce(tasks, TaskKey(process, each.gpu), owner, now_s)
            case Exited():
                tasks, new = table.end(tasks, process, now_s)
            case LimitAnnouncement():
                limits.append(each)
            case Unknown() | Other():
                notes.append(each)
        facts += new
    if observation.listing is not None:
        tasks, new = table.take_listing(tasks, observation.listing, now_s, rules)
        facts += new
    tasks = _counted(tasks, observation.peaks)  # tasks that began in this round have theirs too
    tasks, new = _ended(tasks, observation.deaths, now_s)
    return Findings(tasks, position, (*facts, *new), tuple(limits), tuple(notes))


def is_new(announcement: Announcement, position: JournalPosition) -> bool:
    """Whether an announcement was not taken in before.

    Numbers rise over the broker's whole life. If its journal is lost, they begin again at 1. An announcement whose
    number is old but whose time is later than the position's is therefore new as well.
    """
    return announcement.seq > position.seq or announcement.time > position.time


def is_urgent(announcement: Announcement, tasks: Tasks, dead: Collection[ProcessKey]) -> bool:
    """Whether an announcement asks for a round now; any other is taken in by the next one.

    Args:
        announcement: the announcement as it came.
        tasks: the table.
        dead: processes whose deaths are known and wait for the next round. The kernel reports most deaths before the
            broker does.
    """
    match announcement:
        case Hello() | Unknown() | Other():
            return False
        case Exited():
            return announcement.process not in dead and announcement.process not in tasks.dead
    return True


def _counted(tasks: Tasks, peaks: Mapping[TaskKey, int]) -> Tasks:
    for key, peak_bytes in peaks.items():
        tasks = table.count(tasks, key, peak_bytes)
    return tasks


def _ended(tasks: Tasks, deaths: Iterable[ProcessKey], now_s: float) -> Step:
    facts: list[Fact] = []
    for process in sorted(deaths):
        tasks, new = table.end(tasks, process, now_s)
        facts += new
    return tasks, tuple(facts)
