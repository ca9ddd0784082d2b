"""The core believes a process's words only within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook.broker.core.shares.meters import Meter, ended
from hook.broker.core.shares.settings import DEBT_NS, MS, S
from plimsoll.broker.pages import SILENT_NS

TICK_NS, SLICE_NS, NOW_NS = 5 * MS, 2 * MS, 1000 * S


def words(
    launched: int = 0, executed: int = 0, sums: tuple[int, int, int] = (0, 0, 0), looked: int = NOW_NS + S
) -> tuple[int, ...]:
    """The words for one GPU."""
    return (4, launched, executed, *sums, 4, 0, 0, looked)


def gains(meter: Meter) -> list[float]:
    """The gains of the latest tick."""
    return [meter.unfinished, meter.sure, meter.sliced]


def test_a_burst_is_unfinished_from_its_launch_and_its_first_slice_is_sure() -> None:
    """A burst launched 4 ms ago that executed for 3 ms is unfinished for 4 ms.

    2 ms are surely its own, and 1 ms is shared with other processes.
    """
    meter = Meter()
    assert meter.read(words(NOW_NS - 4 * MS, NOW_NS - 3 * MS), NOW_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == pytest.approx([0.8, 0.4, 0.2])
    assert meter.read(words(0, 0, (6 * MS, 2 * MS, 3 * MS)), NOW_NS + TICK_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == pytest.approx([0.4, 0, 0.4])
    assert not meter.read(words(0, 0, (6 * MS, 2 * MS, 3 * MS)), NOW_NS + 2 * TICK_NS, TICK_NS, SLICE_NS)


def test_where_in_a_tick_one_burst_lies_is_known() -> None:
    """A burst lies at the end of the tick in which it began, and at the begin of that in which it ended."""
    meter, ends = Meter(settled=4), (8 * MS, 2 * MS, 6 * MS)
    got = []
    for tick, page in enumerate(
        [words(NOW_NS - MS, NOW_NS - MS), words(NOW_NS - MS, NOW_NS - MS), words(0, 0, ends)]
    ):
        meter.read(page, NOW_NS + tick * TICK_NS, TICK_NS, SLICE_NS)
        got.append((meter.head, meter.tail))
    assert got == [pytest.approx(each) for each in [(0, 0.2), (1, 0), (0.4, 0)]]
    meter.read(words(0, 0, ends), NOW_NS + 3 * TICK_NS, TICK_NS, SLICE_NS)
    assert (meter.head, meter.tail) == (0, 0)


def test_of_several_bursts_in_a_tick_it_is_not_known_where_they_lie() -> None:
    """Bursts that ended and began since the last tick may lie anywhere in it, as far as their words show."""
    meter = Meter()
    meter.read(words(NOW_NS - MS, NOW_NS - MS), NOW_NS, TICK_NS, SLICE_NS)
    _, launched, *rest = words(0, 0, (3 * MS, 2 * MS, MS))
    meter.read((4 + 3, launched, *rest), NOW_NS + TICK_NS, TICK_NS, SLICE_NS)
    assert (meter.head, meter.tail) == (1, 0)


def test_an_end_that_is_seen_late_takes_nothing_back() -> None:
    """A burst ended a millisecond before the end was seen.

    Nothing is gained until that millisecond is made up for.
    """
    meter = Meter()
    meter.read(words(NOW_NS - 4 * MS, NOW_NS - 4 * MS), NOW_NS, TICK_NS, SLICE_NS)
    meter.read(words(0, 0, (3 * MS, 2 * MS, 1 * MS)), NOW_NS + TICK_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == [0, 0, 0]
    meter.read(words(0, 0, (6 * MS, 4 * MS, 2 * MS)), NOW_NS + 2 * TICK_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == pytest.approx([0.4, 0.4, 0])


def test_a_begin_that_is_found_late_is_gained_later() -> None:
    """A burst has executed for 12 ms when that becomes known. 5 ms count now, and the rest at later ticks."""
    meter = Meter()
    page = words(0, 0, (12 * MS, 2 * MS, 10 * MS))
    got = []
    for tick in range(4):
        meter.read(page, NOW_NS + tick * TICK_NS, TICK_NS, SLICE_NS)
        got.append((meter.sure + meter.sliced) * TICK_NS / MS)
    assert got == pytest.approx([5, 5, 2, 0])


def test_an_absurd_word_is_gained_for_a_while_and_then_forgotten() -> None:
    """A word claims years of execution. Its container pays the largest possible debt and no more."""
    meter = Meter()
    page = words(0, 0, (2**63, 2**63, 2**63))
    total = 0.0
    for tick in range(1000):
        meter.read(page, NOW_NS + tick * TICK_NS, TICK_NS, SLICE_NS)
        total += (meter.sure + meter.sliced) * TICK_NS
    assert total <= 2 * (DEBT_NS + TICK_NS)


def test_words_from_the_future_say_nothing() -> None:
    """A burst that was launched or executed later than now does not count."""
    meter = Meter()
    assert not meter.read(words(NOW_NS + S, NOW_NS + S), NOW_NS, TICK_NS, SLICE_NS)
    assert meter.read(words(NOW_NS - MS, NOW_NS + S), NOW_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == pytest.approx([0.2, 0, 0])


def test_a_program_that_counts_from_0_anew_is_charged_from_there() -> None:
    """A process that became another program keeps its owner word, and its new counts from 0 are charged."""
    meter = Meter()
    meter.skip(words(0, 0, (S, S, S)), NOW_NS, SLICE_NS)
    meter.read(words(0, 0, (3 * MS, 2 * MS, MS)), NOW_NS + TICK_NS, TICK_NS, SLICE_NS)
    assert gains(meter) == pytest.approx([0.6, 0.4, 0.2])


def test_the_last_words_of_a_process_end_with_it() -> None:
    """At a process's death its burst ends on each of its GPUs, and the process wants nothing."""
    dying = (*words(NOW_NS - 4 * MS, NOW_NS - 3 * MS, (MS, MS, MS))[:8], 2, NOW_NS, *words(NOW_NS - MS))
    last = ended(dying, NOW_NS, SLICE_NS)
    assert last[:10] == (4, 0, 0, 5 * MS, 3 * MS, 2 * MS, 4, 0, 0, 0)
    assert last[10:] == (4, 0, 0, MS, 0, 0, 4, 0, 0, 0)


def test_of_a_stopped_process_nothing_is_believed() -> None:
    """A stopped process's burst counts until shortly after its last sign of life.

    The process wants nothing until it is active again.
    """
    meter = Meter()
    stopped = words(NOW_NS, NOW_NS, looked=NOW_NS)
    for tick in range(1, 40):
        meter.read(stopped, NOW_NS + tick * TICK_NS, TICK_NS, SLICE_NS)
    assert not meter.read(stopped, NOW_NS + 4 * S, TICK_NS, SLICE_NS)
    assert meter.sure_ns + meter.sliced_ns == SILENT_NS
    assert not meter.is_busy
    assert meter.read(words(NOW_NS, NOW_NS, looked=NOW_NS + 5 * S), NOW_NS + 5 * S, TICK_NS, SLICE_NS)
    assert meter.is_busy


WORD = st.one_of(
    st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(NOW_NS - S, NOW_NS + S), st.integers(0, 20 * MS)
)


@given(st.lists(st.tuples(WORD, WORD, WORD, WORD, WORD), max_size=20), st.integers(1, S))
def test_gains_are_never_more_than_the_time_that_passed(pages: list[tuple[int, ...]], span_ns: int) -> None:
    """For any page the gain of a tick is at least 0 and at most the tick."""
    meter = Meter()
    for tick, (launched, executed, *sums) in enumerate(pages):
        page = (1, launched, executed, *sums, 1, 0, 0, NOW_NS + S)
        meter.read(page, NOW_NS + tick * span_ns, span_ns, SLICE_NS)
        assert all(0 <= gain <= 1 for gain in gains(meter))
        assert meter.sure + meter.sliced <= 1 + 1e-9


def test_what_was_gained_beyond_an_end_is_not_set_off_for_ever() -> None:
    """After a burst that seemed to last for seconds had ended long before, later work is soon charged again."""
    meter = Meter()
    for tick in range(1, 1000):
        at_ns = NOW_NS + tick * TICK_NS
        meter.read(words(NOW_NS, NOW_NS, looked=at_ns), at_ns, TICK_NS, SLICE_NS)
    sums = (10 * MS, 2 * MS, 8 * MS)
    free_ns, later_ns = 0, NOW_NS + 1000 * TICK_NS
    while free_ns <= 2 * SILENT_NS:
        at_ns = later_ns + free_ns
        meter.read(words(later_ns, later_ns, sums, looked=at_ns), at_ns, TICK_NS, SLICE_NS)
        if meter.sliced:
            break
        free_ns += TICK_NS
    assert free_ns <= SILENT_NS + 2 * TICK_NS
