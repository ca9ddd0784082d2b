"""The account of a container on a GPU: three sums of due and used time, from which `gpus` decides whether the gate
shuts. All accounts of a container name its gate, because each of them may shut it.

| sum | grows by | sinks by | bounds |
| --- | --- | --- | --- |
| lag | its due of all charges | its charges | ± DEBT; its idle claim while it pauses |
| spare | its request of the time; below a lag of -OWED, REPAY of that | its charges | -DEBT, SPARE × (1 - request) |
| credit | its limit of the time | its charges | CREDIT × (1 - limit), and BURST for one GPU |

Unlike a sliding window (KubeShare's), a lag forgets nothing. Under a window and with kernels of 200 ms, a container
with request 10 beside a container with request 90 would get 18 % of the GPU: it falls below its request again as soon
as half of its last kernel has left the window.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.claims import Claim
from hook.broker.core.shares.events import GateState, SetGate
from hook.broker.core.shares.settings import (
    BURST_NS,
    CREDIT_NS,
    DEBT_NS,
    FLOOR,
    IDLE_CLAIM_NS,
    LARGE,
    OWED_NS,
    PAUSED,
    REPAY,
    SPARE_NS,
    URGENT_NS,
    S,
)
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """The terms of an account, and the bounds of its sums that follow from them.

    Attributes:
        request, limit: 0 to 1.
        floor: growth of the spare per elapsed time, 0 to 1; the request, but not 0.
        claim_ns: the largest lag while the container pauses.
        enough_ns: the credit at which a gate opens that shut for a spent limit.
        most_credit_ns: the largest credit.
        most_spare_ns: the largest spare.
    """

    request: float
    limit: float
    floor: float
    claim_ns: float
    enough_ns: float
    most_credit_ns: float
    most_spare_ns: float

    @classmethod
    def of(cls, request: float, limit: float, saved_ns: float) -> "Bounds":
        """The bounds of these terms.

        Args:
            request: 0 to 1.
            limit: 0 to 1.
            saved_ns: the credit at which a gate opens again, for a limit of 0. No bound of the credit is below it.
        """
        floor, enough_ns = max(request, FLOOR), saved_ns * (1 - limit)
        return cls(
            request=request,
            limit=limit,
            floor=floor,
            claim_ns=IDLE_CLAIM_NS * max(request, 2 * FLOOR) * (2 if request >= LARGE else 1),
            enough_ns=enough_ns,
            most_credit_ns=max(min(CREDIT_NS * (1 - limit), BURST_NS), enough_ns),
            most_spare_ns=SPARE_NS * (1 - floor),
        )


@dataclass(eq=False, slots=True)
class Account:
    """The account of a container on a GPU.

    Attributes:
        gate: the container's gate, which covers all of its GPUs.
        bounds: see `Bounds`.
        lag_ns, spare_ns, credit_ns: the three sums; see the module.
        claim: what a lag that it saved up while it paused is worth.
        wanted_ns: when the container last wanted the GPU.
        presses: it wanted the GPU for more than `MOMENT` of this tick. Only a container that wants the GPU in this
            sense may shut the gates of others.
        wants_all: it paused for at most `PAUSED` of the last tick. Then its claim counts, whatever it is worth.
        may_claim: others may be held for its claim since the last tick.
        rate: its due as a part of all charges, 0 to 1; 0 unless it is active.
        is_active: the container wanted the GPU within `WINDOW_NS`.
        rests: no tick changes the account until the container wants the GPU again.
        charge_ns: the time in this tick in which the GPU ran its work.
        first: the part of this tick in which its bursts had their first slices.
        pause: the part of this tick in which it wanted nothing, 0 to 1.
        has_processes: the container has a process.
    """

    gate: Gate
    history: History
    bounds: Bounds
    lag_ns: float = 0.0
    spare_ns: float = 0.0
    credit_ns: float = 0.0
    claim: Claim = field(default_factory=Claim)
    wanted_ns: float = -inf
    presses: bool = False
    wants_all: bool = False
    may_claim: bool = False
    rate: float = 0.0
    is_active: bool = False
    rests: bool = False
    charge_ns: float = 0.0
    first: float = 0.0
    pause: float = 1.0
    has_processes: bool = False

    def settle(self, served_ns: float, idle_ns: float, span_ns: int) -> float:
        """Enter a tick.

        Args:
            served_ns: the charges of all accounts of the GPU together.
            idle_ns: the time in which the GPU ran nothing.
            span_ns: the length of the tick.

        Returns:
            The growth past the largest claim of a pausing container. The accounts that are ahead are forgiven as
            much.
        """
        # Comparisons instead of `min` and `max`, because this runs for each account at each tick.
        charge_ns, bounds = self.charge_ns, self.bounds
        growth_ns = served_ns * self.rate - charge_ns
        lag_ns, excess_ns = self.lag_ns + growth_ns, 0.0
        if lag_ns < 0:  # Idle time pays off debts and makes no claims.
            lag_ns = max(min(lag_ns + idle_ns * self.rate, 0.0), -DEBT_NS)
        elif growth_ns > 0:
            most_ns = DEBT_NS if self.pause < PAUSED else bounds.claim_ns
            if lag_ns > most_ns:
                excess_ns = min(lag_ns - most_ns, growth_ns)
                lag_ns -= excess_ns
        self.lag_ns = lag_ns
        floor = bounds.floor if lag_ns > -OWED_NS else bounds.floor * REPAY
        spare_ns = self.spare_ns + span_ns * floor - charge_ns
        if spare_ns > bounds.most_spare_ns + span_ns:
            spare_ns = bounds.most_spare_ns + span_ns
        elif spare_ns < -DEBT_NS:
            spare_ns = -DEBT_NS
        self.spare_ns = spare_ns
        if bounds.limit < 1:
            grown_ns = bounds.limit * span_ns
            self.credit_ns = min(self.credit_ns + grown_ns - charge_ns, bounds.most_credit_ns + grown_ns)
        if self.is_active:
            self.claim.weigh(charge_ns, self.first * span_ns, bounds.floor, span_ns)
        self.wants_all = self.pause < PAUSED
        self.may_claim = self.presses and (self.wants_all or self.claim.counts)
        self.presses, self.first = False, 0.0
        if charge_ns:
            self.history.ran_ns += charge_ns
            self.charge_ns = 0.0
        if self.pause:
            self.history.paused_ns += self.pause * span_ns
        self.pause = 1.0
        return excess_ns

    def must_be_shut(self, claim_ns: float, quantum_ns: float) -> bool:
        """Whether the container's gate must be shut for the sake of this GPU.

        Args:
            claim_ns: the largest lag of another container that is behind and wants the GPU; 0 for none.
            quantum_ns: see `ShareSettings.quantum_ms`.
        """
        if self.is_spent:
            return True
        if not claim_ns or self.spare_ns > 0:
            return False
        # If two are behind, only the larger claim counts. Otherwise each container would wait for the other for ever.
        is_urgent = claim_ns - max(self.lag_ns, 0.0) > URGENT_NS
        return is_urgent or self.lag_ns < -quantum_ns / (8 if self.gate.is_shut else 2)

    @property
    def is_spent(self) -> bool:
        """Whether the limit alone holds the container now."""
        return self.bounds.limit < 1 and self.credit_ns < (
            self.bounds.enough_ns if self.gate.is_shut else 0.0
        )

    @property
    def may_rest(self) -> bool:
        """Whether time alone no longer changes the account."""
        bounds = self.bounds
        is_full = self.spare_ns >= bounds.most_spare_ns and (
            bounds.limit >= 1 or self.credit_ns >= bounds.most_credit_ns
        )
        return is_full and self.lag_ns >= 0 and not self.is_active and not self.gate.is_shut
