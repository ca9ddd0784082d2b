"""What each container is behind its due on one GPU, and what its limit still allows it.

The due is that of a fluid reference in which all who are active run at once, each at its rate (`rates.water_level`).
Whenever somebody used the GPU for a while, every active one's due grows by its part of that while, and the lag of
whoever used it shrinks by all of it. So the lags on a GPU always sum to 0, and nobody's grows while nobody uses it.

This deviates from KubeShare's sliding window on purpose. A window forgets: with kernels of 200 ms, a container
with request 10 beside one with 90 gets 18 % of the GPU, as it is below its request again as soon as half of its last
kernel has slid out. An account does not: what was used too much stays owed, however long it takes.

A turn that its holder hardly used (`yielding.SLACK`) counts as used, as in KubeShare, where holding the token is use:
else one with short kernels and pauses would take the turns of those who could use them.

What is not forgotten must be bounded the other way: a container that idles keeps a claim to its request of one window
and no more, and one without a process of which anything was ever heard has none; one on several GPUs, kept from one
of them by another, keeps no more than that of the one beyond the other; one that mostly pauses, kept waiting each
time it comes, keeps what it may yet use (`gaps.waive`).
"""

from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.shares.rates import water_level

FLOOR: Final = 0.01
"""What all containers on a GPU that were promised nothing get together at least, so that nobody stops for ever. Where
all is promised, it is taken from everybody in proportion: a request of 70 becomes 69.3."""


ROUNDING: Final = 1e-9
"""Rates that differ by less are the same."""


@dataclass(eq=False, slots=True)
class Account:
    """One container's on one GPU.

    Attributes:
        request, limit: its terms, as parts of 1.
        claim_ns: how much lag it may keep while it does not use what it could.
        lag_ns: how far it is behind its due; below 0 what it had too much.
        is_demanding: it has work for the GPU.
        is_present: it has a process that was heard of: what was never there has nothing to claim.
        plain: its rate if this GPU were its only one.
        siblings: the same container's accounts on all its GPUs, this one included.
        part: of what is used now, so much becomes its due.
    """

    request: float
    limit: float
    claim_ns: float
    ledger: "Ledger"
    lag_ns: float = 0.0
    is_demanding: bool = False
    is_present: bool = False
    plain: float = 0.0
    part: float = 0.0
    siblings: "tuple[Account, ...]" = ()

    @property
    def is_active(self) -> bool:
        """Whether its due grows: not of one that idles, or cannot come here, and has its claim already."""
        if not self.is_demanding:
            return self.is_present and self.lag_ns < self.claim_ns
        if len(self.siblings) < 2:
            return True
        return self.lag_ns < min(account.lag_ns for account in self.siblings) + self.claim_ns

    def set_demand(self, *, is_demanding: bool) -> None:
        """It has work, or none any more."""
        if is_demanding != self.is_demanding:
            self.is_demanding = is_demanding
            self.ledger.is_stale = True

    def set_presence(self, *, is_present: bool) -> None:
        """It has processes, or none any more."""
        if is_present != self.is_present:
            self.is_present = is_present
            self.ledger.is_stale = True


@dataclass(eq=False, slots=True)
class Ledger:
    """All accounts of one GPU.

    Attributes:
        is_stale: somebody's demand or terms changed, so the parts are to be worked out again.
        used_ns: what all used together.
        has_gangs: there is a container of several GPUs, whose part also depends on the others.
    """

    accounts: list[Account] = field(default_factory=list)
    is_stale: bool = True
    has_gangs: bool = False
    used_ns: float = 0.0
    _active: list[Account] = field(default_factory=list)

    def add(self, account: Account) -> None:
        """Somebody comes, with no lag."""
        self.accounts.append(account)
        self.is_stale = True

    def remove(self, account: Account) -> None:
        """Somebody goes; the rest share what it was owed or owes."""
        self.accounts.remove(account)
        for other in self.accounts:
            other.lag_ns += account.lag_ns / len(self.accounts)
        self.is_stale = True

    def charge(self, account: Account, used_ns: float) -> None:
        """A container used the GPU for so long; below 0 corrects what it was charged before."""
        self.used_ns += used_ns
        self.hold_against(account, used_ns)

    def hold_against(self, account: Account, used_ns: float) -> None:
        """As if a container had used the GPU for so long: it kept it from others who could have."""
        self.divide()
        if not self._active:
            return  # Nobody misses it.
        owed_ns = 0.0
        for other in self._active:
            more_ns = other.part * used_ns
            if not other.is_demanding and other.lag_ns + more_ns >= other.claim_ns:
                more_ns = other.claim_ns - other.lag_ns
                self.is_stale = True
            other.lag_ns += more_ns
            owed_ns += more_ns
        account.lag_ns -= owed_ns
        if account.part == 0.0 or self.has_gangs:
            self.is_stale = (
                True  # A lag sank, so its due may grow again; or another GPU's lags bind this one's.
            )

    def cut(self, account: Account, most_ns: float) -> None:
        """It is owed no more than this: what is past it lessens all debts, each in proportion."""
        past_ns = account.lag_ns - most_ns
        if past_ns <= 0:
            return
        debtors = [other for other in self.accounts if other.lag_ns < 0]
        debts_ns = sum(other.lag_ns for other in debtors)
        account.lag_ns -= past_ns
        for other in debtors:
            other.lag_ns += past_ns * other.lag_ns / debts_ns
        self.is_stale = True

    def make_up(self, account: Account, others_used_ns: float, gained_ns: float) -> None:
        """It turns out that it had work while others used the GPU for so long: its due grew, and theirs did not.

        This lessens its debt, but gives no claim past that of one that idled: they did as they were let, however long
        it took, and who says what it pleases of its own work must not stop them for as long.

        Args:
            account: whose; it counts as one that has work.
            others_used_ns: in which it was taken to idle.
            gained_ns: what became its due as one that idles.
        """
        self.divide()
        past_claim_ns = max(0.0, account.lag_ns - account.claim_ns)
        due_ns = min(
            account.part * others_used_ns - gained_ns - past_claim_ns, account.claim_ns - account.lag_ns
        )
        others = [other for other in self.accounts if other is not account]
        for other in others:
            other.lag_ns -= due_ns / len(others)
        account.lag_ns += due_ns if others else 0.0
        self.is_stale = True

    def divide(self) -> None:
        """Work the parts out again if they are stale."""
        if not self.is_stale:
            return
        self.is_stale = False
        self._active = [account for account in self.accounts if account.is_active]
        for account in self.accounts:
            account.part = 0.0
        self.has_gangs = any(len(account.siblings) > 1 for account in self.accounts)
        if self.has_gangs:
            self._divide_plainly()
        rates = self._rates([_least_plain(account) for account in self._active])
        total = sum(rates)
        for account, rate in zip(self._active, rates, strict=True):
            account.part = rate / total

    def _divide_plainly(self) -> None:
        """As if this were each container's only GPU; the least of these is what one of several can use of any."""
        for account, rate in zip(self._active, self._rates([1.0] * len(self._active)), strict=True):
            if abs(rate - account.plain) > ROUNDING:
                account.plain = rate
                for sibling in account.siblings:
                    sibling.ledger.is_stale |= sibling is not account

    def _rates(self, most: list[float]) -> list[float]:
        """Who idles keeps its request; the rest is for those who have work."""
        nothing = sum(not account.request for account in self.accounts)
        bounds = []
        for account, most_here in zip(self._active, most, strict=True):
            least = account.request or FLOOR / nothing
            top = max(least, min(account.limit, most_here)) if account.is_demanding else least
            bounds.append((least, top))
        return water_level(bounds, 1.0)


def _least_plain(account: Account) -> float:
    """What the fullest of its GPUs leaves it; one that was never worked out does not bind."""
    if len(account.siblings) < 2:
        return 1.0
    return min(sibling.plain or 1.0 for sibling in account.siblings)


@dataclass(eq=False, slots=True)
class Credit:
    """How long a container with a limit below 100 may still run.

    It grows with the time that passes, times the limit, up to one quota; what is used is taken from it, without
    bound, so that a long kernel is paid for in full. So over any time, use ≤ limit × time + one quota + what could
    not be stopped.
    """

    limit: float
    credit_ns: float
    at_ns: int
    is_spent: bool = False

    def settle(self, now_ns: int, used_ns: float, most_ns: float, enough_ns: float) -> None:
        """Time passed, and it ran for some of it.

        Args:
            now_ns: now.
            used_ns: for so long; below 0 gives back.
            most_ns: it never grows past this; a quota at most.
            enough_ns: once spent, it must grow until it lasts for a run of this length.
        """
        grown_ns = self.limit * (now_ns - self.at_ns)
        self.credit_ns = min(most_ns, self.credit_ns + grown_ns - used_ns)
        self.at_ns = now_ns
        if self.credit_ns <= 0:
            self.is_spent = True
        elif self.credit_ns >= enough_ns * (1 - self.limit):
            self.is_spent = False

    def lasts_ns(self, unknown_ns: float) -> float:
        """For how long it may run from now, if it ran for so long that was not charged yet."""
        return (self.credit_ns - unknown_ns) / (1 - self.limit)

    def recovers_ns(self, enough_ns: float) -> float:
        """After how long without running it may again."""
        return (enough_ns * (1 - self.limit) - self.credit_ns) / self.limit
