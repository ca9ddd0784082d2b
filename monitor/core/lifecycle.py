"""The life of one task, a process on one GPU: `started → loading → loaded → exited`.

Kang et al. 2024, §II.B: a task starts, its memory rises, and when it "remains constant after increasing" its
input is loaded; then it ends. The paper leaves open when memory counts as constant. These are the rules here:

    started   memory rises                      → loading
    started   memory stands still to settle     → loaded    (its input may be nothing)
    loading   memory moves                      → loading   (the settling begins anew)
    loading   memory stands still to settle     → loaded    (event `loaded`)
    loaded    memory rises past the reload mark → loading   (another `loaded` will follow, with the next ordinal;
                                                             the mark is a tenth of the peak above the lowest since)
    loaded    memory falls, or rises a little   → loaded    (recorded; the mark falls with the memory)
    any       the process or its context ends   → exited    (event `exited`)

What always holds: a life yields `started` once, `loaded` any number of times, and `exited` once, in this order. The
ordinal of each `loaded` is one more than the last. Times are seconds of one monotonic clock.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from plimsoll.events import Phase, Task
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey
from plimsoll.quantity import MIB

RELOAD_RATIO: Final = 0.1
"""The least rise that is a reload, as a ratio of the task's peak: at work, a program of 20 GiB moves by hundreds of
MiB."""

SETTLE_S: Final = 0.8
"""Longer than the pauses of tenths of a second that frameworks make between layers while they load. `loaded` is still
known within a second of the moment from which memory stood still."""

TOLERANCE_BYTES: Final = 8 * MIB
"""Small allocations of a running program."""

RELOAD_BYTES: Final = 64 * MIB
"""The least rise that is a reload for a small task."""


class TaskKey(Struct, frozen=True, order=True, cache_hash=True):
    """A process on one GPU."""

    process: ProcessKey
    gpu: GpuUuid


class Owner(Struct, frozen=True):
    """Pod and container of a process; None where they are not known."""

    pod: PodUid | None = None
    container: ContainerName | None = None

    def filled_from(self, other: "Owner") -> "Owner":
        """This owner, with unknown fields taken from `other`."""
        if self.pod and self.container:
            return self
        return Owner(self.pod or other.pod, self.container or other.container)


NO_OWNER: Final = Owner()


@dataclass(frozen=True, slots=True)
class LoadingRules:
    """When memory counts as moving.

    Attributes:
        settle_s: how long memory must stand still before the input counts as loaded.
        tolerance_bytes: a change up to this size counts as standing still.
        reload_bytes: a loaded task whose memory rises more than this above its lowest, and more than
            `RELOAD_RATIO` of its peak, is loading again.
    """

    settle_s: float = SETTLE_S
    tolerance_bytes: int = TOLERANCE_BYTES
    reload_bytes: int = RELOAD_BYTES


class TaskLife(Struct, frozen=True, kw_only=True):
    """A task, and the values that its next sample is compared with.

    Attributes:
        used_bytes: as last sampled; 0 before NVML first listed the task, and after its end.
        peak_bytes: the largest use so far, over all starts: by samples, and by a hooked program's own counts.
        mark_bytes: until loaded, where memory stood when it last moved; once loaded, its lowest since.
        still_since_s: since when memory has stood at `mark_bytes`; meaningless once loaded.
        since_s: when this phase began.
        starts: how often this process has come to this GPU, this time included.
        loads: how often the task has loaded, over all its starts.
        listed: whether NVML has ever listed the task. A task that was only announced is not gone because NVML does
            not list it yet.
    """

    key: TaskKey
    owner: Owner
    phase: Phase
    used_bytes: int
    peak_bytes: int
    mark_bytes: int
    still_since_s: float
    since_s: float
    starts: int
    loads: int
    listed: bool

    @property
    def task(self) -> Task:
        """The task as an event carries it."""
        return Task(
            pid=self.key.process.pid,
            start_ticks=self.key.process.start_ticks,
            gpu=self.key.gpu,
            phase=self.phase,
            used_bytes=self.used_bytes,
            peak_bytes=self.peak_bytes,
            pod=self.owner.pod,
            container=self.owner.container,
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact to publish: `life` reached `phase` (STARTED, LOADED or EXITED) for the `ordinal`th time."""

    phase: Phase
    life: TaskLife
    ordinal: int


def begin(
    key: TaskKey, owner: Owner, used_bytes: int | None, now_s: float, *, before: TaskLife | None
) -> Fact:
    """A task appears.

    Args:
        key: process and GPU.
        owner: pod and container, as far as they are known.
        used_bytes: as NVML lists them; None if the task was announced and NVML has not listed it yet.
        now_s: the current time.
        before: the same process's earlier, ended life on the same GPU; its counts go on.
    """
    used = used_bytes or 0
    life = TaskLife(
        key=key,
        owner=owner,
        phase=Phase.STARTED,
        used_bytes=used,
        peak_bytes=max(used, before.peak_bytes if before else 0),
        mark_bytes=used,
        still_since_s=now_s,
        since_s=now_s,
        starts=before.starts + 1 if before else 1,
        loads=before.loads if before else 0,
        listed=used_bytes is not None,
    )
    return Fact(Phase.STARTED, life, life.starts)


def advance(
    life: TaskLife, used_bytes: int | None, now_s: float, rules: LoadingRules
) -> tuple[TaskLife, Fact | None]:
    """A living task was sampled.

    Args:
        life: before the sample.
        used_bytes: as NVML lists them now; None if NVML lists the task without an amount, which is no movement.
        now_s: the current time; not before any earlier sample.
        rules: when memory counts as moving.
    """
    used = life.used_bytes if used_bytes is None else used_bytes
    # A task at rest is not copied: on a quiet node these copies were most of a round's cost.
    sampled = (
        life
        if life.listed and used == life.used_bytes
        else replace(life, used_bytes=used, peak_bytes=max(life.peak_bytes, used), listed=True)
    )
    match life.phase:
        case Phase.STARTED | Phase.LOADING:
            return _settle(sampled, now_s, rules)
        case Phase.LOADED:
            return _watch(sampled, now_s, rules), None
        case Phase.EXITED:
            raise AssertionError(f"{life.key} was sampled after its end")
        case never:
            assert_never(never)


def counted(life: TaskLife, peak_bytes: int) -> TaskLife:
    """A hooked task whose own counts had this peak.

    The counts lack what no call of the program shows, so a peak between two samples is rather too low than too high.
    """
    return replace(life, peak_bytes=max(life.peak_bytes, peak_bytes))


def finish(life: TaskLife, now_s: float) -> Fact:
    """A task is over: its process ended, or left this GPU."""
    assert life.phase is not Phase.EXITED
    over = replace(life, phase=Phase.EXITED, used_bytes=0, since_s=now_s)
    return Fact(Phase.EXITED, over, over.starts)


def _settle(life: TaskLife, now_s: float, rules: LoadingRules) -> tuple[TaskLife, Fact | None]:
    moved_bytes = life.used_bytes - life.mark_bytes
    if abs(moved_bytes) > rules.tolerance_bytes:
        # Memory is compared with the start of the still stretch: a slow rise must not count as standing still.
        risen = moved_bytes > 0 and life.phase is Phase.STARTED
        phase, since_s = (Phase.LOADING, now_s) if risen else (life.phase, life.since_s)
        return replace(
            life, phase=phase, since_s=since_s, mark_bytes=life.used_bytes, still_since_s=now_s
        ), None
    if now_s - life.still_since_s < rules.settle_s:
        return life, None
    loaded = replace(
        life, phase=Phase.LOADED, since_s=now_s, mark_bytes=life.used_bytes, loads=life.loads + 1
    )
    return loaded, Fact(Phase.LOADED, loaded, loaded.loads)


def _watch(life: TaskLife, now_s: float, rules: LoadingRules) -> TaskLife:
    lowest_bytes = min(life.mark_bytes, life.used_bytes)
    if life.used_bytes - lowest_bytes <= max(rules.reload_bytes, RELOAD_RATIO * life.peak_bytes):
        return life if lowest_bytes == life.mark_bytes else replace(life, mark_bytes=lowest_bytes)
    return replace(life, phase=Phase.LOADING, since_s=now_s, mark_bytes=life.used_bytes, still_since_s=now_s)
