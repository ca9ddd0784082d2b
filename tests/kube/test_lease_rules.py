"""The rules of a Lease, by values alone: when it is free, and what its holder writes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.kube.lease_rules import LeaseSpec, LeaseTiming, StoredLease, free_s, seen, taken
from plimsoll.kube.models import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = LeaseTiming(30)


def record(
    holder: str | None, version: int = 1, lasts_s: int | None = 5, transitions: int = 0
) -> StoredLease:
    """A Lease as the server stores it."""
    spec = LeaseSpec(holderIdentity=holder, leaseDurationSeconds=lasts_s, leaseTransitions=transitions)
    return StoredLease(ObjectMeta(uid="u", resourceVersion=str(version)), spec)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 3)), min_size=1, max_size=20))
def test_lease_is_free_only_after_it_was_seen_unchanged_for_its_duration(
    readings: list[tuple[float, int]],
) -> None:
    """In any order of readings, the time counts from the first reading of the version that was read last."""
    now_s, known = 0.0, None
    first_s, version = 0.0, 0
    for pause_s, read in readings:
        now_s += pause_s
        if read != version:
            first_s, version = now_s, read
        known = seen(known, record("other", read), now_s)
        assert free_s(known, "me", LONG) == first_s + 5


@pytest.mark.parametrize(
    ("stored", "from_s"),
    [
        (record(None), 7.0),
        (record(""), 7.0),
        (record("me"), 7.0),
        (record("other"), 12.0),
        (record("other", lasts_s=None), 37.0),
    ],
)
def test_lease_of_nobody_is_free_at_once(stored: StoredLease, from_s: float) -> None:
    """A Lease of nobody and the own one are free at once. If it has no duration, this process's duration counts."""
    assert free_s(seen(None, stored, 7.0), "me", LONG) == from_s


def test_times_have_six_digits_and_transitions_count_holders() -> None:
    """Times have six digits, as the API server demands. A renewal names no time of acquisition and no transitions."""
    renewed = {"holderIdentity": "me", "leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00.000000Z"}
    got = {**renewed, "acquireTime": "2026-01-01T00:00:00.000000Z"}
    assert taken(record("me"), "me", LONG, NOW) == renewed
    assert taken(None, "me", LONG, NOW) == {**got, "leaseTransitions": 0}
    assert taken(record("other", transitions=4), "me", LONG, NOW) == {**got, "leaseTransitions": 5}
