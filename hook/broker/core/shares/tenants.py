"""The containers that share GPUs, and their processes."""

from dataclasses import dataclass, field

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Account, Bounds, Gate, History
from hook.broker.core.shares.correction import Correction
from hook.broker.core.shares.events import GateState, ShareTerms, UnmetSpan, Words
from hook.broker.core.shares.gpus import SharedGpu
from hook.broker.core.shares.meters import WORDS, Meter
from hook.broker.core.shares.settings import SAVED_BY_SEVERAL_NS, SAVED_NS, S


@dataclass(eq=False, slots=True)
class MeteredProcess:
    """A process of a tenant.

    Attributes:
        gate: the tenant's gate.
        places: the GPU, account and meter for each of the tenant's GPUs, in their order.
        is_unread: its page was not read yet, or the broker was stopped since; work before the next reading does
            not count.
    """

    owner: int
    gate: Gate
    places: tuple[tuple[SharedGpu, Account, Meter], ...]
    is_unread: bool

    def read(self, words: Words, now_ns: int, span_ns: int, slice_ns: int) -> None:
        """Read its page, and note the new work on each GPU."""
        is_metered = self.gate.state is not GateState.OPEN and not self.is_unread
        self.is_unread = False
        begin = 0
        for gpu, account, meter in self.places:
            own = words[begin : begin + WORDS]
            begin += WORDS
            if not is_metered:
                meter.skip(own, now_ns, slice_ns)
            elif meter.read(own, now_ns, span_ns, slice_ns):
                gpu.note(account, meter, now_ns)
                if meter.stands and self.gate.is_shut:
                    self.gate.note_stand(now_ns, span_ns)


@dataclass(eq=False, slots=True)
class Tenant:
    """A container that shares its GPUs.

    Attributes:
        accounts: the accounts on its GPUs, in their order.
    """

    gate: Gate
    terms: ShareTerms
    gpus: tuple[SharedGpu, ...]
    accounts: tuple[Account, ...]
    processes: dict[int, MeteredProcess] = field(default_factory=dict)

    @classmethod
    def join(cls, gate: Gate, terms: ShareTerms, gpus: tuple[SharedGpu, ...], now_ns: int) -> "Tenant":
        """Open an account on each GPU."""
        beginning = (now_ns, 0.0)
        bounds = _bounds(terms)
        accounts = tuple(Account(gate, History((beginning, beginning)), bounds) for _ in gpus)
        for gpu, account in zip(gpus, accounts, strict=True):
            gpu.accounts.append(account)
            gpu.is_live_stale = gpu.are_rates_stale = True
        return cls(gate, terms, gpus, accounts)

    @property
    def container(self) -> ContainerKey:
        """The container's key."""
        return self.gate.container

    def change(self, terms: ShareTerms) -> None:
        """Change the terms; the accounts stay."""
        self.terms = terms
        bounds = _bounds(terms)
        for gpu, account in zip(self.gpus, self.accounts, strict=True):
            account.bounds, account.rests = bounds, False
            gpu.is_live_stale = gpu.are_rates_stale = True

    def add(self, number: int, owner: int, now_ns: int, *, is_new: bool) -> MeteredProcess:
        """Take in a process."""
        pairs = zip(self.gpus, self.accounts, strict=True)
        places = tuple((gpu, account, Meter(Correction(skipped_ns=now_ns))) for gpu, account in pairs)
        process = self.processes[number] = MeteredProcess(owner, self.gate, places, is_unread=not is_new)
        self._populate()
        return process

    def remove(self, number: int) -> None:
        """Remove a process."""
        del self.processes[number]
        self._populate()

    def _populate(self) -> None:
        for gpu, account in zip(self.gpus, self.accounts, strict=True):
            gpu.populate(account, has_processes=bool(self.processes))

    def note_unmetered(self, now_ns: int) -> None:
        """Note that the gate is open, or was until now: its processes do not record their work."""
        for process in self.processes.values():
            for _, _, meter in process.places:
                meter.correction.skipped_ns = now_ns

    @property
    def is_limited(self) -> bool:
        """Whether the container must be metered even where it is alone."""
        return self.terms.limit_pct < 100

    @property
    def has_rivals(self) -> bool:
        """Whether another container has processes on any of its GPUs."""
        return any(gpu.has_rivals(account) for gpu, account in zip(self.gpus, self.accounts, strict=True))

    def may_open(self, now_ns: int, relax_ns: float) -> bool:
        """Whether the gate may be open, because the work need not be metered."""
        if self.is_limited:
            return False
        pairs = zip(self.gpus, self.accounts, strict=True)
        return all(gpu.may_open(account, now_ns, relax_ns) for gpu, account in pairs)

    def unmet(self, span_ns: float, behind_ns: float, now_ns: int) -> UnmetSpan | None:
        """End the spans of wanting that have lasted for `span_ns`; returns the one with the least compute time.

        Args:
            span_ns: see `ShareSettings.unmet_s`.
            behind_ns: the lag above which the container is behind.
            now_ns: now.

        Returns:
            None if no span ends now, or all that end met the request.
        """
        found = []
        for gpu, account in zip(self.gpus, self.accounts, strict=True):
            history = account.history
            since_ns = history.span[0] if account.is_active and history.span else now_ns
            if now_ns - since_ns >= span_ns:
                had_pct = history.short_pct(self.terms.request_pct, now_ns)
                if had_pct is not None and account.lag_ns > behind_ns:
                    found.append((had_pct, gpu.uuid, (now_ns - since_ns) / S))
                history.begin_span(now_ns)
        if not found:
            return None
        had_pct, gpu_uuid, span_s = min(found)
        return UnmetSpan(self.container, gpu_uuid, had_pct, self.terms.request_pct, span_s)


def _bounds(terms: ShareTerms) -> Bounds:
    saved_ns = SAVED_NS if len(terms.gpus) == 1 else SAVED_BY_SEVERAL_NS
    return Bounds.of(terms.request_pct / 100, terms.limit_pct / 100, saved_ns)
