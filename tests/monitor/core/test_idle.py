"""The decayed idle average, against numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.idle import IdleMeter, decayed

MINUTE_US = 60_000_000


def test_the_previous_average_weighs_half_the_latest_minute() -> None:
    """Kang et al. 2024, §II.B: minutes of 90, 30 and 60 % idle give 90, then 50, then 56.67."""
    meter = IdleMeter(60)
    meter.add(0, 0)
    averages = []
    for minute, busy_pct in enumerate((10, 70, 40), start=1):
        meter.add(minute * MINUTE_US, busy_pct)
        averages.append(meter.idle_pct)
    assert averages == pytest.approx([90, (30 + 45) / 1.5, (60 + 25) / 1.5])
    assert averages == pytest.approx([90, 50, 56.6667], abs=1e-4)


def test_before_the_first_minute_the_idle_time_so_far_is_given() -> None:
    """Before any measurement the average is 100; then it is the mean so far, weighed by duration."""
    meter = IdleMeter(60)
    assert meter.idle_pct == 100
    meter.add(0, 100)
    assert meter.idle_pct == 100
    meter.add(10_000_000, 100)
    meter.add(40_000_000, 0)
    assert meter.idle_pct == pytest.approx(75)


def test_a_sample_over_two_minutes_is_split_where_they_meet() -> None:
    """40 s idle and then 40 s busy make a first minute of two thirds, and 20 s towards the next."""
    meter = IdleMeter(60)
    meter.add(0, 0)
    meter.add(40_000_000, 0)
    meter.add(80_000_000, 100)
    assert meter.idle_pct == pytest.approx(200 / 3)
    meter.add(120_000_000, 100)
    assert meter.idle_pct == pytest.approx(decayed(200 / 3, 0))


def test_busy_seconds_are_the_work_in_all_samples() -> None:
    """A minute at 10 % and a second at 100 % are 7 s of work; the first sample only marks the beginning."""
    meter = IdleMeter(60)
    meter.add(0, 100)
    assert meter.busy_s == 0
    meter.add(MINUTE_US, 10)
    meter.add(MINUTE_US + 1_000_000, 100)
    assert meter.busy_s == pytest.approx(7)


def test_samples_already_taken_in_change_nothing() -> None:
    """The driver's buffers overlap between readings, and each sample counts once."""
    meter, twice = IdleMeter(60), IdleMeter(60)
    for second in range(200):
        meter.add(second * 1_000_000, second % 100)
        twice.add(second * 1_000_000, second % 100)
        twice.add(max(second - 5, 0) * 1_000_000, 50)
    assert meter.idle_pct == twice.idle_pct


def test_a_clock_set_back_starts_counting_anew() -> None:
    """After a step back of the wall clock, which dates the samples, the meter goes on counting."""
    meter = IdleMeter(60)
    meter.add(1_000 * MINUTE_US, 0)
    meter.add(5 * MINUTE_US, 0)
    meter.add(6 * MINUTE_US, 100)
    assert meter.idle_pct == 0


@given(st.lists(st.tuples(st.integers(1, 10**13), st.floats(-50, 150)), max_size=60))
def test_the_average_is_always_a_percentage(samples: list[tuple[int, float]]) -> None:
    """For any samples and any clock jumps the average stays within 0–100."""
    meter = IdleMeter(60)
    for at_us, busy_pct in samples:
        meter.add(at_us, busy_pct)
        assert 0 <= meter.idle_pct <= 100


@given(st.floats(0, 100), st.lists(st.integers(1, MINUTE_US), min_size=1, max_size=30))
def test_constant_work_gives_its_own_idle_share(busy_pct: float, spans_us: list[int]) -> None:
    """Constant utilisation averages to itself for any division into samples."""
    meter, at_us = IdleMeter(60), 0
    meter.add(at_us, busy_pct)
    for span_us in spans_us:
        at_us += span_us
        meter.add(at_us, busy_pct)
        assert meter.idle_pct == pytest.approx(100 - busy_pct, abs=1e-6)
