"""The latest seconds of an account: its compute time, and how much it had of it in a span of wanting."""

from dataclasses import dataclass
from typing import Final

from hook.broker.core.shares.settings import PAUSED, S

UNMET_PCT: Final = 2.0
"""A container is announced from this many points below its request on: shares are accurate to this."""


@dataclass(eq=False, slots=True)
class History:
    """The compute time of an account on its GPU.

    Attributes:
        ran_ns: time that the GPU ran its work, since its container joined.
        paused_ns: time of all ticks in which it wanted nothing, since its container joined.
        past: two moments about a second apart, each with `ran_ns` at that moment.
        span: the start of the current span of wanting, with `ran_ns` and `paused_ns` then; None while the account
            wants nothing.
    """

    past: tuple[tuple[int, float], tuple[int, float]]
    ran_ns: float = 0.0
    paused_ns: float = 0.0
    span: tuple[int, float, float] | None = None

    def begin_span(self, now_ns: int) -> None:
        """Begin a span: the account wants the GPU from now on."""
        self.span = (now_ns, self.ran_ns, self.paused_ns)

    def remember(self, now_ns: int) -> None:
        """Note the present moment, if a second has passed since the last one."""
        if now_ns - self.past[1][0] >= S:
            self.past = (self.past[1], (now_ns, self.ran_ns))

    def used_pct(self, now_ns: int) -> float:
        """Compute time of the latest one to two seconds, in percent."""
        since_ns, ran_ns = self.past[0]
        return 100 * (self.ran_ns - ran_ns) / (now_ns - since_ns) if now_ns > since_ns else 0.0

    def short_pct(self, request_pct: int, now_ns: int) -> float | None:
        """Compute time of the span that ends now, in percent; None if that met the request or the account paused."""
        if self.span is None:
            return None
        since_ns, ran_ns, paused_ns = self.span
        span_ns = now_ns - since_ns
        had, paused = (self.ran_ns - ran_ns) / span_ns, (self.paused_ns - paused_ns) / span_ns
        is_short = paused <= PAUSED and 100 * (had + paused) < request_pct - UNMET_PCT
        return 100 * had if is_short else None
