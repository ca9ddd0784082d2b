"""Judges the events of a run against the truth: the emulator's own book, and what the programs say of themselves.

Pure: readings and events in, findings out. What counts as true:

* A process was a task if the book ever showed it with a context, or if it reported one itself.
* Its memory was what the book showed. The book is read some times a second, so between two readings it may have been
  what either showed, or anything between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.ids import ProcessKey

TOLERANCE_BYTES: Final = 8 << 20
"""Memory that changes by less stands still for the monitor: a `loaded` may be off by this much."""

SLACK_NS: Final = 1_000_000_000
"""An event has the time at which its round ended, a little after its measurement."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A process on a GPU in one reading of the book.

    Attributes:
        at_ns: CLOCK_MONOTONIC.
        used_bytes: context included.
    """

    at_ns: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Plateau:
    """A stretch in which memory stood still, after it had risen."""

    begin_ns: int
    end_ns: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """A task event, as the stream keeps it.

    Attributes:
        process: the event's process.
        what: `started`, `loaded` or `exited`.
        at_ns: the event's time, on the clock of the readings.
        used_bytes: the task's memory in it.
    """

    process: ProcessKey
    what: str
    at_ns: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Truth:
    """The course of events, as the judge knows it.

    Attributes:
        tasks: the processes that were tasks for certain.
        spawned: the pids of all processes that the run started; one that died early may have been a task or not.
        readings: by pid, in order.
        plateaus: by pid, where memory rose and then certainly stood still for long enough to be reported.
        reload_bytes: a rise after a `loaded` by less than this, or than a tenth of the peak, needs no other `loaded`.
    """

    tasks: frozenset[ProcessKey]
    spawned: frozenset[int]
    readings: Mapping[int, Sequence[Reading]] = field(default_factory=dict)
    plateaus: Mapping[int, Sequence["Plateau"]] = field(default_factory=dict)
    reload_bytes: int = 0


@dataclass(slots=True)
class Violations:
    """All violations, in words.

    Attributes:
        lost: facts without an event.
        phantom: events without a fact, or repeated events.
        inaccurate: `loaded` events whose bytes the book did not show then.
        two_contents: ids that were published with different contents.
        disorder: reports out of order, gaps in their numbers, or a task's events in the wrong order.
    """

    lost: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    inaccurate: list[str] = field(default_factory=list)
    two_contents: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[str]:
        """Every finding."""
        return [*self.lost, *self.phantom, *self.inaccurate, *self.two_contents, *self.disorder]


def judge(
    truth: Truth, events: Sequence[StreamedEvent], orders: Sequence[tuple[int, int]], window_ns: int
) -> Violations:
    """Compare.

    Args:
        truth: what happened.
        events: the stream's task events, in order.
        orders: epoch and number of every report in the stream, in order.
        window_ns: how long before a `loaded` the memory was looked at: the settle time, and some more.
    """
    violations = Violations()
    by_process: dict[ProcessKey, list[StreamedEvent]] = {}
    for each in events:
        by_process.setdefault(each.process, []).append(each)
    for process in sorted(truth.tasks):
        _judge_task(process, by_process.get(process, []), violations)
    for process in sorted(by_process.keys() - truth.tasks):
        if process.pid in truth.spawned:  # it died too early for any other reader; whole lives are right
            _judge_task(process, by_process[process], violations)
        else:
            violations.phantom.append(f"{process}: no such process ran: {_kinds(by_process[process])}")
    for each in events:
        if each.what == "loaded" and each.process.pid in truth.readings:
            _judge_bytes(each, truth.readings[each.process.pid], window_ns, violations)
    for process in sorted(truth.tasks):
        _judge_plateaus(process, by_process.get(process, []), truth, violations)
    violations.disorder += disorder(orders)
    return violations


def two_contents(messages: Iterable[tuple[str, bytes]]) -> list[str]:
    """The ids that came with different bodies, of (id, body)."""
    bodies: dict[str, bytes] = {}
    return [id_ for id_, body in messages if bodies.setdefault(id_, body) != body]


def disorder(orders: Iterable[tuple[int, int]]) -> list[str]:
    """Reports that are out of order or missing: each is the next number of its epoch, or the first of a later one."""
    found, last = [], (0, 0)
    for epoch, seq in orders:
        if (epoch, seq) != (last[0], last[1] + 1) and not (epoch > last[0] and seq == 1):
            found.append(f"report {(epoch, seq)} after {last}")
        last = (epoch, seq)
    return found


def _judge_task(process: ProcessKey, events: Sequence[StreamedEvent], violations: Violations) -> None:
    kinds = _kinds(events)
    for what in ("started", "exited"):
        if what not in kinds:
            violations.lost.append(f"{process}: no {what}: {kinds}")
        if kinds.count(what) > 1:
            violations.phantom.append(f"{process}: {what} {kinds.count(what)} times: {kinds}")
    if kinds.count("started") == kinds.count("exited") == 1 and (kinds[0], kinds[-1]) != (
        "started",
        "exited",
    ):
        violations.disorder.append(f"{process}: {kinds}")


def _judge_bytes(
    loaded: StreamedEvent, readings: Sequence[Reading], window_ns: int, violations: Violations
) -> None:
    """A `loaded` must have bytes that the book showed in the window before it, or lies between two readings of it."""
    before = [each for each in readings if each.at_ns < loaded.at_ns - window_ns]
    after = [each for each in readings if each.at_ns > loaded.at_ns]
    within = [each for each in readings if loaded.at_ns - window_ns <= each.at_ns <= loaded.at_ns]
    shown = [each.used_bytes for each in (*before[-1:], *within, *after[:1])]
    if not any(abs(each - loaded.used_bytes) <= TOLERANCE_BYTES for each in shown):
        violations.inaccurate.append(
            f"{loaded.process}: loaded with {loaded.used_bytes}, the book showed {sorted(set(shown))}"
        )


def plateaus(readings: Sequence[Reading], least_ns: int, reload_bytes: int) -> list[Plateau]:
    """The stretches of at least `least_ns` that a `loaded` must follow.

    These are the first one, and each one that lies more than `reload_bytes` above the lowest reading since the one
    before it.
    """
    found: list[Plateau] = []
    lowest_bytes: int | None = None
    for stretch in _stretches(readings):
        is_long = stretch.end_ns - stretch.begin_ns >= least_ns
        if is_long and (lowest_bytes is None or stretch.used_bytes - lowest_bytes > reload_bytes):
            found.append(stretch)
            lowest_bytes = stretch.used_bytes
        elif lowest_bytes is not None:
            lowest_bytes = min(lowest_bytes, stretch.used_bytes)
    return found


def _stretches(readings: Sequence[Reading]) -> list[Plateau]:
    """Readings of one level after the other."""
    found: list[Plateau] = []
    for each in readings:
        begin_ns = each.at_ns
        if found and found[-1].used_bytes == each.used_bytes:
            begin_ns = found.pop().begin_ns
        found.append(Plateau(begin_ns, each.at_ns, each.used_bytes))
    return found


def _judge_plateaus(
    process: ProcessKey, events: Sequence[StreamedEvent], truth: Truth, violations: Violations
) -> None:
    """Each plateau has a `loaded` with its bytes during it, or one before it from which memory rose too little."""
    loads = [(each.at_ns, each.used_bytes) for each in events if each.what == "loaded"]
    readings = truth.readings.get(process.pid, ())
    violations.lost.extend(
        f"{process}: no loaded in {one}: {loads}"
        for one in truth.plateaus.get(process.pid, ())
        if not any(_is_answered(one, load, readings, truth.reload_bytes) for load in loads)
    )


def _is_answered(one: Plateau, load: tuple[int, int], readings: Sequence[Reading], reload_bytes: int) -> bool:
    """Whether a `loaded` is that of a plateau, or of a shorter rest before it.

    A peak between the two that ended before any sample is no reload.
    """
    at_ns, used_bytes = load
    if one.begin_ns <= at_ns:
        return at_ns <= one.end_ns + SLACK_NS and abs(one.used_bytes - used_bytes) <= TOLERANCE_BYTES
    since = [each.used_bytes for each in readings if at_ns <= each.at_ns <= one.begin_ns]
    tenth_bytes = max(one.used_bytes, used_bytes, *since) // 10
    return one.used_bytes - min(used_bytes, *since) <= max(reload_bytes, tenth_bytes)


def _kinds(events: Sequence[StreamedEvent]) -> list[str]:
    return [each.what for each in events]
