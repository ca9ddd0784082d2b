"""What one process holds past its words, from a run of measurements.

NVML is read a few milliseconds before the words are, so the two never quite belong together: a program that allocates
and frees in a loop is seen with its memory in NVML and without it in its word. One measurement therefore proves
nothing. What always holds: an excess is believed only when a whole run of measurements shows at least as much, each
against the higher of the words before and after it. A measurement that shows less lowers it at once, yet not further
than to what it shows past the lower of the two words: a program that fills its line meanwhile has freed nothing.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from plimsoll.quantity import MIB

RUN: Final = 8
"""Measurements in a run. With two, one run in thirty of a tight allocate-and-free loop shows memory that is not
there; with eight, one in a hundred thousand. While a program loads they are 0.1 s apart."""

EAGER_RUN: Final = 2
"""The run for who was there before the broker's first measurement: at rest it is measured every few seconds, and its
excess must not be forgotten for a minute because the broker was restarted."""

BLOCK_BYTES: Final = 2 * MIB
"""NVIDIA's driver gives out memory in such blocks; differences up to this are none."""

LEAST_CONTEXT_BYTES: Final = MIB
"""Less is no context of any driver: the process counted it already."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process on one GPU at one measurement.

    Attributes:
        used_bytes: by NVML.
        word_bytes: by the process's own count, read after that.
        has_context: it had announced its context, so that all of this is there.
    """

    used_bytes: int
    word_bytes: int
    has_context: bool = False


class Overhead:
    """One process on one GPU."""

    def __init__(self, *, is_eager: bool = False) -> None:
        self._least = EAGER_RUN if is_eager else RUN
        self._samples: deque[Sample] = deque(maxlen=RUN + 1)
        self.excess_bytes = 0
        """What it holds past its word, at least 0."""

    def add(self, sample: Sample) -> None:
        """Take in the next measurement."""
        self._samples.append(sample)
        self.excess_bytes = max(self._proven_bytes(), min(self.excess_bytes, self._possible_bytes()))

    @property
    def used_bytes(self) -> int:
        """What NVML showed last."""
        return self._samples[-1].used_bytes

    def _possible_bytes(self) -> int:
        """The most that the last measurement leaves room for."""
        last = self._samples[-1]
        return last.used_bytes - min(each.word_bytes for each in list(self._samples)[-2:])

    def _proven_bytes(self) -> int:
        """The least that a whole run shows, at least 0."""
        samples = list(self._samples)
        words = [max(a.word_bytes, b.word_bytes) for a, b in pairwise(samples)]
        past = [each.used_bytes - word for each, word in zip(samples[1:], words, strict=True)]
        return max(0, min(past)) if len(past) >= self._least else 0

    @property
    def bare_bytes(self) -> int | None:
        """What NVML shows past the word, where it did not change over a run with a context; else None."""
        return self._steady([each.used_bytes - each.word_bytes for each in self._samples])

    @property
    def whole_bytes(self) -> int | None:
        """What NVML shows, where it did not change over a run with a context; else None."""
        return self._steady([each.used_bytes for each in self._samples])

    def _steady(self, values: list[int]) -> int | None:
        if len(values) <= RUN or not all(each.has_context for each in self._samples):
            return None
        lowest = min(values)
        return lowest if lowest >= LEAST_CONTEXT_BYTES and max(values) - lowest <= BLOCK_BYTES else None
