"""The account of a container on a GPU: three sums of due and used time, from which `gpus` decides whether the gate
shuts.

| sum | grows by | sinks by | bounds |
| --- | --- | --- | --- |
| lag | its due of all charges | its charges | ± DEBT; its idle claim while it pauses |
| spare | its request of the time; below a lag of -OWED, REPAY of that | its charges | -DEBT, SPARE × (1 - request) |
| credit | its limit of the time | its charges | CREDIT × (1 - limit), and BURST for one GPU |

Unlike a sliding window (KubeShare's), a lag forgets nothing. Under a window and with kernels of 200 ms, a container
with request 10 beside a container with request 90 would get 18 % of the GPU: it falls below its request again as soon
as half of its last kernel has left the window.
"""

from dataclasses import dataclass
from math import inf

from hook.broker.core.shares.gates import Gate
from hook.broker.core.shares.history import History
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
)


@dataclass(eq=False, slots=True)
class Account:
    """The account of a container on a GPU.

    Attributes:
        gate: the container's gate, which covers all of its GPUs.
        request, limit: the container's terms, 0 to 1.
        floor: growth of the spare per elapsed time, 0 to 1; the container's request, but not 0.
        claim_ns: the largest lag while the container pauses.
        enough_ns: the credit at which a gate opens that shut for a spent limit.
        most_credit_ns: the largest credit.
        most_spare_ns: the largest spare.
        lag_ns, spare_ns, credit_ns: the three sums; see the module.
        wanted_ns: when the container last wanted the GPU.
        pressed_ns: when it last wanted the GPU for more than `MOMENT`. Only a container that wants the GPU in this
        sense may shut the gates of others.
        rate: its due as a part of all charges, 0 to 1; 0 unless it is active.
        is_active: the container wanted the GPU within `WINDOW_NS`.
        rests: no tick changes the account until the container wants the GPU again.
        charge_ns: the time in this tick in which the GPU ran its work.
        pause: the part of this tick in which it wanted nothing, 0 to 1.
        has_processes: the container has a process.
    """

    gate: Gate
    history: History
    request: float = 0.0
    limit: float = 1.0
    floor: float = FLOOR
    claim_ns: float = 0.0
    enough_ns: float = 0.0
    most_credit_ns: float = 0.0
    most_spare_ns: float = SPARE_NS
    lag_ns: float = 0.0
    spare_ns: float = 0.0
    credit_ns: float = 0.0
    wanted_ns: float = -inf
    pressed_ns: float = -inf
    rate: float = 0.0
    is_active: bool = False
    rests: bool = False
    charge_ns: float = 0.0
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
        charge_ns = self.charge_ns
        growth_ns = served_ns * self.rate - charge_ns
        lag_ns, excess_ns = self.lag_ns + growth_ns, 0.0
        if lag_ns < 0:  # Idle time pays off debts and makes no claims.
            lag_ns = max(min(lag_ns + idle_ns * self.rate, 0.0), -DEBT_NS)
        elif growth_ns > 0:
            most_ns = DEBT_NS if self.pause < PAUSED else self.claim_ns
            if lag_ns > most_ns:
                excess_ns = min(lag_ns - most_ns, growth_ns)
                lag_ns -= excess_ns
        self.lag_ns = lag_ns
        floor = self.floor if lag_ns > -OWED_NS else self.floor * REPAY
        spare_ns = self.spare_ns + span_ns * floor - charge_ns
        if spare_ns > self.most_spare_ns + span_ns:
            spare_ns = self.most_spare_ns + span_ns
        elif spare_ns < -DEBT_NS:
            spare_ns = -DEBT_NS
        self.spare_ns = spare_ns
        if self.limit < 1:
            grown_ns = self.limit * span_ns
            self.credit_ns = min(self.credit_ns + grown_ns - charge_ns, self.most_credit_ns + grown_ns)
        if charge_ns:
            self.history.ran_ns += charge_ns
            self.charge_ns = 0.0
        if self.pause:
            self.history.paused_ns += self.pause * span_ns
        self.pause = 1.0
        return excess_ns

    def change(self, request: float, limit: float, saved_ns: float) -> None:
        """Change the terms; the sums stay.

        Args:
            request: 0 to 1.
            limit: 0 to 1.
            saved_ns: the credit at which a gate opens again, for a limit of 0. No bound of the credit is below it.
        """
        self.request, self.limit, self.floor = request, limit, max(request, FLOOR)
        self.claim_ns = IDLE_CLAIM_NS * max(request, 2 * FLOOR) * (2 if request >= LARGE else 1)
        self.enough_ns = saved_ns * (1 - limit)
        self.most_credit_ns = max(min(CREDIT_NS * (1 - limit), BURST_NS), self.enough_ns)
        self.most_spare_ns = SPARE_NS * (1 - self.floor)
        self.rests = False

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
        return self.limit < 1 and self.credit_ns < (self.enough_ns if self.gate.is_shut else 0.0)

    @property
    def may_rest(self) -> bool:
        """Whether time alone no longer changes the account."""
        is_full = self.spare_ns >= self.most_spare_ns and (
            self.limit >= 1 or self.credit_ns >= self.most_credit_ns
        )
        return is_full and self.lag_ns >= 0 and not self.is_active and not self.gate.is_shut
