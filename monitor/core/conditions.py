"""The conditions of the node's GPUs, which are health and pressure: a round finds them, and a restart keeps them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from monitor.core import pressure
from monitor.core.pressure import PressureChange, PressureRules, Short
from plimsoll import gpu_health as health
from plimsoll.events import Gpu
from plimsoll.gpu_events import GpuHealth
from plimsoll.gpu_health import DriverView, GpuRecord, GpuRecords, HealthTransition


@dataclass(frozen=True, slots=True)
class ConditionRules:
    """When a condition ends.

    Attributes:
        hold_s: how long a condition that ends by itself must not have recurred, in seconds.
        pressure: the marks of free memory.
    """

    hold_s: float = health.HOLD_S
    pressure: PressureRules = PressureRules()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions after a round.

    Attributes:
        records: each GPU that the driver has listed since the machine was started.
        short: the GPUs whose free memory is short, and since when.
        is_former: the records are those of an earlier boot, and no driver has answered since.
    """

    records: GpuRecords = field(default_factory=dict)
    short: Short = field(default_factory=dict)
    is_former: bool = False

    @property
    def unhealthy(self) -> tuple[GpuHealth, ...]:
        """The GPUs with conditions, by index."""
        return health.unhealthy(self.records)


@dataclass(frozen=True, slots=True)
class ConditionChanges:
    """The changes of a round, to be published.

    Attributes:
        health: the health of GPUs whose conditions changed.
        pressure: events of GPUs whose free memory became short, or is no longer short.
        unhealthy: the GPUs with conditions after the round.
        short: the GPUs whose free memory is short after the round, and since when.
    """

    health: tuple[HealthTransition, ...] = ()
    pressure: tuple[PressureChange, ...] = ()
    unhealthy: tuple[GpuHealth, ...] = ()
    short: Short = field(default_factory=dict)


def update(
    known: Conditions, seen: DriverView, gpus: Iterable[Gpu], rules: ConditionRules
) -> tuple[Conditions, ConditionChanges]:
    """Apply what a round has seen.

    Args:
        known: the conditions before.
        seen: the health of the GPUs as the driver shows it.
        gpus: the GPUs as the round's reports carry them.
        rules: when a condition ends.
    """
    records, former = known.records, tuple[HealthTransition, ...]()
    if known.is_former and seen.present is not None:
        records, former = health.after_boot(records, seen)
        known = replace(known, short={}, is_former=False)
    records, changes = health.update(records, seen, rules.hold_s)
    short, pressed = pressure.update(known.short, gpus, seen.time, rules.pressure)
    found = replace(known, records=records, short=short)
    return found, ConditionChanges((*former, *changes), pressed, found.unhealthy, short)


def restored(records: Iterable[GpuRecord], short: Short, now_s: float, *, is_former: bool) -> Conditions:
    """The conditions on disk, for a monitor that starts now; `is_former`: the machine was booted since."""
    return Conditions(health.restored(records, now_s), short, is_former)
