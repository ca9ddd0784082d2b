"""Shares, errors and ripples from a book that was read now and then."""

import pytest

from bench.share_figures import Track, bound_pts, judge, percentile
from tests.bench.tracks import MS, S, track_of


def test_a_share_is_taken_between_the_lines_nearest_to_two_moments() -> None:
    """Unfinished time and elapsed time are of the same two lines, wherever those fell."""
    track = Track((0, 990 * MS, 2010 * MS), (0, 300 * MS, 810 * MS), (0, 200 * MS, 405 * MS))
    assert track.share_pct(S, 2 * S) == pytest.approx(100 * 510 / 1020)
    assert track.work_pct(S, 2 * S) == pytest.approx(100 * 205 / 1020)


def test_a_track_that_ended_has_no_share_afterwards() -> None:
    """Past the last line of a process that is gone, nothing is made up."""
    track = track_of([50.0])
    assert track.share_pct(2 * S, 3 * S) == 0


def test_error_has_a_sign_and_ripple_is_the_worst_second() -> None:
    """Seconds of 30, 34 and 26 % against a target of 31 % err by -1 point, and the worst second by 5."""
    judged = judge(track_of([30.0, 34.0, 26.0]), 31.0, 0, 3 * S)
    assert judged.seconds_pct == pytest.approx((30.0, 34.0, 26.0))
    assert judged.error_pts == pytest.approx(-1.0)
    assert judged.ripple_pts == pytest.approx(5.0)


def test_a_bound_is_at_least_one_kernels_length() -> None:
    """A kernel of 200 ms is 2 points of 10 s and 20 of one second; one of 20 µs moves no bound."""
    assert bound_pts(1.0, 200 * MS, 10.0) == pytest.approx(2.0)
    assert bound_pts(3.0, 200 * MS, 1.0) == pytest.approx(20.0)
    assert bound_pts(3.0, 20_000, 1.0) == pytest.approx(3.0)


def test_the_99th_percentile_of_few_is_the_largest() -> None:
    """Nothing below the largest of ten values covers 99 % of them."""
    assert percentile(list(range(10)), 99) == 9
    assert percentile(list(range(1000)), 99) == 990
