"""The judge of a GPU's health, for the monitor, the broker and the doctor.

Figures and errors of NVML become conditions, and changes of these become events.

A condition ends in one of three ways:

    a figure (ECC, remapped rows, the driver's advice, `lost`)    once NVML shows it no more
    an XID that concerns the GPU until it is reset                once the GPU was reset
    an XID of a program, a clock that is lowered                  once it has not recurred for `hold_s`

A GPU counts as reset when its energy counter has fallen, when the driver was loaded anew, and after a reboot. A card
without that counter also counts as reset when it answers again after it could not be read. With the counter it does
not: one call that failed is no reset, and would give a broken GPU to the next pod.

What always holds: a change is reported once, and conditions outlive a restart of the part that judges. A GPU that the
driver listed once since the machine was started and does not list now is lost.

The figures and errors of a card in MIG mode are those of its instances. A card that was divided since, and an
instance that was ended while its card answers, are gone, not lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import FailingGpu, GpuReading, HealthReading, XidSeen
from plimsoll.xids import xid

HOLD_S: Final = 60.0
"""The default of `hold_s`, in seconds."""

LOST: Final = "lost"
GONE: Final = "gone"
MISSING: Final = "the machine was started without this GPU"
PARTED: Final = "its card was divided anew by MIG"
_THROTTLES: Final = frozenset({"thermal", "power"})

_Kind = tuple[str, int | None]
"""`what` and the XID's number. A GPU has at most one condition of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """A GPU of this node, and its conditions.

    Attributes:
        since: when its class changed last.
        conditions: the gravest first, and of one class the oldest first.
        energy_mj: its energy counter when last read.
        session: the session with the driver in which it was last read.
        mig_parent: for a MIG instance, its card.
        seen_s: when this run of the monitor last saw each condition, in seconds of the monotonic clock.
    """

    gpu: GpuUuid
    index: int
    model: str
    since: str = ""
    conditions: tuple[Condition, ...] = ()
    energy_mj: int | None = None
    session: int = 0
    mig_parent: GpuUuid | None = None
    seen_s: Mapping[_Kind, float] = field(default_factory=dict)

    @property
    def health(self) -> GpuHealth:
        """The GPU's health as events and reports carry it."""
        return GpuHealth(
            gpu=self.gpu,
            index=self.index,
            model=self.model,
            health=_class(self.conditions),
            since=self.since,
            conditions=self.conditions,
        )


GpuRecords = Mapping[GpuUuid, GpuRecord]


@dataclass(frozen=True, slots=True)
class DriverView:
    """A round's view of the GPUs' health.

    Attributes:
        now_s: monotonic clock.
        time: the same moment, RFC 3339 in UTC.
        present: the GPUs that answered; None where the driver is away, so that nothing is known of any.
        failing: the GPUs that did not answer.
        figures: the figures by GPU; empty in a round that read none.
        xids: errors since the last round.
        session: the number of the session with the driver.
        divided: the cards in MIG mode, which are no GPUs.
    """

    now_s: float
    time: str
    present: tuple[GpuReading, ...] | None = None
    failing: tuple[FailingGpu, ...] = ()
    figures: Mapping[GpuUuid, HealthReading] = field(default_factory=dict)
    xids: tuple[XidSeen, ...] = ()
    session: int = 0
    divided: frozenset[GpuUuid] = frozenset()


@dataclass(frozen=True, slots=True)
class HealthTransition:
    """A GPU whose conditions changed, and its class before."""

    health: GpuHealth
    before: HealthClass


def update(
    records: GpuRecords, seen: DriverView, hold_s: float
) -> tuple[GpuRecords, tuple[HealthTransition, ...]]:
    """Apply what a round has seen; returns the records after it, and the changes by index."""
    after = {**records, **_found(records, seen)}
    parted, ends = _parted(after, seen)
    after = {uuid: one for uuid, one in after.items() if uuid not in parted}
    if seen.present is not None:
        present = {gpu.uuid for gpu in seen.present}
        errors = {gpu.uuid: gpu.error for gpu in seen.failing}
        after = {
            uuid: _present(one, seen) if uuid in present else _lost(one, seen, errors.get(uuid, ""))
            for uuid, one in after.items()
        }
    for error in seen.xids:
        if error.gpu in after:
            after[error.gpu] = _with_xid(after[error.gpu], error.number, seen)
    after = {uuid: _held(one, seen, hold_s) for uuid, one in after.items()}
    dated, changes = _dated(records, after, seen.time)
    return dated, (*ends, *changes)


def after_boot(records: GpuRecords, seen: DriverView) -> tuple[GpuRecords, tuple[HealthTransition, ...]]:
    """The records of an earlier boot, once the driver has answered: a reboot resets every GPU.

    A GPU that the machine was started without is reported as gone, and forgotten.
    """
    assert seen.present is not None
    there = {*(gpu.uuid for gpu in seen.present), *(gpu.uuid for gpu in seen.failing)}
    kept = {uuid: replace(one, conditions=()) for uuid, one in records.items() if uuid in there}
    gone = {
        uuid: replace(one, conditions=(_gone(seen.time, MISSING),))
        for uuid, one in records.items()
        if uuid not in there
    }
    dated, changes = _dated(records, {**kept, **gone}, seen.time)
    return {uuid: one for uuid, one in dated.items() if uuid in there}, changes


def restored(records: Iterable[GpuRecord], now_s: float) -> GpuRecords:
    """The records on disk, for a monitor that starts now: conditions that end by themselves count from now on."""
    return {
        one.gpu: replace(one, session=0, seen_s={_kind(each): now_s for each in one.conditions})
        for one in records
    }


def unhealthy(records: GpuRecords) -> tuple[GpuHealth, ...]:
    """The GPUs with conditions, by index, as a report carries them."""
    return tuple(one.health for one in _by_index(records.values()) if one.conditions)


def _found(records: GpuRecords, seen: DriverView) -> dict[GpuUuid, GpuRecord]:
    """The GPUs that were not known; and those that are, with their present index."""
    found: list[GpuReading | FailingGpu] = [*(seen.present or ()), *seen.failing]
    return {
        one.uuid: replace(records[one.uuid], index=one.index)
        if one.uuid in records
        else GpuRecord(gpu=one.uuid, index=one.index, model=one.model, mig_parent=one.mig_parent)
        for one in found
        if one.uuid not in records or records[one.uuid].index != one.index
    }


def _parted(records: GpuRecords, seen: DriverView) -> tuple[frozenset[GpuUuid], tuple[HealthTransition, ...]]:
    """The GPUs that are gone because a card was divided anew, or is whole again, and the news of it."""
    if seen.present is None:
        return frozenset(), ()
    there = {*(gpu.uuid for gpu in seen.present), *(gpu.uuid for gpu in seen.failing)}
    parted = [
        one
        for one in _by_index(records.values())
        if one.gpu not in there and (one.gpu in seen.divided or one.mig_parent in {*there, *seen.divided})
    ]
    news = [
        _dated({one.gpu: one}, {one.gpu: _with(one, _gone(seen.time, PARTED), seen.now_s)}, seen.time)[1]
        for one in parted
    ]
    return frozenset(one.gpu for one in parted), tuple(change for changes in news for change in changes)


def _present(record: GpuRecord, seen: DriverView) -> GpuRecord:
    """A GPU that answered."""
    if not record.conditions and record.gpu not in seen.figures and record.session == seen.session:
        return record  # the most frequent case by far
    is_back = record.energy_mj is None and any(one.what == LOST for one in record.conditions)
    figures = seen.figures.get(record.gpu)
    fell = (
        figures is not None
        and figures.energy_mj is not None
        and record.energy_mj is not None
        and figures.energy_mj < record.energy_mj
    )
    is_new_session = 0 < record.session < seen.session
    kept = [one for one in record.conditions if one.what != LOST]
    if is_back or fell or is_new_session:
        kept = [one for one in kept if not _ends_by_reset(one)]
    record = replace(record, conditions=tuple(kept), session=seen.session)
    if figures is None:
        return record
    shown = {one.what: one for one in _shown(figures, seen.time)}
    kept = [one for one in kept if one.what in {"xid", *_THROTTLES, *shown}]
    record = replace(record, conditions=tuple(kept), energy_mj=figures.energy_mj)
    for one in shown.values():
        record = _with(record, one, seen.now_s)
    return record


def _lost(record: GpuRecord, seen: DriverView, error: str) -> GpuRecord:
    """A GPU that did not answer; `error` is empty where the driver does not list it at all."""
    text = f"NVML cannot read it ({error})" if error else "the driver does not list it any more"
    lost = Condition(what=LOST, health=HealthClass.FATAL, since=seen.time, text=text)
    return _with(record, lost, seen.now_s)


def _with_xid(record: GpuRecord, number: int, seen: DriverView) -> GpuRecord:
    row = xid(number)
    text = f"XID {number}: {row.text}"
    return _with(
        record, Condition(what="xid", health=row.health, since=seen.time, text=text, xid=number), seen.now_s
    )


def _shown(figures: HealthReading, time: str) -> Iterable[Condition]:
    """The conditions that the driver's figures show."""
    fatal, degraded = HealthClass.FATAL, HealthClass.DEGRADED
    rows = (
        ("row-remap-failure", fatal, figures.remap_failed, "a row could not be remapped"),
        ("recovery", fatal, bool(figures.recovery), f"the driver asks: {figures.recovery}"),
        ("ecc", degraded, figures.uncorrected_ecc > 0, "uncorrected ECC errors since the last reset"),
        ("retired-page", degraded, figures.retired_pending, "a page is retired at the next reset"),
        ("row-remap", degraded, figures.remap_pending, "a row is remapped at the next reset"),
        ("thermal", degraded, figures.is_hot, "the clocks are lowered: the GPU is too warm"),
        ("power", degraded, figures.is_braked, "the clocks are lowered: its power supply is short"),
    )
    return (
        Condition(what=what, health=health, since=time, text=text)
        for what, health, is_shown, text in rows
        if is_shown
    )


def _with(record: GpuRecord, condition: Condition, now_s: float) -> GpuRecord:
    """The record with a condition that was seen now; one that it has already stays as it is."""
    kind = _kind(condition)
    seen_s = {**record.seen_s, kind: now_s}
    if kind in map(_kind, record.conditions):
        return replace(record, seen_s=seen_s)
    ordered = sorted((*record.conditions, condition), key=lambda one: -one.health.rank)
    return replace(record, conditions=tuple(ordered), seen_s=seen_s)


def _held(record: GpuRecord, seen: DriverView, hold_s: float) -> GpuRecord:
    """The record without conditions that have not recurred for long, and without the times of those that ended."""
    if not record.seen_s:
        return record
    kept = tuple(
        one
        for one in record.conditions
        if not _ends_by_itself(one) or seen.now_s - record.seen_s.get(_kind(one), seen.now_s) < hold_s
    )
    if kept == record.conditions and len(kept) == len(record.seen_s):
        return record
    kinds = {_kind(one) for one in kept}
    seen_s = {kind: at_s for kind, at_s in record.seen_s.items() if kind in kinds}
    return replace(record, conditions=kept, seen_s=seen_s)


def _dated(
    before: GpuRecords, after: GpuRecords, time: str
) -> tuple[GpuRecords, tuple[HealthTransition, ...]]:
    """The records with the time at which their class changed, and the changes."""
    dated: dict[GpuUuid, GpuRecord] = {}
    changes: list[HealthTransition] = []
    for one in _by_index(after.values()):
        old = before.get(one.gpu)
        if old is one:
            dated[one.gpu] = one
            continue
        old_class = _class(old.conditions) if old is not None else HealthClass.HEALTHY
        is_same = old is not None and old_class is _class(one.conditions)
        dated[one.gpu] = one if is_same else replace(one, since=time)
        if one.conditions != (old.conditions if old is not None else ()):
            changes.append(HealthTransition(dated[one.gpu].health, old_class))
    return dated, tuple(changes)


def _class(conditions: tuple[Condition, ...]) -> HealthClass:
    return conditions[0].health if conditions else HealthClass.HEALTHY


def _kind(condition: Condition) -> _Kind:
    return condition.what, condition.xid


def _ends_by_reset(condition: Condition) -> bool:
    return condition.xid is not None and xid(condition.xid).until_reset


def _ends_by_itself(condition: Condition) -> bool:
    return condition.what in _THROTTLES or (condition.xid is not None and not xid(condition.xid).until_reset)


def _gone(time: str, text: str) -> Condition:
    return Condition(what=GONE, health=HealthClass.INFO, since=time, text=text)


def _by_index(records: Iterable[GpuRecord]) -> list[GpuRecord]:
    return sorted(records, key=lambda one: (one.index, one.gpu))
