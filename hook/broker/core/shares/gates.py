"""What a container's gate says, as one word that changes whenever what it says does."""

from hook.broker.core.shares.turns import GateState
from plimsoll.layout import GATE_CONTENDED, GATE_STATES, GATE_STEP

_WORD: int = 1 << 32


def next_word(word: int, state: GateState, *, is_contended: bool) -> int:
    """The word that says this, one step after `word`; `word` itself if it says so already."""
    says = state.value | (GATE_CONTENDED if is_contended else 0)
    if word % GATE_STEP == says:
        return word
    return (word - word % GATE_STEP + GATE_STEP + says) % _WORD


def renewed(word: int) -> int:
    """The same, said anew."""
    return (word + GATE_STEP) % _WORD


def state_of(word: int) -> GateState:
    """Which of the three a word says."""
    return GateState(word & GATE_STATES)
