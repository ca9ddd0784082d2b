"""A container's gate state as one word, which changes whenever the state does."""

from hook.broker.core.shares.events import GateState
from plimsoll.layout import GATE_STEP

_WORD: int = 1 << 32


def next_word(word: int, state: GateState) -> int:
    """The word of this state, one step after `word`; `word` itself if its state is this one."""
    if word % GATE_STEP == state.value:
        return word
    return (word - word % GATE_STEP + GATE_STEP + state.value) % _WORD
