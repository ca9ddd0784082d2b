"""The containers that share GPUs, and their processes."""

from dataclasses import dataclass, field

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Account
from hook.broker.core.shares.events import GateState, Terms, Words
from hook.broker.core.shares.gpus import Gpu
from hook.broker.core.shares.work import WORDS, Meter


@dataclass(eq=False, slots=True)
class Process:
    """One process of a container.

    Attributes:
        places: on each of its container's GPUs, in their order.
        is_unread: what its words say until they are read for the first time does not count.
    """

    owner: int
    client: "Client"
    places: tuple[tuple[Gpu, Account, Meter], ...]
    is_unread: bool

    def read(self, words: Words, now_ns: int, span_ns: int, slice_ns: int) -> None:
        """Take its page in, and note on each GPU what is new there."""
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
    """One container that shares its GPUs.

    Attributes:
        accounts: one on each of its GPUs, in their order.
        word, sharers: what its gate file says.
        is_shut: at the last tick it was to stand.
        stood_ns: at which tick a thread of it last stood at the gate.
        waited_ns, waits: for how long and how often one did.
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
        """Its terms are these from now on; its accounts stay."""
        self.terms = terms
        for gpu, account in zip(self.gpus, self.accounts, strict=True):
            account.change(terms.request_pct / 100, terms.limit_pct / 100)
            gpu.is_live_stale = gpu.are_rates_stale = True

    def note_unmetered(self, now_ns: int) -> None:
        """Its gate is open, or was until now: its processes say nothing of what they run."""
        for process in self.processes.values():
            for _, _, meter in process.places:
                meter.skipped_ns = now_ns

    def note_stand(self, now_ns: int, span_ns: int) -> None:
        """A thread of it stands at the shut gate; a stand is counted when first seen, and its time from then on."""
        if self.stood_ns == now_ns - span_ns:
            self.waited_ns += span_ns
        elif self.stood_ns < now_ns:
            self.waits += 1
        self.stood_ns = now_ns

    @property
    def is_limited(self) -> bool:
        """Whether it must be metered even where it is alone."""
        return self.terms.limit_pct < 100

    @property
    def has_rivals(self) -> bool:
        """Whether others have processes on any of its GPUs."""
        return any(gpu.has_rivals(account) for gpu, account in zip(self.gpus, self.accounts, strict=True))

    def may_open(self, now_ns: int, relax_ns: float) -> bool:
        """Whether its work need not be metered."""
        if self.is_limited:
            return False
        pairs = zip(self.gpus, self.accounts, strict=True)
        return all(gpu.may_open(account, now_ns, relax_ns) for gpu, account in pairs)
