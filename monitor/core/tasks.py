"""Every task of the node: looks at the GPUs, announcements and deaths go in, a new table and facts come out.

What always holds:

* A table is never changed, only succeeded: whoever cannot store the facts keeps the old table, and loses nothing.
* The same look, announcement or death a second time tells nothing new.
* Facts come in a fixed order: what ended, then what began or loaded, each by process and GPU.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monitor.core.lifecycle import NOBODY, Fact, Life, Owner, Rules, TaskKey, advance, begin, finish
from plimsoll.events import Phase
from plimsoll.ids import GpuUuid, ProcessKey


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process that NVML lists on a GPU.

    Attributes:
        used_bytes: None where the driver does not tell it.
        owner: as far as the kernel tells (its cgroup).
    """

    key: TaskKey
    used_bytes: int | None
    owner: Owner = NOBODY


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the node's GPUs.

    Attributes:
        read: the GPUs whose process lists could be read; nothing is concluded of any other.
        seen: all living processes on them, in any order, each once.
    """

    read: frozenset[GpuUuid]
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The table.

    Attributes:
        lives: every task that has not exited.
        left: the last lives of processes that left a GPU but live on, so that a return counts on.
        owners: whose a living process is, as announced.
    """

    lives: Mapping[TaskKey, Life] = field(default_factory=dict)
    left: Mapping[TaskKey, Life] = field(default_factory=dict)
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)

    @property
    def hooked(self) -> frozenset[TaskKey]:
        """The living tasks that run under a hook: only an announcement names a container."""
        return frozenset(key for key, life in self.lives.items() if life.owner.container is not None)

    def of(self, process: ProcessKey) -> tuple[TaskKey, ...]:
        """The living tasks of a process."""
        return tuple(key for key in self.lives if key.process == process)


Step = tuple[Tasks, tuple[Fact, ...]]


def look(tasks: Tasks, seen: Look, now_s: float, rules: Rules) -> Step:
    """Take in a look at the GPUs."""
    tasks, ended = _leave(tasks, seen, now_s)
    lives, left, facts = dict(tasks.lives), dict(tasks.left), list(ended)
    for each in sorted(seen.seen, key=lambda each: each.key):
        owner = tasks.owners.get(each.key.process, NOBODY).filled_from(each.owner)
        if each.key in lives:
            life = lives[each.key]
            known = replace(life, owner=life.owner.filled_from(owner))
            lives[each.key], fact = advance(known, each.used_bytes, now_s, rules)
        else:
            before = left.pop(each.key, None)
            fact = begin(each.key, owner, each.used_bytes or 0, now_s, before=before)
            lives[each.key] = fact.life
        facts += [fact] if fact else []
    return replace(tasks, lives=lives, left=left), tuple(facts)


def own(tasks: Tasks, process: ProcessKey, owner: Owner) -> Tasks:
    """Take in whose a process is; what was announced outranks what the kernel told."""
    lives = {
        key: replace(life, owner=owner.filled_from(life.owner)) if key.process == process else life
        for key, life in tasks.lives.items()
    }
    return replace(tasks, lives=lives, owners={**tasks.owners, process: owner})


def announce(tasks: Tasks, key: TaskKey, owner: Owner, now_s: float) -> Step:
    """A process said that it made its first context on a GPU."""
    tasks = own(tasks, key.process, owner)
    if key in tasks.lives or key in tasks.left:
        return tasks, ()
    fact = begin(key, owner, None, now_s, before=None)
    return replace(tasks, lives={**tasks.lives, key: fact.life}), (fact,)


def end(tasks: Tasks, process: ProcessKey, now_s: float) -> Step:
    """A process died: its tasks exit, and it is forgotten."""
    facts = tuple(finish(tasks.lives[key], now_s) for key in sorted(tasks.of(process)))
    ended = Tasks(
        lives={key: life for key, life in tasks.lives.items() if key.process != process},
        left={key: life for key, life in tasks.left.items() if key.process != process},
        owners={each: owner for each, owner in tasks.owners.items() if each != process},
    )
    return ended, facts


def pace_s(tasks: Tasks, now_s: float, fast_s: float, slow_s: float) -> float:
    """How long until the next look.

    `slow_s` while no task waits to be loaded. Otherwise `fast_s`, or a hundredth of the time for which the
    youngest unsettled task has been unsettled, whichever is longer: its settling is told to within 1 %, and a
    task whose memory never rests does not have the driver asked ten times a second for ever.
    """
    unsettled_s = [now_s - life.since_s for life in tasks.lives.values() if _unsettled(life)]
    return min(max(fast_s, min(unsettled_s) / 100), slow_s) if unsettled_s else slow_s


def restored(lives: Iterable[Life], left: Iterable[Life], now_s: float) -> Tasks:
    """The table after a restart, from what was kept on disk; settling begins anew.

    What was announced of owners is kept in the lives themselves.
    """
    living = {life.key: replace(life, still_since_s=now_s, since_s=now_s) for life in lives}
    owners = {key.process: life.owner for key, life in living.items() if life.owner != NOBODY}
    return Tasks(lives=living, left={life.key: life for life in left}, owners=owners)


def _unsettled(life: Life) -> bool:
    return life.phase in (Phase.STARTED, Phase.LOADING)


def _leave(tasks: Tasks, seen: Look, now_s: float) -> Step:
    """Tasks that a readable GPU no longer lists are over."""
    present = {each.key for each in seen.seen}
    gone = sorted(
        key
        for key, life in tasks.lives.items()
        if life.listed and key.gpu in seen.read and key not in present
    )
    facts = tuple(finish(tasks.lives[key], now_s) for key in gone)
    lives = {key: life for key, life in tasks.lives.items() if key not in set(gone)}
    left = {**tasks.left, **{fact.life.key: fact.life for fact in facts}}
    return replace(tasks, lives=lives, left=left), facts
