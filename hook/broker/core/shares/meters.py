"""The work of a process on a GPU since its words were last read.

What always holds: a gain is never below 0 and never above the time since the last tick. If the words show more (the
start of a burst became known late, for example), the rest is gained at the next ticks. If more of a burst was gained
than its end then shows, later bursts gain less, as far as an end can become known late.
"""

from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.shares.correction import Correction
from hook.broker.core.shares.events import Words
from hook.broker.core.shares.settings import DEBT_NS
from plimsoll.broker.pages import SILENT_NS

WORDS: Final = 10
"""Words per GPU on a page, in the order of `pages.Work`."""

_LATE_NS: Final = int(DEBT_NS)
"""The most that is gained at later ticks: larger debts are not kept either."""


@dataclass(eq=False, slots=True)
class Meter:
    """The work of a process on a GPU.

    Attributes:
        correction: what NVML shows of the same work.
        unfinished_ns, sure_ns, sliced_ns: the sums of its words that were taken in so far; see `pages.Work`.
        ended_ns: the sum of its words about ended bursts.
        settled, launched_ns: the words of these names; see `pages.Work`.
        unfinished, sure, sliced: the gains of this tick, as parts of the tick.
        head, tail: parts of this tick: all of its work lies in the first `head` and the last `tail` of it.
        is_busy: the process has unfinished work.
        stands: a thread of it stands at the gate.
    """

    correction: Correction = field(default_factory=Correction)
    unfinished_ns: int = 0
    sure_ns: int = 0
    sliced_ns: int = 0
    ended_ns: int = 0
    settled: int = 0
    launched_ns: int = 0
    unfinished: float = 0.0
    sure: float = 0.0
    sliced: float = 0.0
    head: float = 0.0
    tail: float = 0.0
    is_busy: bool = False
    stands: bool = False

    def skip(self, words: Words, now_ns: int, slice_ns: int) -> None:
        """Take these words in without any gain."""
        self.correction.skipped_ns = now_ns
        self.settled, self.launched_ns = words[:2]
        self.ended_ns = words[3] + words[4] + words[5]
        self.unfinished_ns, self.sure_ns, self.sliced_ns = _totals(words, now_ns, slice_ns)

    def read(self, words: Words, now_ns: int, span_ns: int, slice_ns: int) -> bool:
        """Take in the gains of these words.

        Args:
            words: the words for this GPU, from a consistent page.
            now_ns: when the words were read, or shortly after.
            span_ns: the time since the last tick.
            slice_ns: see `ShareSettings.slice_ms`.

        Returns:
            Whether the process wants the GPU, or ran.
        """
        ended_ns = words[3] + words[4] + words[5]
        if ended_ns < self.ended_ns:  # Another program now runs in this process, under the same owner word.
            self.unfinished_ns = self.sure_ns = self.sliced_ns = 0
        self.ended_ns = ended_ns
        # Comparisons instead of `min` and `max`, because this runs for each process at each tick.
        unfinished_ns, sure_ns, sliced_ns = _totals(words, now_ns, slice_ns)
        gained_ns, new_sure_ns, new_sliced_ns = 0, 0, 0
        if unfinished_ns > self.unfinished_ns:
            gained_ns = unfinished_ns - self.unfinished_ns
            self.unfinished_ns = unfinished_ns
        if sure_ns > self.sure_ns:
            new_sure_ns, self.sure_ns = _gain(self.sure_ns, sure_ns, span_ns)
        if sliced_ns > self.sliced_ns:
            new_sliced_ns, self.sliced_ns = _gain(self.sliced_ns, sliced_ns, span_ns - new_sure_ns)
        elif sliced_ns < self.sliced_ns - SILENT_NS:
            self.sliced_ns = sliced_ns + SILENT_NS
        self.correction.told_ns += new_sure_ns + new_sliced_ns
        self.unfinished = gained_ns / span_ns if gained_ns < span_ns else 1.0
        self.sure, self.sliced = new_sure_ns / span_ns, new_sliced_ns / span_ns
        self._place(words, now_ns, span_ns, gained_ns, new_sure_ns + new_sliced_ns)
        is_reporting = now_ns < words[9] + SILENT_NS
        self.is_busy = is_reporting and 0 < words[1] <= now_ns
        self.stands = is_reporting and words[8] != 0
        return self.is_busy or self.stands or gained_ns > 0 or new_sure_ns > 0 or new_sliced_ns > 0

    def _place(self, words: Words, now_ns: int, span_ns: int, gained_ns: int, ran_ns: int) -> None:
        """Find where in this tick the process's work lies.

        The words show the place while they record a single burst. A burst changes the words three times: at its
        begin, when its execution is found, and at its end. So two changes cannot end two bursts, or begin two.
        """
        settled, launched_ns = words[0], words[1]
        is_one = 0 <= settled - self.settled <= 2
        head_ns, tail_ns = span_ns, 0
        if gained_ns == 0:
            head_ns = 0
        elif is_one and not self.launched_ns and launched_ns > now_ns - span_ns:
            head_ns, tail_ns = 0, gained_ns
        elif is_one and self.launched_ns and not launched_ns:
            head_ns = min(gained_ns, span_ns)
        if ran_ns > head_ns + tail_ns:  # It ran earlier, and only now became known.
            head_ns = span_ns
        self.head, self.tail = head_ns / span_ns, tail_ns / span_ns
        self.settled, self.launched_ns = settled, launched_ns


def _gain(taken_ns: int, total_ns: int, most_ns: int) -> tuple[int, int]:
    """The gain of this tick from a sum that has grown, and the part of the sum that is then taken in."""
    new_ns = total_ns - taken_ns
    if new_ns <= most_ns:
        return new_ns, total_ns
    return most_ns, max(taken_ns + most_ns, total_ns - _LATE_NS)


def _totals(words: Words, now_ns: int, slice_ns: int) -> tuple[int, int, int]:
    """The length of all bursts up to now; the part surely executed; the part sliced with other processes."""
    launched_ns, executed_ns, unfinished_ns, sure_ns, sliced_ns = words[1:6]
    now_ns = min(now_ns, words[9] + SILENT_NS)
    if not 0 < launched_ns < now_ns:
        return unfinished_ns, sure_ns, sliced_ns
    unfinished_ns += now_ns - launched_ns
    if executed_ns:
        executed = now_ns - max(executed_ns, launched_ns)
        if executed > slice_ns:
            return unfinished_ns, sure_ns + slice_ns, sliced_ns + executed - slice_ns
        if executed > 0:
            return unfinished_ns, sure_ns + executed, sliced_ns
    return unfinished_ns, sure_ns, sliced_ns


def ended(words: Words, now_ns: int, slice_ns: int) -> Words:
    """The same words, as if all unfinished work had ended now."""
    page: list[int] = []
    for place in range(0, len(words), WORDS):
        totals = _totals(words[place : place + WORDS], now_ns, slice_ns)
        page += [words[place], 0, 0, *totals, words[place + 6], 0, 0, 0]
    return tuple(page)
