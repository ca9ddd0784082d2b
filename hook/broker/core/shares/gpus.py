"""A GPU at a tick: its time is charged, becomes due, and decides which gates shut.

The dues divide the GPU's time as if the time could be divided at will.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from hook.broker.core.shares.accounts import Account, Gate
from hook.broker.core.shares.charging import charge
from hook.broker.core.shares.events import GateState
from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.settings import FLOOR, MOMENT, MS, WINDOW_NS
from plimsoll.ids import GpuUuid

ERROR_NS: Final = 20.0 * MS
"""The charges of a tick are means, so they may exceed its work by work that earlier ticks did not charge. This bounds
that work to a few ticks."""


@dataclass(eq=False, slots=True)
class SharedGpu:
    """The containers that share a GPU.

    Attributes:
        accounts: the accounts in the order in which their containers joined.
        live: the accounts that do not rest, in the same order.
        readings: this tick's readings of processes that want the GPU or ran.
        crowd: the number of processes that lately had work at once.
        sharers: `crowd` as shown on the gates: it grows at once, and sinks once a second.
        uncharged_ns: past time with work that was not charged yet and still may be.
        utilised_ns: when NVML was last asked.
        sole: the account that wanted the GPU last.
        others_ns: when an account other than `sole` last wanted the GPU.
        trials: the accounts with claims on trial, for which gates are shut since the last tick.
        populated: the number of containers that have processes.
        are_rates_stale: the rates must be computed again.
        is_live_stale: `live` must be computed again.
    """

    uuid: GpuUuid
    accounts: list[Account] = field(default_factory=list)
    live: list[Account] = field(default_factory=list)
    readings: list[tuple[Account, Meter]] = field(default_factory=list)
    crowd: float = 1.0
    sharers: int = 1
    uncharged_ns: float = 0.0
    utilised_ns: int = 0
    sole: Account | None = None
    others_ns: float = -inf
    trials: list[Account] = field(default_factory=list)
    populated: int = 0
    are_rates_stale: bool = True
    is_live_stale: bool = True

    def note(self, account: Account, meter: Meter, now_ns: int) -> None:
        """Take in the reading of a process that wants this GPU, or ran on it."""
        self.readings.append((account, meter))
        account.first += meter.sure
        if account.rests:
            account.rests, self.is_live_stale = False, True
        if not (meter.is_busy or meter.stands or meter.unfinished):
            return
        account.pause *= 0.0 if meter.stands else 1 - meter.unfinished
        account.wanted_ns = now_ns
        if meter.is_busy or meter.stands or meter.unfinished > MOMENT:
            account.presses = True
        if not account.is_active:
            account.is_active = self.are_rates_stale = True
            account.history.begin_span(now_ns)
        if account is not self.sole:
            self.take_over(account, now_ns)

    def take_over(self, account: Account, now_ns: int) -> None:
        """Make this account `sole`, because it wants the GPU.

        While the gate of the former `sole` is open, the broker cannot see when that account last wanted the GPU.
        """
        if self.sole is not None:
            is_open = self.sole.gate.state is GateState.OPEN
            self.others_ns = now_ns if is_open else self.sole.wanted_ns
        self.sole = account

    def populate(self, account: Account, *, has_processes: bool) -> None:
        """Note that an account's container has its first process, or none any more."""
        self.populated += has_processes - account.has_processes
        account.has_processes = has_processes

    def has_rivals(self, account: Account) -> bool:
        """Whether another container has processes on this GPU."""
        return self.populated > account.has_processes

    def may_open(self, account: Account, now_ns: int, relax_ns: float) -> bool:
        """Whether no other container wants this GPU. If no container wants it, only `sole` may have an open gate."""
        if self.has_rivals(account):
            return self.sole is account and now_ns - self.others_ns > relax_ns
        if account.has_processes:
            self.sole = account
        return True

    def remove(self, account: Account) -> None:
        """Remove the account of a container that leaves."""
        self.accounts.remove(account)
        self.populated -= account.has_processes
        self.readings = [reading for reading in self.readings if reading[0] is not account]
        self.trials = [other for other in self.trials if other is not account]
        self.sole = None if self.sole is account else self.sole
        self.are_rates_stale = self.is_live_stale = True

    @property
    def is_at_rest(self) -> bool:
        """Whether a tick would change nothing."""
        return not self.live and not self.is_live_stale and not self.readings and self.crowd <= 1

    def tick(self, now_ns: int, span_ns: int) -> None:
        """Charge the executed work, and enter the dues."""
        if self.is_live_stale:
            self.live, self.is_live_stale = [a for a in self.accounts if not a.rests], False
        meters = [meter for _, meter in self.readings]
        wanting = sum([meter.is_busy or meter.unfinished > 0 for meter in meters])
        self.crowd = max(wanting, self.crowd - span_ns / WINDOW_NS, 1.0)
        self.uncharged_ns = min(self.uncharged_ns, ERROR_NS) + span_ns * _worked(meters)
        charges = charge(meters, span_ns, self.uncharged_ns)
        self.uncharged_ns = max(self.uncharged_ns - sum(charges), 0.0)
        for (account, meter), ran_ns in zip(self.readings, charges, strict=True):
            meter.correction.ran_ns += ran_ns
            account.charge_ns += ran_ns * meter.correction.factor
        self.readings.clear()
        self._divide(now_ns)
        served_ns = sum([account.charge_ns for account in self.live])
        idle_ns = max(span_ns - served_ns, 0.0)
        for account in self.trials:
            account.claim.cost_ns = idle_ns
        for account in self.live:
            excess_ns = account.settle(served_ns, idle_ns, span_ns)
            if excess_ns > 0:
                self._forgive(excess_ns)

    def gates_to_shut(self, quantum_ns: float) -> list[Gate]:
        """The gates that must be shut."""
        behind_ns = quantum_ns / 4
        claims = [
            (a.lag_ns, n)
            for n, a in enumerate(self.live)
            # A container that its own limit holds would gain nothing from the gates of others.
            if a.lag_ns > behind_ns and a.may_claim and not a.is_spent
        ]
        first_ns, first = max(claims, default=(0.0, -1))
        second_ns = max((lag for lag, n in claims if n != first), default=0.0)
        gates, held = [], []
        for n, account in enumerate(self.live):
            if account.spare_ns > 0 and account.bounds.limit == 1:
                continue  # Neither sum can shut its gate.
            if account.must_be_shut(second_ns if n == first else first_ns, quantum_ns):
                gates.append(account.gate)
                if not account.is_spent:
                    held.append(account)
        claimants = [self.live[n] for _, n in claims]
        self.trials = [a for a in claimants if not a.wants_all and any(other is not a for other in held)]
        return gates

    def _divide(self, now_ns: int) -> None:
        """Compute the dues again if the set of active accounts has changed."""
        for account in self.live:
            if account.is_active:
                if now_ns - account.wanted_ns > WINDOW_NS:
                    account.is_active, account.rate, self.are_rates_stale = False, 0.0, True
            elif account.may_rest:
                account.rests = self.is_live_stale = True
        if self.are_rates_stale:
            active = [account for account in self.live if account.is_active]
            for account, rate in zip(
                active, dues([(a.bounds.request, a.bounds.limit) for a in active]), strict=True
            ):
                account.rate = rate
            self.are_rates_stale = False

    def _forgive(self, excess_ns: float) -> None:
        """Reduce the debts of the accounts that are ahead by `excess_ns` together, in proportion."""
        owed_ns = -sum([a.lag_ns for a in self.live if a.lag_ns < 0])
        if owed_ns > 0:
            left = 1 - min(excess_ns, owed_ns) / owed_ns
            for account in self.live:
                if account.lag_ns < 0:
                    account.lag_ns *= left


def _worked(meters: Iterable[Meter]) -> float:
    """The most of this tick in which the GPU can have had work, 0 to 1.

    A container's processes begin and end together, as its gate opens and shuts.
    """
    head = tail = 0.0
    for meter in meters:
        head, tail = max(head, meter.head), max(tail, meter.tail)
    return min(head + tail, 1.0)


def dues(bounds: Sequence[tuple[float, float]]) -> list[float]:
    """Each container's due as a part of all charges, by its request and limit (0 to 1); the sum is 1.

    All dues that no bound holds are equal. KubeShare's three steps (Yeh et al., HPDC 2020, §4.5) give the same when
    their quota goes to 0. No container passes its limit (step 1). Every container gets its request first (step 2).
    The rest goes to the container that uses least, so that all containers between their bounds end at the same level
    (step 3).
    """
    bounds = [(max(min(request, limit), FLOOR), limit) for request, limit in bounds]
    level = _level(bounds)
    rates = [min(max(level, least), most) for least, most in bounds]
    total = sum(rates)
    return [rate / total for rate in rates]


def _level(bounds: Sequence[tuple[float, float]]) -> float:
    """Raise the level from bend to bend until all dues are 1 together; the sum grows with the number that rise."""
    bends = sorted([(least, 1) for least, _ in bounds] + [(most, -1) for _, most in bounds])
    reached, rising, level = sum(least for least, _ in bounds), 0, 0.0
    for bend, change in bends:
        gain = rising * (bend - level)
        if reached + gain >= 1:
            break
        reached, level, rising = reached + gain, bend, rising + change
    return level + (1 - reached) / rising if rising else level
