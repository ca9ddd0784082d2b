"""Tracks from readings of the emulator's book, and settings by their names."""

from collections.abc import Mapping

import pytest

from bench.hook.share.shared_node import settings_of, track_of
from bench.hook.share.tenants import Json, NoAnswerError
from tests.hook.broker.conftest import CONSTANTS


def _line(time_ns: int, busy_ns: Mapping[int, int]) -> Json:
    return {
        "time_ns": time_ns,
        "processes": [{"pid": pid, "busy_ns": busy} for pid, busy in busy_ns.items()],
    }


def test_the_time_of_a_tenants_processes_is_their_sum() -> None:
    """A tenant's time is the sum over its processes.

    Other processes, and readings from before it came, do not count.
    """
    book = [_line(0, {9: 5}), _line(10, {9: 6, 1: 2}), _line(20, {9: 7, 1: 3, 2: 4})]
    track = track_of({}, book, 1, 2)
    assert (track.times_ns, track.busy_ns) == ([10, 20], [2, 7])


def test_a_process_that_no_book_shows_has_given_no_answer() -> None:
    """A process without any reading has no share, not a share of zero."""
    with pytest.raises(NoAnswerError):
        track_of({}, [_line(0, {9: 5})], 1)


def test_without_a_book_the_tenants_own_sum_counts() -> None:
    """Without the emulator's book, as on a real GPU, the tenant's own sum counts."""
    track = track_of({"samples": [[0, 0], [10, 5]]}, [], 1)
    assert (track.times_ns, track.busy_ns) == ((0, 10), (0, 5))


def test_a_quantum_is_given_by_a_constant_that_the_broker_has() -> None:
    """A quantum is set through a constant that the broker has."""
    assert settings_of(None) == {}
    given = settings_of(20)
    assert given
    assert set(given) <= CONSTANTS.keys()
