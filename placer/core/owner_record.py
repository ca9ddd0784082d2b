"""The needs of an owner's earlier tasks, and the expected need of the next one.

Kang et al. 2024 place a task where its input will fit, which shows once the input is loaded. A best-effort pod
declares no memory, so until then the peaks of its owner's earlier pods stand for its own. A record keeps one sample
for each pod and GPU: the peak, its time, and the time that the input took to load.

The expectation is a percentile of the peaks, each weighted by 2^(-age ÷ half-life), as Kubernetes' Vertical Pod
Autoscaler (VPA) estimates memory: by decaying histograms of peaks with a half-life of 24 h
(`recommender/model/aggregations_config.go`). Two things differ. A record has few samples and keeps them as they are,
so no bucket rounds them. And the percentile is higher than VPA's 90th: a GPU has no swap, so too little memory ends a
program, while too much only delays another pod.

What always holds: all weights of a record sink alike, so an expectation changes by a new sample and by forgetting
alone, never by time. The same sample a second time changes nothing. A record has at most `SAMPLES` samples.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from plimsoll.events import LARGEST
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.part.errors import InputError

SAMPLES: Final = 16
"""The most samples of a record, less than 1 KiB in JSON. Of this many samples of one age, the percentile is the
largest."""

HALF_LIFE_S: Final = 24 * 3600.0
"""The age in seconds at which a sample counts half, as in VPA. A daily job forgets an outlier within six days."""

PERCENTILE: Final = 0.98
"""The part of the weights that lies at or below the expectation."""

FORGET_S: Final = 30 * 24 * 3600.0
"""Seconds after which a sample is forgotten: nearly all jobs that are run again are run within a month."""

FUTURE_S: Final = 3600.0
"""Seconds by which a sample's time may lie ahead, by clocks that differ. A sample of next year would never age."""

LONGEST_LOAD_S: Final = 7 * 24 * 3600.0
"""The longest load in seconds that is believed: a longer one is a clock that was set."""


class PeakSample(Struct, frozen=True, array_like=True):
    """A pod on one GPU.

    Attributes:
        key: the key of pod and GPU, see `sample_key`.
        peak_bytes: the most that its tasks held together; above 0.
        at_s: when it was last seen with that peak, in seconds since 1970.
        load_s: how long its first load took, in seconds, until the memory stood still; None if that was not seen.
    """

    key: str
    peak_bytes: int
    at_s: float
    load_s: float | None = None


class OwnerRecord(Struct, frozen=True):
    """The samples of one owner, the oldest first."""

    samples: tuple[PeakSample, ...] = ()

    @property
    def newest_s(self) -> float:
        """The time of the newest sample, in seconds since 1970; minus infinity without one."""
        return max((one.at_s for one in self.samples), default=-math.inf)


class Expectation(NamedTuple):
    """The expected need of the next task.

    Attributes:
        peak_bytes: the memory of a pod on one GPU.
        samples: the number of samples behind it.
        load_s: the median of their loads in seconds; None if none was seen.
    """

    peak_bytes: int
    samples: int
    load_s: float | None


EMPTY: Final = OwnerRecord()


def sample_key(pod: PodUid, gpu: GpuUuid) -> str:
    """The key of a pod on a GPU: 12 hex digits, as a record needs to tell 16 pods apart, not to name them."""
    return hashlib.sha256(f"{pod}\x1f{gpu}".encode()).hexdigest()[:12]


def observe(record: OwnerRecord, seen: PeakSample, now_s: float) -> OwnerRecord:
    """The record with one more observation; of the same pod and GPU, the largest peak and the latest time count.

    Where the record is full, the smaller of the two oldest samples goes. So a large peak outlives many small ones
    that come within an hour, until its age takes its weight.

    Args:
        record: before.
        seen: the observation.
        now_s: the time in seconds since 1970.
    """
    return _trimmed([one for one in record.samples if one.key != seen.key], record, seen, now_s)


def merged(one: OwnerRecord, other: OwnerRecord, now_s: float) -> OwnerRecord:
    """The record of both: what two placers learned of the same owner."""
    for sample in other.samples:
        one = observe(one, sample, now_s)
    return one


def expectation(record: OwnerRecord, now_s: float) -> Expectation | None:
    """The expected need of the owner's next task; None if nothing that still counts was seen.

    Args:
        record: the record of the owner.
        now_s: the time in seconds since 1970.
    """
    samples = _living(record.samples, now_s)
    if not samples:
        return None
    newest_s = max(one.at_s for one in samples)
    weights = [(one.peak_bytes, 0.5 ** ((newest_s - one.at_s) / HALF_LIFE_S)) for one in samples]
    wanted = PERCENTILE * sum(weight for _, weight in weights)
    loads = sorted(one.load_s for one in samples if one.load_s is not None)
    return Expectation(
        _percentile(sorted(weights), wanted), len(samples), loads[len(loads) // 2] if loads else None
    )


def checked(record: OwnerRecord, now_s: float) -> OwnerRecord:
    """The record as somebody else may have written it, without what is too old.

    Raises:
        InputError: a value is impossible; the error names it.
    """
    if len(record.samples) > SAMPLES:
        raise InputError("samples", len(record.samples), "are too many", f"keep at most {SAMPLES}")
    for place, one in enumerate(record.samples):
        name = f"samples[{place}]"
        if not 0 < len(one.key) <= LONGEST_KEY:
            raise InputError(f"{name}.key", one.key[:LONGEST_KEY], "is no key", "let the placer write it")
        if not 0 < one.peak_bytes <= LARGEST:
            raise InputError(f"{name}.peak_bytes", one.peak_bytes, "cannot be", f"give 1 to {LARGEST}")
        if not 0 <= one.at_s <= now_s + FUTURE_S:
            raise InputError(f"{name}.at_s", one.at_s, "is no time until now", "give seconds since 1970")
        if one.load_s is not None and not 0 <= one.load_s <= LONGEST_LOAD_S:
            raise InputError(f"{name}.load_s", one.load_s, "cannot be", f"give 0 to {LONGEST_LOAD_S:g}")
    return merged(EMPTY, record, now_s)


LONGEST_KEY: Final = 64
"""The most characters of a sample's key that is read: later versions may want more digits."""


def _percentile(weights: Iterable[tuple[int, float]], wanted: float) -> int:
    """The least value at or below which this much weight lies; the values come in order."""
    below, found = 0.0, 0
    for value, weight in weights:
        below, found = below + weight, value
        if below >= wanted:
            break
    return found


def _trimmed(others: list[PeakSample], record: OwnerRecord, seen: PeakSample, now_s: float) -> OwnerRecord:
    known = next((one for one in record.samples if one.key == seen.key), seen)
    both = PeakSample(
        seen.key,
        max(known.peak_bytes, seen.peak_bytes),
        max(known.at_s, seen.at_s),
        seen.load_s if known.load_s is None else known.load_s,
    )
    samples = sorted(_living([*others, both], now_s), key=lambda one: (one.at_s, one.key))
    while len(samples) > SAMPLES:
        del samples[0 if samples[0].peak_bytes <= samples[1].peak_bytes else 1]
    return OwnerRecord(tuple(samples))


def _living(samples: Iterable[PeakSample], now_s: float) -> list[PeakSample]:
    return [one for one in samples if now_s - one.at_s < FORGET_S]
