"""What one process holds past its words, and what its contexts seem to cost, from measurements that count.

A measurement counts where the process's words did not change between the moment before NVML was asked and the reading
of the words (see `audit`), so a single one proves what it shows past the word. What always holds: a measurement that
shows less lowers the excess at once, yet not further than to what it shows past the lower of the words now and at the
measurement before. A program that fills its line has reserved before the driver gives: it has freed nothing.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from plimsoll.quantity import MIB

RUN: Final = 3
"""Measurements over which memory must stand still before a context's cost is learned from it: a context that is just
being ended is seen in part, and what was learned only ever falls."""

BLOCK_BYTES: Final = 2 * MIB
"""NVIDIA's driver gives out memory in such blocks; differences up to this are none."""

LEAST_CONTEXT_BYTES: Final = MIB
"""Less is no context of any driver: the process counted it already."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process on one GPU at one measurement that counts.

    Attributes:
        used_bytes: by NVML.
        word_bytes: by the process's own count.
        has_context: it had announced its context, so that all of this is there.
    """

    used_bytes: int
    word_bytes: int
    has_context: bool = False

    @property
    def past_bytes(self) -> int:
        """What NVML shows past the word; below 0 where memory is reserved that the driver has not given yet."""
        return self.used_bytes - self.word_bytes


class Overhead:
    """One process on one GPU."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=RUN)
        self.excess_bytes = 0
        """What it holds past its word, at least 0."""

    def add(self, sample: Sample) -> None:
        """Take in the next measurement that counts."""
        before = self._samples[-1] if self._samples else sample
        possible_bytes = sample.used_bytes - min(sample.word_bytes, before.word_bytes)
        self._samples.append(sample)
        self.excess_bytes = max(0, sample.past_bytes, min(self.excess_bytes, possible_bytes))

    @property
    def bare_bytes(self) -> int | None:
        """What NVML shows past the word, where it did not change over a run with a context; else None."""
        return self._steady([each.past_bytes for each in self._samples])

    @property
    def whole_bytes(self) -> int | None:
        """What NVML shows, where it did not change over a run with a context; else None."""
        return self._steady([each.used_bytes for each in self._samples])

    def _steady(self, values: list[int]) -> int | None:
        if len(values) < RUN or not all(each.has_context for each in self._samples):
            return None
        lowest = min(values)
        return lowest if lowest >= LEAST_CONTEXT_BYTES and max(values) - lowest <= BLOCK_BYTES else None
