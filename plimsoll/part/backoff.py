"""Pauses between attempts: exponential, with jitter, so that many parts do not all retry at the same moment."""

import random
from typing import Final

FIRST_S: Final = 0.05
LONGEST_S: Final = 5.0
"""Short enough for a person who waits, and long enough not to flood a server that comes back."""


class Pauses:
    """Gives the pause before each next attempt. After a success, make a new object or `reset` this one."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """Seconds to wait: random between half the first pause and a bound that doubles up to the longest."""
        pause_s = random.uniform(self._first_s / 2, self._bound_s)  # noqa: S311 - jitter, no secret
        self._bound_s = min(2 * self._bound_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the first pause: the last attempt succeeded."""
        self._bound_s = self._first_s
