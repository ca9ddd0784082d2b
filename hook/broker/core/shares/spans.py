"""The latest seconds of an account: its compute time, and spans in which it did not get its request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hook.broker.core.shares.events import Unmet
from hook.broker.core.shares.settings import PAUSED, S

if TYPE_CHECKING:
    from hook.broker.core.shares.clients import Client

UNMET_PCT: Final = 2.0
"""A container is announced from this many points below its request on: shares are accurate to this."""


@dataclass(eq=False, slots=True)
class Tally:
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
        had, paused = (
            (self.ran_ns - ran_ns) / (now_ns - since_ns),
            (self.paused_ns - paused_ns) / (now_ns - since_ns),
        )
        is_short = paused <= PAUSED and 100 * (had + paused) < request_pct - UNMET_PCT
        return 100 * had if is_short else None


def unmet(client: "Client", span_ns: float, behind_ns: float, now_ns: int) -> Unmet | None:
    """The finding for the GPU with the least compute time, if a span ends there with the request unmet."""
    found = []
    for gpu, account in zip(client.gpus, client.accounts, strict=True):
        since_ns = account.tally.span[0] if account.is_active and account.tally.span else now_ns
        if now_ns - since_ns >= span_ns:
            had_pct = account.tally.short_pct(client.terms.request_pct, now_ns)
            if had_pct is not None and account.lag_ns > behind_ns:
                found.append((had_pct, gpu.uuid, (now_ns - since_ns) / S))
            account.tally.begin_span(now_ns)
    if not found:
        return None
    had_pct, gpu_uuid, span_s = min(found)
    return Unmet(client.key, gpu_uuid, had_pct, client.terms.request_pct, span_s)
