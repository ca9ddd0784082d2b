"""The containers that share GPUs, and their processes."""

from dataclasses import dataclass, field

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Account
from hook.broker.core.shares.events import GateState, Terms, Words
from hook.broker.core.shares.gpus import Gpu
from hook.broker.core.shares.meters import WORDS, Meter
from hook.broker.core.shares.settings import SAVED_BY_SEVERAL_NS, SAVED_NS


@dataclass(eq=False, slots=True)
class Process:
    """A process of a container.

    Attributes:
        places: the GPU, account and meter for each of its container's GPUs, in their order.
        is_unread: its page was not read yet, or the broker was stopped since; work before the next reading does
            not count.
    """

    owner: int
    client: "Client"
    places: tuple[tuple[Gpu, Account, Meter], ...]
    is_unread: bool

    def read(self, words: Words, now_ns: int, span_ns: int, slice_ns: int) -> None:
        """Read its page, and note the new work on each GPU."""
        is_metered = self.client.state is not GateState.OPEN and not self.is_unread
        self.is_unread = False
        begin = 0
        for gpu, account, meter in self.places:
            own = words[begin : begin + WORDS]
            begin += WORDS
            if not is_metered:
                meter.skip(own, now_ns, slice_ns)
            elif meter.read(own, now_ns, span_ns, slice_ns):
                gpu.note(account, meter, now_ns)
                if meter.stands and self.client.is_shut:
                    self.client.note_stand(now_ns, span_ns)


@dataclass(eq=False, slots=True)
class Client:
    """A container that shares its GPUs.

    Attributes:
        accounts: the accounts on its GPUs, in their order.
        word, sharers: the numbers in its gate file.
        is_shut: the last tick decided to shut its gate.
        stood_ns: the tick at which a thread last stood at the shut gate.
        waited_ns: time in which a thread stood there.
        waits: the number of such times.
    """

    key: ContainerKey
    terms: Terms
    gpus: tuple[Gpu, ...]
    word: int
    state: GateState = GateState.METERED
    accounts: tuple[Account, ...] = ()
    processes: dict[int, Process] = field(default_factory=dict)
    sharers: int = 0
    is_shut: bool = False
    stood_ns: int = 0
    waited_ns: int = 0
    waits: int = 0

    def change(self, terms: Terms) -> None:
        """Change the terms; the accounts stay."""
        self.terms = terms
        saved_ns = SAVED_NS if len(self.gpus) == 1 else SAVED_BY_SEVERAL_NS
        for gpu, account in zip(self.gpus, self.accounts, strict=True):
            account.change(terms.request_pct / 100, terms.limit_pct / 100, saved_ns)
            gpu.is_live_stale = gpu.are_rates_stale = True

    def note_unmetered(self, now_ns: int) -> None:
        """Note that the gate is open, or was until now: its processes do not record their work."""
        for process in self.processes.values():
            for _, _, meter in process.places:
                meter.skipped_ns = now_ns

    def note_stand(self, now_ns: int, span_ns: int) -> None:
        """Note that a thread stands at the shut gate: count it when first seen, and its time from then on."""
        if self.stood_ns == now_ns - span_ns:
            self.waited_ns += span_ns
        elif self.stood_ns < now_ns:
            self.waits += 1
        self.stood_ns = now_ns

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
