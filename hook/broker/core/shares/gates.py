"""The gate of a container, as the scheduler decides it. All accounts of the container name its gate, because each of
them may shut it.
"""

from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import GateState, SetGate
from plimsoll.broker.pages import GATE_STEP

_WORDS: Final = 1 << 32
"""A gate's word counts modulo this."""


@dataclass(eq=False, slots=True)
class Gate:
    """The gate of a container.

    Attributes:
        word, sharers: the numbers in its file.
        is_shut: the last tick decided to shut it.
        stood_ns: the tick at which a thread last stood here while the gate was shut.
        waited_ns: time in which a thread stood here.
        waits: the number of such times.
    """

    container: ContainerKey
    word: int
    state: GateState = GateState.METERED
    sharers: int = 0
    is_shut: bool = False
    stood_ns: int = 0
    waited_ns: int = 0
    waits: int = 0

    def note_stand(self, now_ns: int, span_ns: int) -> None:
        """Note that a thread stands at the shut gate: count it when first seen, and its time from then on."""
        if self.stood_ns == now_ns - span_ns:
            self.waited_ns += span_ns
        elif self.stood_ns < now_ns:
            self.waits += 1
        self.stood_ns = now_ns

    def show(self, state: GateState, sharers: int) -> SetGate | None:
        """Enter both values; returns the instruction to write them, or None if the file has them already."""
        self.state, word = state, next_word(self.word, state)
        if word == self.word and sharers == self.sharers:
            return None
        self.word, self.sharers = word, sharers
        return SetGate(self.container, word, sharers)


def next_word(word: int, state: GateState) -> int:
    """The gate word of this state, a step after `word`; `word` itself if it has this state already."""
    if word % GATE_STEP == state.value:
        return word
    return (word - word % GATE_STEP + GATE_STEP + state.value) % _WORDS
