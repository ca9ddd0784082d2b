"""The record of an owner: samples in, what the next task is expected to need out."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.owner_record import (
    EMPTY,
    FORGET_S,
    FUTURE_S,
    HALF_LIFE_S,
    SAMPLES,
    OwnerRecord,
    PeakSample,
    checked,
    expectation,
    merged,
    observe,
)
from plimsoll.events import LARGEST
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB

NOW_S = 1.8e9
DAY_S = 24 * 3600.0


def record(*samples: PeakSample, now_s: float = NOW_S) -> OwnerRecord:
    """The record after these observations, in order."""
    found = EMPTY
    for one in samples:
        found = observe(found, one, now_s)
    return found


def peak(of: OwnerRecord, now_s: float = NOW_S) -> int | None:
    """The expected peak."""
    found = expectation(of, now_s)
    return None if found is None else found.peak_bytes


samples = st.builds(
    PeakSample,
    st.sampled_from([f"pod-{number}" for number in range(30)]),
    st.integers(1, 80 * GIB),
    st.floats(NOW_S - 2 * FORGET_S, NOW_S),
    st.none() | st.floats(0, 1000),
)


def test_the_largest_of_few_recent_peaks_is_expected() -> None:
    """With as many samples of one age as a record has, the largest is expected: lacking memory ends a program."""
    few = record(*(PeakSample(f"pod-{number}", (number + 1) * GIB, NOW_S) for number in range(SAMPLES)))
    found = expectation(few, NOW_S)
    assert found is not None
    assert found.peak_bytes == SAMPLES * GIB
    assert found.samples == SAMPLES


def test_an_outlier_is_forgotten_as_it_ages() -> None:
    """One run in 6 GiB among daily runs in 2 GiB is expected again for days, and not for ever."""
    found, expected = record(PeakSample("large", 6 * GIB, NOW_S)), []
    for day in range(1, 10):
        found = observe(found, PeakSample(f"day-{day}", 2 * GIB, NOW_S + day * DAY_S), NOW_S + day * DAY_S)
        expected.append(peak(found, NOW_S + day * DAY_S))
    assert expected[:3] == [6 * GIB] * 3
    assert expected[-3:] == [2 * GIB] * 3


def test_many_small_runs_within_an_hour_hide_no_large_one() -> None:
    """A record that is full keeps the larger of its two oldest samples."""
    burst = (PeakSample(f"small-{number}", GIB, NOW_S + number) for number in range(5 * SAMPLES))
    found = record(PeakSample("large", 6 * GIB, NOW_S), *burst, now_s=NOW_S + 5 * SAMPLES)
    assert len(found.samples) == SAMPLES
    assert peak(found, NOW_S + 5 * SAMPLES) == 6 * GIB


def test_a_pod_counts_once() -> None:
    """Repeated sights of one pod are one sample: its largest peak, its latest time, its first load."""
    found = record(
        PeakSample("pod", 2 * GIB, NOW_S - 50, 40.0),
        PeakSample("pod", GIB, NOW_S),
        PeakSample("pod", GIB, NOW_S, 90.0),
    )
    assert found.samples == (PeakSample("pod", 2 * GIB, NOW_S, 40.0),)


def test_the_load_time_is_the_median() -> None:
    """A single slow load from a cold cache does not stand for all."""
    found = expectation(
        record(*(PeakSample(f"{load}", GIB, NOW_S, load) for load in (3.0, 4.0, 500.0))), NOW_S
    )
    assert found is not None
    assert found.load_s == 4.0


@given(st.lists(samples, max_size=40))
def test_the_same_observation_again_changes_nothing(seen: list[PeakSample]) -> None:
    """For any observations, one that still stands in the record may come twice."""
    found = record(*seen)
    assert len(found.samples) <= SAMPLES
    for one in found.samples:
        assert observe(found, one, NOW_S) == found
    assert merged(found, found, NOW_S) == found


@given(st.lists(samples, max_size=SAMPLES), st.lists(samples, max_size=SAMPLES))
def test_two_placers_agree_on_what_they_learned(one: list[PeakSample], other: list[PeakSample]) -> None:
    """For any two records with room for all samples, peaks are the same in whatever order they come together."""
    first, second = record(*one[: SAMPLES // 2]), record(*other[: SAMPLES // 2])
    assert peak(merged(first, second, NOW_S)) == peak(merged(second, first, NOW_S))


@given(st.lists(samples, min_size=1, max_size=40), st.floats(0, 10 * HALF_LIFE_S))
def test_time_alone_changes_no_expectation(seen: list[PeakSample], later_s: float) -> None:
    """For any observations, an expectation stays until a sample is forgotten: all weights sink alike."""
    found = record(*seen)
    kept = [one for one in found.samples if NOW_S + later_s - one.at_s < FORGET_S]
    if len(kept) == len(found.samples):
        assert peak(found, NOW_S + later_s) == peak(found)


@given(st.lists(samples, max_size=40))
def test_a_record_comes_back_from_its_stored_form(seen: list[PeakSample]) -> None:
    """For any observations, the JSON form is small and reads back as the same record."""
    found = record(*seen)
    stored = msgspec.json.encode(found)
    assert len(stored) < 2048
    assert checked(msgspec.json.decode(stored, type=OwnerRecord), NOW_S) == found


@dataclass(frozen=True)
class Damage:
    """A sample that cannot be, and the words of its refusal."""

    sample: PeakSample
    text: str


@pytest.mark.parametrize(
    "damage",
    [
        Damage(PeakSample("", GIB, NOW_S), "samples[0].key"),
        Damage(PeakSample("k" * 65, GIB, NOW_S), "samples[0].key"),
        Damage(PeakSample("k", 0, NOW_S), "samples[0].peak_bytes: 0"),
        Damage(PeakSample("k", LARGEST + 1, NOW_S), "samples[0].peak_bytes"),
        Damage(PeakSample("k", GIB, NOW_S + FUTURE_S + 1), "samples[0].at_s"),
        Damage(PeakSample("k", GIB, -1.0), "samples[0].at_s"),
        Damage(PeakSample("k", GIB, float("nan")), "samples[0].at_s"),
        Damage(PeakSample("k", GIB, NOW_S, -1.0), "samples[0].load_s"),
    ],
)
def test_what_cannot_be_is_refused_by_name(damage: Damage) -> None:
    """A record that somebody else wrote is refused with field, value and remedy."""
    with pytest.raises(InputError) as raised:
        checked(OwnerRecord((damage.sample,)), NOW_S)
    assert damage.text in str(raised.value)
