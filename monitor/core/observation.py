"""A round of the monitor: announcements, NVML's process lists and deaths go in; a new table and findings come out.

What always holds: an announcement counts once, in its order, however often the broker delivers it. Deaths are applied
after the announcements, because nothing can happen to a process after its death. The process lists are applied last:
whatever a list shows of a process that died while it was read is that of another process, which got its pid. A round
has a bounded number of events, whatever happened: what it leaves over is for the next one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from monitor.core import tasks as table
from monitor.core.lifecycle import Fact, LoadingRules, Owner, TaskKey
from monitor.core.tasks import ROUND_EVENTS, Listing, Tasks
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
        deaths: processes that had ended once the lists were read.
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
        taken: how many announcements were taken in: the first ones.
        ended: the deaths that were taken in.
        has_more: more was left over for the next round.
    """

    tasks: Tasks
    position: JournalPosition
    facts: tuple[Fact, ...] = ()
    limits: tuple[LimitAnnouncement, ...] = ()
    notes: tuple[Unknown | Other, ...] = ()
    taken: int = 0
    ended: tuple[ProcessKey, ...] = ()
    has_more: bool = False


def observe(
    tasks: Tasks,
    position: JournalPosition,
    observation: Observation,
    now_s: float,
    rules: LoadingRules,
    most: int = ROUND_EVENTS,
) -> Findings:
    """Apply an observation to the table; the arguments are unchanged.

    Args:
        tasks: the table.
        position: the last announcement taken in before.
        observation: what was seen.
        now_s: the current time.
        rules: when memory counts as moving.
        most: after this many events nothing more is taken in. The last announcement or death may pass it by one event
            for each GPU of its process.
    """
    begun = _announced(
        Findings(_counted(tasks, observation.peaks), position), observation.announcements, now_s, most
    )
    tasks, facts = _counted(begun.tasks, observation.peaks), list(begun.facts)
    room = most - len(begun.limits)
    ended: list[ProcessKey] = []
    for process in sorted(observation.deaths):
        if len(facts) >= room:
            break
        ended.append(process)
        tasks, new = table.end(tasks, process, now_s)
        facts += new
    if observation.listing is not None:
        rest = max(0, room - len(facts))
        tasks, new = table.take_listing(tasks, observation.listing, now_s, rules, rest)
        facts += new
    tasks = _counted(tasks, observation.peaks)  # tasks that began in this round get their peaks too
    return replace(begun, tasks=tasks, facts=tuple(facts), ended=tuple(ended), has_more=len(facts) >= room)


def _announced(before: Findings, announcements: Iterable[Announcement], now_s: float, most: int) -> Findings:
    """Apply announcements, until there are `most` events."""
    tasks, position, taken = before.tasks, before.position, 0
    facts: list[Fact] = []
    limits: list[LimitAnnouncement] = []
    notes: list[Unknown | Other] = []
    for each in announcements:
        if len(facts) + len(limits) >= most:
            break
        taken += 1
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
    return Findings(tasks, position, tuple(facts), tuple(limits), tuple(notes), taken)


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
