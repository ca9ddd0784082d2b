"""Every task of the node: process lists, announcements and deaths go in, a new table and facts come out.

What always holds:

* A table is never changed, only succeeded by a new one. A caller that cannot store the facts keeps the old table and
  loses nothing.
* The same process list, announcement or death a second time yields no fact.
* A task whose exit is a fact has no further fact, however late an announcement or a process list names it.
* Facts come in a fixed order: first the tasks that ended, then those that began or loaded, each by process and GPU.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct, structs

from monitor.core.lifecycle import (
    NO_OWNER,
    Fact,
    LoadingRules,
    Owner,
    TaskKey,
    TaskLife,
    advance,
    begin,
    counted,
    finish,
)
from plimsoll.ids import GpuUuid, ProcessKey

REMEMBERED_DEATHS: Final = 2048
"""How many dead processes the table remembers at least: the latest ones, up to twice as many.

An announcement may come after the death that it precedes: the kernel reports a death within 0.1 ms, and the broker
may be busy, or away until its next start. 2048 deaths are 40 s at 50 a second.
"""

ROUND_EVENTS: Final = 256
"""A round takes nothing more in after this many events. Together with the states that they carry (see
`monitor.core.reports`) they have less than 1 MiB, which the outbox writes also on a disk with no other room."""

K = TypeVar("K")
V = TypeVar("V")


class ListedProcess(Struct, frozen=True):
    """A living process that NVML lists on a GPU.

    Attributes:
        used_bytes: None where the driver does not give the amount.
        owner: the pod, as far as the kernel shows it (the process's cgroup).
    """

    key: TaskKey
    used_bytes: int | None
    owner: Owner = NO_OWNER


@dataclass(frozen=True, slots=True)
class Listing:
    """The node's process lists, read once.

    Attributes:
        gpus: the GPUs whose lists could be read; nothing is concluded about any other GPU.
        processes: all living processes on them, in any order, each once per GPU.
    """

    gpus: frozenset[GpuUuid]
    processes: tuple[ListedProcess, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The table.

    Attributes:
        lives: every task that has not exited.
        left: the last lives of processes that left a GPU but still run. A process that returns to the GPU goes on
            counting from there.
        owners: pod and container of living processes, as the broker announced them.
        dead: the processes that died last, oldest first, see `REMEMBERED_DEATHS`; with the GPUs on which their tasks
            are facts.
    """

    lives: Mapping[TaskKey, TaskLife] = field(default_factory=dict)
    left: Mapping[TaskKey, TaskLife] = field(default_factory=dict)
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)
    dead: Mapping[ProcessKey, frozenset[GpuUuid]] = field(default_factory=dict)

    @property
    def hooked(self) -> frozenset[TaskKey]:
        """The living tasks that run under a hook: only an announcement names a container."""
        return frozenset(key for key, life in self.lives.items() if life.owner.container is not None)

    def of(self, process: ProcessKey) -> tuple[TaskKey, ...]:
        """The living tasks of a process."""
        return tuple(key for key in self.lives if key.process == process)


Step = tuple[Tasks, tuple[Fact, ...]]


def take_listing(
    tasks: Tasks, listing: Listing, now_s: float, rules: LoadingRules, most: int = ROUND_EVENTS
) -> Step:
    """Apply NVML's process lists.

    Args:
        tasks: the table.
        listing: the lists.
        now_s: the current time.
        rules: when memory counts as moving.
        most: the most facts; what is left over is a fact of a later list, as the next one shows it again.
    """
    tasks, ended = _leave(tasks, listing, now_s, most)
    lives, left, facts = dict(tasks.lives), dict(tasks.left), list(ended)
    for each in sorted(listing.processes, key=lambda each: each.key):
        if len(facts) >= most:
            break
        if each.key.process in tasks.dead:
            continue
        owner = tasks.owners.get(each.key.process, NO_OWNER).filled_from(each.owner)
        if each.key in lives:
            life = lives[each.key]
            known_owner = life.owner.filled_from(owner)
            known = life if known_owner == life.owner else structs.replace(life, owner=known_owner)
            lives[each.key], fact = advance(known, each.used_bytes, now_s, rules)
        else:
            before = left.pop(each.key, None)
            fact = begin(each.key, owner, each.used_bytes or 0, now_s, before=before)
            lives[each.key] = fact.life
        facts += [fact] if fact else []
    return replace(tasks, lives=lives, left=left), tuple(facts)


def own(tasks: Tasks, process: ProcessKey, owner: Owner) -> Tasks:
    """Record a living process's announced owner, which outranks the owner that the kernel shows."""
    if process in tasks.dead:
        return tasks
    owned = {
        key: structs.replace(tasks.lives[key], owner=owner.filled_from(tasks.lives[key].owner))
        for key in tasks.of(process)
    }
    lives = {**tasks.lives, **owned} if owned else tasks.lives
    return replace(tasks, lives=lives, owners={**tasks.owners, process: owner})


def announce(tasks: Tasks, key: TaskKey, owner: Owner, now_s: float) -> Step:
    """Apply the announcement that a process made its first context on a GPU.

    An announcement may arrive after the process's death. Then it is a fact only if the task is none yet, and the task
    exits at once.
    """
    if (known := tasks.dead.get(key.process)) is not None:
        if key.gpu in known:
            return tasks, ()
        begun = begin(key, owner, None, now_s, before=None)
        late = replace(tasks, dead=_with_death(tasks.dead, key.process, known | {key.gpu}))
        return late, (begun, finish(begun.life, now_s))
    tasks = own(tasks, key.process, owner)
    if key in tasks.lives or key in tasks.left:
        return tasks, ()
    fact = begin(key, owner, None, now_s, before=None)
    return replace(tasks, lives={**tasks.lives, key: fact.life}), (fact,)


def count(tasks: Tasks, key: TaskKey, peak_bytes: int) -> Tasks:
    """Apply the largest use that a hooked program counted so far; a task that is not known has none."""
    if (life := tasks.lives.get(key)) is None or life.peak_bytes >= peak_bytes:
        return tasks
    return replace(tasks, lives={**tasks.lives, key: counted(life, peak_bytes)})


def end(tasks: Tasks, process: ProcessKey, now_s: float) -> Step:
    """Apply a process's death: its tasks exit, and the table keeps only that the process is dead."""
    if process in tasks.dead:
        return tasks, ()
    living, left = sorted(tasks.of(process)), [key for key in tasks.left if key.process == process]
    facts = tuple(finish(tasks.lives[key], now_s) for key in living)
    gpus = frozenset(key.gpu for key in (*living, *left))
    ended = Tasks(
        lives=_without(tasks.lives, living),
        left=_without(tasks.left, left),
        owners=_without(tasks.owners, [process] if process in tasks.owners else []),
        dead=_with_death(tasks.dead, process, gpus),
    )
    return ended, facts


def restored(
    lives: Iterable[TaskLife],
    left: Iterable[TaskLife],
    now_s: float,
    dead: Mapping[ProcessKey, frozenset[GpuUuid]] = MappingProxyType({}),
) -> Tasks:
    """The table after a restart, from the lives on disk; settling begins anew.

    Announced owners need no record of their own: the lives hold them.
    """
    living = {life.key: structs.replace(life, still_since_s=now_s, since_s=now_s) for life in lives}
    owners = {key.process: life.owner for key, life in living.items() if life.owner != NO_OWNER}
    return Tasks(lives=living, left={life.key: life for life in left}, owners=owners, dead=dict(dead))


def _without(table: Mapping[K, V], keys: Iterable[K]) -> Mapping[K, V]:
    """A table without these of its keys. A copy of the whole hashes no key again, so many tasks cost little."""
    rest = {**table}
    for key in keys:
        del rest[key]
    return rest


def _with_death(
    dead: Mapping[ProcessKey, frozenset[GpuUuid]], process: ProcessKey, gpus: frozenset[GpuUuid]
) -> Mapping[ProcessKey, frozenset[GpuUuid]]:
    """The remembered deaths and this one, as the last; the older half is forgotten once there are too many.

    A copy of the whole costs 20 µs, as no key is hashed again. To forget one at each death would hash all.
    """
    if len(dead) >= 2 * REMEMBERED_DEATHS:
        dead = dict(islice(dead.items(), REMEMBERED_DEATHS, None))
    others = {**dead}
    others.pop(process, None)
    others[process] = gpus
    return others


def _leave(tasks: Tasks, listing: Listing, now_s: float, most: int) -> Step:
    """End the tasks that a readable GPU no longer lists."""
    present = {each.key for each in listing.processes}
    gone = sorted(
        key
        for key, life in tasks.lives.items()
        if life.listed and key.gpu in listing.gpus and key not in present
    )[:most]
    facts = tuple(finish(tasks.lives[key], now_s) for key in gone)
    lives = {key: life for key, life in tasks.lives.items() if key not in set(gone)}
    left = {**tasks.left, **{fact.life.key: fact.life for fact in facts}}
    return replace(tasks, lives=lives, left=left), facts
