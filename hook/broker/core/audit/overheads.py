"""The bytes that a process holds past its words, and the apparent cost of its contexts, from measurements that count.

A measurement counts where the process's words did not change between the moment before NVML was asked and the reading
of the words (see `audit`). So a single measurement proves the bytes that it shows past the word.

What always holds: a measurement that shows less lowers the excess at once, but never below NVML's figure less the
lower of two words: the word now, and the word at the measurement before. A program that fills its line reserves bytes
in its word before the driver gives them, and has freed nothing.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from plimsoll.quantity import MIB

RUN: Final = 3
"""Measurements over which memory must stay the same before a context's cost is learned from it. NVML shows a part of
a context that is just ending, and a learned cost only falls."""

BLOCK_BYTES: Final = 2 * MIB
"""NVIDIA's driver gives out memory in blocks of this size. Smaller differences do not count."""

LEAST_CONTEXT_BYTES: Final = MIB
"""No driver's context costs less. Less means that the process has counted the context already."""


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A process on a GPU at a measurement that counts.

    Attributes:
        used_bytes: NVML's figure.
        word_bytes: the process's own word.
        has_context: the process had reported its context, so that the figure holds the whole context.
        is_awaited: the process held still for this measurement, so that its context was not just ending.
    """

    used_bytes: int
    word_bytes: int
    has_context: bool = False
    is_awaited: bool = False

    @property
    def past_bytes(self) -> int:
        """NVML's figure less the word; below 0 where the driver has not given reserved memory yet."""
        return self.used_bytes - self.word_bytes


class Overhead:
    """The overhead of a process on a GPU."""

    def __init__(self) -> None:
        self._samples: deque[MeasuredUse] = deque(maxlen=RUN)
        self.excess_bytes = 0
        """Bytes that the process holds past its word, at least 0."""
        self.measured_ns = 0
        """The machine's clock when the latest measurement that counts began; 0 for none."""

    def add(self, sample: MeasuredUse) -> None:
        """Take in the next measurement that counts."""
        before = self._samples[-1] if self._samples else sample
        possible_bytes = sample.used_bytes - min(sample.word_bytes, before.word_bytes)
        self._samples.append(sample)
        self.excess_bytes = max(0, sample.past_bytes, min(self.excess_bytes, possible_bytes))

    @property
    def bare_bytes(self) -> int | None:
        """NVML's figure less the word with a context, if the process held still for it; else None.

        A process that does not hold still must show the same over `RUN` measurements.
        """
        latest = self._samples[-1] if self._samples else None
        if latest is not None and latest.is_awaited and latest.has_context:
            return latest.past_bytes if latest.past_bytes >= LEAST_CONTEXT_BYTES else None
        return self._steady([each.past_bytes for each in self._samples])

    @property
    def whole_bytes(self) -> int | None:
        """NVML's figure, if it did not change over `RUN` measurements with a context; else None."""
        return self._steady([each.used_bytes for each in self._samples])

    def _steady(self, values: list[int]) -> int | None:
        if len(values) < RUN or not all(each.has_context for each in self._samples):
            return None
        lowest = min(values)
        return lowest if lowest >= LEAST_CONTEXT_BYTES and max(values) - lowest <= BLOCK_BYTES else None
