"""Who shares GPUs: containers, their processes, and the GPUs themselves."""

from dataclasses import dataclass, field
from enum import Enum, auto

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares.accounts import Account, Credit, Ledger
from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.quota import Quota
from hook.broker.core.shares.turns import Terms
from plimsoll.names import GpuUuid


class Phase(Enum):
    """Where a container stands with the tokens of its GPUs."""

    IDLE = auto()
    """Without; it may wait for them."""

    HOLDING = auto()
    """It has them all."""

    DRAINING = auto()
    """They were taken from it, but its work is not done."""


@dataclass(eq=False, slots=True)
class Member:
    """One process, as it last reported.

    Attributes:
        wants: a launch of it waits.
        is_idle: it has nothing to do, and said so of the gate as it is now.
        is_straggling: its work outlasted the grace, and is not known to be done; it is not waited for again.
    """

    wants: bool = False
    is_idle: bool = False
    is_straggling: bool = False


@dataclass(eq=False, slots=True)
class Gpu:
    """One GPU and its token.

    Attributes:
        holder: who has the token, or has not ended its work.
        ended_ns: when the last holder's work ended, as it says itself; 0 where it did not.
    """

    uuid: GpuUuid
    quota: Quota
    ledger: Ledger = field(default_factory=Ledger)
    clients: "list[Client]" = field(default_factory=list)
    holder: "Client | None" = None
    ended_ns: int = 0


@dataclass(eq=False, slots=True)
class Tally:
    """Sums since a container joined, for metrics; nanoseconds. None of them ever sinks.

    Attributes:
        counted_ns: when use was last counted.
    """

    used_ns: int = 0
    waited_ns: int = 0
    drain_ns: int = 0
    overrun_ns: int = 0
    waits: int = 0
    grants: int = 0
    counted_ns: int = 0
    _exact_overrun_ns: int = 0

    def count(self, used_ns: int, overrun_ns: int, now_ns: int) -> None:
        """It used so much in all, and so much more without a token.

        Below 0 it gives back what was taken too much: that shows as no growth for a while, as whoever reads a counter
        that sinks takes it for one that began anew.
        """
        self.used_ns = max(self.used_ns, used_ns)
        self._exact_overrun_ns += overrun_ns
        self.overrun_ns = max(self.overrun_ns, self._exact_overrun_ns)
        self.counted_ns = now_ns


@dataclass(frozen=True, slots=True)
class Astray:
    """How things stood when others went on although a container's work was not done.

    Attributes:
        used_ns: what it was taken to have used.
        ledgers_ns: what all had used of each of its GPUs.
        lags_ns: how far it was behind its due on each.
    """

    now_ns: int
    used_ns: int
    ledgers_ns: tuple[float, ...]
    lags_ns: tuple[float, ...]


@dataclass(eq=False, slots=True)
class Client:
    """One container that shares its GPUs.

    Attributes:
        accounts: one on each of its GPUs, in their order.
        credit: None where its limit is 100.
        word: what its gate says.
        is_adopted: its processes may have been at work before it joined, under an earlier broker.
        was_held: an earlier broker had left its gate other than open, so others share its GPUs, though they may not
            have joined yet; until it was open once.
        wants: launches of it wait. Of a straggler too: its work may wait, on the device, for what they launch.
        is_open: it holds, and is not metered.
        granted_ns: when it came to hold.
        looked_ns: when it was last seen whether it uses what it holds.
        looked_used_ns: what it had used then.
        crowded_ns: when others last wanted its GPUs while it held them.
        revoked_ns: when its tokens were taken from it.
        polled_ns: when its processes' slots were last read since.
        pending: whose work is not known to be done since.
        was_open: it was not metered until then, so its slots say nothing.
        wanted_ns: since when it waits; 0 for not.
        idled_ns: since when it wants nothing and holds nothing.
        has_returned: it idled before it came to wait; it was not sent to wait by another's turn.
        span_ns: since when it has always wanted or held; 0 for not.
        span_used_ns: what it had used then.
        span_held_ns: how long it has held since.
        gap_from_ns: when the work of the last holder ended, until it is seen when that of this one began.
        gap_busy: what its processes had used when it came to hold.
        past: two moments and what it had used then, about a second apart.
        gap_ns: since when it has paused, if it said so; 0 for not.
        gap_used_ns: what it had used when its latest pause began.
        mean_gap_ns: how long it lately paused.
        mean_work_ns: how long it lately worked between two pauses.
        lingers_ns: until when it keeps its tokens although it pauses; 0 for not.
        lingers_used_ns: what it had used when it began to.
        mean_drain_ns: how long its work lately went on after it lost its tokens.
        due_ns: when time alone changes something.
        astray: since when work of it is not known to be done that nobody waits for; None for not.
    """

    key: ContainerKey
    terms: Terms
    gpus: tuple[Gpu, ...]
    accounts: tuple[Account, ...]
    meter: Meter
    credit: Credit | None
    word: int
    is_adopted: bool = False
    was_held: bool = False
    phase: Phase = Phase.IDLE
    members: dict[ProcessKey, Member] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    wants: bool = False
    is_open: bool = False
    granted_ns: int = 0
    looked_ns: int = 0
    looked_used_ns: int = 0
    crowded_ns: int = 0
    revoked_ns: int = 0
    polled_ns: int = 0
    pending: set[ProcessKey] = field(default_factory=set)
    was_open: bool = False
    wanted_ns: int = 0
    idled_ns: int = 0
    has_returned: bool = True
    span_ns: int = 0
    span_used_ns: int = 0
    span_held_ns: int = 0
    gap_from_ns: int = 0
    gap_busy: dict[ProcessKey, int] = field(default_factory=dict)
    past: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    gap_ns: int = 0
    gap_used_ns: int = 0
    mean_gap_ns: float = 0.0
    mean_work_ns: float = 0.0
    lingers_ns: int = 0
    lingers_used_ns: int = 0
    mean_drain_ns: float = 0.0
    due_ns: int | None = None
    astray: Astray | None = None

    def heard(self) -> None:
        """Something changed of its processes."""
        self.wants = any(member.wants for member in self.members.values())
        for account in self.accounts:
            account.set_presence(is_present=bool(self.members))
        self.update_demand()

    def quieten(self) -> None:
        """Nobody waits at its gate as it is from now on, or says so again."""
        self.wants = False
        for member in self.members.values():
            member.wants = member.is_idle = False

    @property
    def is_waiting(self) -> bool:
        """Whether it could be given tokens now, if its limit allows it."""
        return self.phase is Phase.IDLE and self.wants

    @property
    def may_run(self) -> bool:
        """Whether its limit allows it."""
        return self.credit is None or not self.credit.is_spent

    @property
    def is_lone(self) -> bool:
        """Whether nobody shares its GPUs."""
        return all(len(gpu.clients) == 1 for gpu in self.gpus)

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits for one of its GPUs, or will when it has drained."""
        return any(other is not self and other.is_wanting for gpu in self.gpus for other in gpu.clients)

    @property
    def is_wanting(self) -> bool:
        """Whether it waits, or will when it has drained."""
        return self.phase is not Phase.HOLDING and self.wants

    @property
    def quota_ns(self) -> float:
        """How long its turn is."""
        if len(self.gpus) == 1:
            return self.gpus[0].quota.quota_ns
        return max(gpu.quota.quota_ns for gpu in self.gpus)

    def lag_ns(self, gpu: Gpu) -> float:
        """How far it is behind its due there."""
        return self.account(gpu).lag_ns

    def account(self, gpu: Gpu) -> Account:
        """Its account there."""
        return self.accounts[0] if len(self.gpus) == 1 else self.accounts[self.gpus.index(gpu)]

    @property
    def urgency_ns(self) -> float:
        """How far it is behind its due where somebody else is; on several GPUs, where it is least so."""
        if len(self.accounts) == 1:
            return self.accounts[0].lag_ns
        lags = [a.lag_ns for a in self.accounts if len(a.ledger.accounts) > 1]
        return min(lags, default=0.0)

    def update_demand(self) -> None:
        """Tell its accounts whether it has work."""
        self.demand(is_demanding=self.phase is not Phase.IDLE or self.wants)

    def demand(self, *, is_demanding: bool) -> None:
        """Tell its accounts so."""
        for account in self.accounts:
            account.set_demand(is_demanding=is_demanding)

    def hold_against(self, unused_ns: float) -> None:
        """As if it had used its GPUs for so long: it kept them from others who could have."""
        for account in self.accounts:
            account.ledger.hold_against(account, unused_ns)
