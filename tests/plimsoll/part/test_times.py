"""Times as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from plimsoll.part.errors import InputError
from plimsoll.part.times import check_time, rfc3339


def test_times_have_six_digits() -> None:
    """A time on the full second has its fraction too, as the API server requires it."""
    assert rfc3339(datetime(2026, 1, 2, 3, 4, 5, 0, UTC)) == "2026-01-02T03:04:05.000000Z"


def test_times_are_written_in_utc() -> None:
    """Times from any zone are written in UTC, so the texts compare."""
    there = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))
    assert rfc3339(there) == "2026-01-02T01:04:05.000006Z"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("9999-12-31T23:59:59Z", "more than a year ahead"), ("9999-12-31", "ahead"), ("soon", "is no time")],
)
def test_a_time_that_no_clock_shows_is_refused(text: str, problem: str) -> None:
    """A date that would be the newest for ever is refused; a clock that is wrong by months is none."""
    now_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    with pytest.raises(InputError, match=problem):
        check_time("state.time", text, now_s)
    for wrong in ("1970-01-01T00:00:00Z", "2026-12-01T00:00:00Z", "2026-06-01T00:00:00"):
        assert check_time("state.time", wrong, now_s).year in {1970, 2026}
