"""Shares, errors and ripples are computed from a few readings of the GPU's time."""

import pytest

from bench.hook.share.figures import (
    Track,
    arrival_s,
    bound_pts,
    judge,
    met_ratio,
    parts_of,
    progress_ratio,
)
from tests.bench.tracks import MS, S, track_of


def test_a_share_is_taken_between_the_lines_nearest_to_two_moments() -> None:
    """A share takes busy time and elapsed time from the same two readings, at whatever moments those were taken."""
    track = Track((0, 990 * MS, 2010 * MS), (0, 300 * MS, 810 * MS))
    assert track.share_pct(S, 2 * S) == pytest.approx(100 * 510 / 1020)


def test_a_track_that_ended_has_no_share_afterwards() -> None:
    """After the last reading of a process that ended its share is 0."""
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


def test_progress_is_measured_against_what_the_due_share_allows() -> None:
    """A program alone makes 100 steps a second with 80 % of the GPU, so a due share of 60 % allows 75.

    With 75 steps its progress is full.
    """
    assert progress_ratio(75.0, 100.0, alone_pct=80.0, due_pct=60.0) == pytest.approx(1.0)
    assert progress_ratio(30.0, 100.0, alone_pct=80.0, due_pct=60.0) == pytest.approx(0.4)


def test_progress_of_a_program_that_asks_for_less_than_its_due_is_against_itself_alone() -> None:
    """A program that wants 40 % of the GPU loses nothing by a limit of 60, so its rate alone is the measure."""
    assert progress_ratio(50.0, 100.0, alone_pct=40.0, due_pct=60.0) == pytest.approx(0.5)


def test_a_request_is_met_where_the_program_has_it_or_all_that_it_asks_for() -> None:
    """A program that demands 50 and gets 50 has its request of 70 met."""
    assert met_ratio(50.0, due_pct=70.0, demand_pct=50.0) == pytest.approx(1.0)
    assert met_ratio(63.0, due_pct=70.0, demand_pct=100.0) == pytest.approx(0.9)


def _track_by_50_ms(shares_pct: list[float]) -> Track:
    times = tuple(50 * MS * step for step in range(len(shares_pct) + 1))
    busy = [0]
    for share_pct in shares_pct:
        busy.append(busy[-1] + int(share_pct / 100 * 50 * MS))
    return Track(times, busy)


def test_an_arrival_is_the_end_of_the_first_window_that_lasts() -> None:
    """With 50 % for 200 ms and 90 % from then on, the window from 200 to 300 ms counts, at its end."""
    track = _track_by_50_ms([50.0] * 4 + [90.0] * 40)
    assert arrival_s(track, 0, 2200 * MS, 85.0) == pytest.approx(0.3)


def test_a_lucky_window_is_no_arrival() -> None:
    """After 100 % for 100 ms and 50 % for a second, only the later lasting share counts as the arrival."""
    track = _track_by_50_ms([100.0] * 2 + [50.0] * 20 + [90.0] * 40)
    assert arrival_s(track, 0, 3100 * MS, 85.0) == pytest.approx(1.2)


def test_a_tenant_that_never_has_its_share_never_arrives() -> None:
    """The arrival of a tenant that never has its share is None."""
    assert arrival_s(_track_by_50_ms([50.0] * 60), 0, 3000 * MS, 85.0) is None


def test_whole_parts_come_to_the_total_and_differ_by_one_at_most() -> None:
    """The parts of 90 % for 27 clients are nine of 4 and eighteen of 3."""
    assert sorted(parts_of(90, 27)) == [3] * 18 + [4] * 9
