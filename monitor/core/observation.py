"""One turn of the monitor: announcements, a look at the GPUs and deaths go in; a new table and what to tell come out.

What always holds: announcements count once, in their order, however often they are delivered; a look comes after
them, as it was taken after them; deaths come last, as nothing can happen to a process after its death.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from monitor.core import tasks as table
from monitor.core.lifecycle import Fact, Owner, Rules, TaskKey
from monitor.core.tasks import Look, Step, Tasks
from plimsoll.broker.wire import Announcement
from plimsoll.events import LIMIT_EVENTS
from plimsoll.ids import ProcessKey


@dataclass(frozen=True, slots=True)
class Mark:
    """The last announcement that was taken in: its number and its time, as the broker gave them."""

    seq: int = 0
    time: str = ""


START: Final = Mark()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a turn begins with.

    Attributes:
        announcements: in the order in which they came.
        look: None if the GPUs could not be read at all.
        dead: processes whose end was seen.
    """

    announcements: tuple[Announcement, ...] = ()
    look: Look | None = None
    dead: tuple[ProcessKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn ends with.

    Attributes:
        facts: to be told, in order.
        limits: announcements about a container's line, to be told.
        notes: announcements worth a line in the log only.
        unwatched: hooked tasks of which is to be told that their broker is away.
    """

    tasks: Tasks
    mark: Mark
    facts: tuple[Fact, ...] = ()
    limits: tuple[Announcement, ...] = ()
    notes: tuple[Announcement, ...] = ()
    unwatched: tuple[TaskKey, ...] = ()


def turn(tasks: Tasks, mark: Mark, heard: Heard, now_s: float, rules: Rules) -> Outcome:
    """Take in everything that was heard; the arguments are unchanged."""
    facts: list[Fact] = []
    limits, notes = [], []
    for each in heard.announcements:
        if not is_new(each, mark):
            continue
        mark = Mark(each.seq, each.time)
        (tasks, told), kept = _announced(tasks, each, now_s), _kept(each)
        facts += told
        limits += [each] if kept == "limit" else []
        notes += [each] if kept == "note" else []
    if heard.look is not None:
        tasks, told = table.look(tasks, heard.look, now_s, rules)
        facts += told
    tasks, told = _ended(tasks, heard.dead, now_s)
    return Outcome(tasks, mark, (*facts, *told), tuple(limits), tuple(notes))


def is_new(announcement: Announcement, mark: Mark) -> bool:
    """Whether an announcement was not taken in before.

    Numbers rise over the broker's whole life. Should its journal be lost, they begin again; an announcement that
    is later than the mark although its number is not, is new all the same.
    """
    return announcement.seq > mark.seq or announcement.time > mark.time


def _announced(tasks: Tasks, what: Announcement, now_s: float) -> Step:
    process, owner = what.process, Owner(what.pod, what.container)
    match what.what:
        case "hello":
            return table.own(tasks, process, owner), ()
        case "context" if what.gpu is not None:
            return table.announce(tasks, TaskKey(process, what.gpu), owner, now_s)
        case "exited":
            return table.end(tasks, process, now_s)
        case _:
            return tasks, ()


def _kept(what: Announcement) -> str:
    match what.what:
        case name if name in LIMIT_EVENTS:
            return "limit"
        case "hello" | "exited":
            return ""
        case "context" if what.gpu is not None:
            return ""
        case _:
            return "note"


def _ended(tasks: Tasks, dead: Iterable[ProcessKey], now_s: float) -> Step:
    facts: list[Fact] = []
    for process in sorted(dead):
        tasks, told = table.end(tasks, process, now_s)
        facts += told
    return tasks, tuple(facts)
