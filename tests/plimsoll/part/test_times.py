"""Times as text."""

from datetime import UTC, datetime, timedelta, timezone

from plimsoll.part.times import rfc3339


def test_times_have_six_digits() -> None:
    """A time on the full second has its fraction too, as the API server requires it."""
    assert rfc3339(datetime(2026, 1, 2, 3, 4, 5, 0, UTC)) == "2026-01-02T03:04:05.000000Z"


def test_times_are_written_in_utc() -> None:
    """Times from any zone are written in UTC, so the texts compare."""
    there = datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))
    assert rfc3339(there) == "2026-01-02T01:04:05.000006Z"
