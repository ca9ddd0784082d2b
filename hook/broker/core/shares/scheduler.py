"""The compute time of a node: events in, gate words out.

Every container runs, and the hardware gives each process with work its slices. A tick charges the executed work. It
then shuts the gate of each container that is ahead of its due while another is behind, or that has used up its limit.
Time and the accounts open the gates again. A gate covers all GPUs of its container, so any of them may shut it.
"""

from collections.abc import Iterable
from math import ceil
from typing import Final, assert_never

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Account
from hook.broker.core.shares.clients import Client, Process
from hook.broker.core.shares.correction import WHOLE, correct, is_violation
from hook.broker.core.shares.events import (
    Appeared,
    GateState,
    Gone,
    Joined,
    Left,
    SetGate,
    ShareEvent,
    ShareInstruction,
    ShareUse,
    ShareViolated,
    Terms,
    Ticked,
    Unmet,
    Utilised,
    Words,
)
from hook.broker.core.shares.gpus import Gpu
from hook.broker.core.shares.meters import Meter, ended
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.spans import Tally, unmet
from plimsoll.broker.pages import GATE_STEP, LOST_NS
from plimsoll.ids import GpuUuid

_WORDS: Final = 1 << 32
"""A gate's word counts modulo this."""

_AWAY_NS: Final = LOST_NS - S
"""If ticks were needed and none came for longer, the broker was stopped. Its last beat may be a second older than its
last tick, so the libraries may have taken every gate for open, and recorded nothing. Neither their words nor NVML's
figures count for that time."""


class Scheduler:
    """The pure state machine."""

    def __init__(self, settings: ShareSettings) -> None:
        """Begin with no container."""
        self._quantum_ns: Final = settings.quantum_ms * MS
        self._slice_ns: Final = round(settings.slice_ms * MS)
        self._relax_ns: Final = settings.relax_s * S
        self._unmet_ns: Final = settings.unmet_s * S
        self._clients: dict[ContainerKey, Client] = {}
        self._whole: dict[ContainerKey, Terms] = {}
        self._gpus: dict[GpuUuid, Gpu] = {}
        self._processes: dict[int, Process] = {}
        self._last: list[tuple[Process, Words]] = []
        self._shut: dict[Client, None] = {}
        self._open: dict[Client, None] = {}
        self._ticked_ns = 0
        self._needed_ns = 0
        self._is_needed = False
        self._reviewed_ns = 0

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        """Take in an event; returns the instructions for now, in their order."""
        match event:
            case Ticked():
                return self._tick(event)
            case Utilised():
                return self._compare(event)
            case Joined() | Left() | Appeared() | Gone():
                steps = self._come_or_go(event)
                if self.needs_ticks and not self._is_needed:
                    self._needed_ns = event.now_ns
                self._is_needed = self.needs_ticks
                return steps
        assert_never(event)

    def _come_or_go(self, event: Joined | Left | Appeared | Gone) -> list[ShareInstruction]:
        match event:
            case Joined():
                return self._join(event)
            case Left():
                return self._leave(event)
            case Appeared():
                return self._appear(event)
            case Gone():
                return self._lose(event)
        assert_never(event)

    @property
    def needs_ticks(self) -> bool:
        """Whether any container must be metered: it has a limit, or shares a GPU."""
        is_shared = any(gpu.populated > 1 for gpu in self._gpus.values())
        return is_shared or any(client.is_limited and client.processes for client in self._clients.values())

    @property
    def is_at_rest(self) -> bool:
        """Whether no process had work at the last tick, and time alone changes no account and no gate."""
        return all(gpu.is_at_rest for gpu in self._gpus.values())

    def uses(self, container: ContainerKey, now_ns: int) -> ShareUse | None:
        """A container's compute time up to now; None for a container that is not registered."""
        if container in self._whole:
            return ShareUse(self._whole[container], GateState.OPEN)
        client = self._clients.get(container)
        if client is None:
            return None
        tallies = [account.tally for account in client.accounts]
        return ShareUse(
            terms=client.terms,
            state=client.state,
            used_pct=sum(tally.used_pct(now_ns) for tally in tallies) / len(tallies),
            busy_s=sum(tally.ran_ns for tally in tallies) / len(tallies) / S,
            waited_s=client.waited_ns / S,
            waits=client.waits,
        )

    # Containers and processes come and go.

    def _join(self, event: Joined) -> list[ShareInstruction]:
        if event.terms.whole:
            self._whole[event.container] = event.terms
            return [SetGate(event.container, _next_word(event.word, GateState.OPEN), 1)]
        self._ticked_ns = self._ticked_ns or event.now_ns
        client = self._clients.get(event.container)
        if client is None:
            client = self._clients[event.container] = self._new_client(event)
        client.change(event.terms)
        return self._show_all(client.gpus, event.now_ns)

    def _new_client(self, event: Joined) -> Client:
        gpus = tuple(self._gpus.setdefault(uuid, Gpu(uuid)) for uuid in event.terms.gpus)
        client = Client(event.container, event.terms, gpus, event.word)
        beginning = (event.now_ns, 0.0)
        client.accounts = tuple(Account(client, Tally((beginning, beginning))) for _ in gpus)
        for gpu, account in zip(gpus, client.accounts, strict=True):
            gpu.accounts.append(account)
        return client

    def _leave(self, event: Left) -> list[ShareInstruction]:
        self._whole.pop(event.container, None)
        client = self._clients.pop(event.container, None)
        if client is None:
            return []
        for number in client.processes:
            del self._processes[number]
        self._last = [(process, words) for process, words in self._last if process.client is not client]
        for gpu, account in zip(client.gpus, client.accounts, strict=True):
            gpu.remove(account)
            if not gpu.accounts:
                del self._gpus[gpu.uuid]
        self._shut.pop(client, None)
        self._open.pop(client, None)
        return self._show_all(client.gpus, event.now_ns)

    def _appear(self, event: Appeared) -> list[ShareInstruction]:
        client = self._clients.get(event.container)
        if client is None or event.number in self._processes:
            return []
        pairs = zip(client.gpus, client.accounts, strict=True)
        places = tuple((gpu, account, Meter(skipped_ns=event.now_ns)) for gpu, account in pairs)
        process = Process(event.owner, client, places, is_unread=not event.is_new)
        self._processes[event.number] = client.processes[event.number] = process
        if len(client.processes) > 1:
            return []
        for gpu in client.gpus:
            gpu.populated += 1
        return self._show_all(client.gpus, event.now_ns)

    def _lose(self, event: Gone) -> list[ShareInstruction]:
        process = self._processes.pop(event.number, None)
        if process is None:
            return []
        client = process.client
        del client.processes[event.number]
        if event.words is not None and self._is_needed:
            self._last.append((process, ended(event.words, event.now_ns, self._slice_ns)))
        if client.processes:
            return []
        for gpu in client.gpus:
            gpu.populated -= 1
        return self._show_all(client.gpus, event.now_ns)

    # Ticks.

    def _tick(self, event: Ticked) -> list[ShareInstruction]:
        now_ns, span_ns = event.now_ns, event.now_ns - self._ticked_ns
        if span_ns <= 0:
            return []
        if self._was_away(now_ns):
            self._note_absence(self._clients.values(), now_ns)
        self._ticked_ns = now_ns
        is_second = now_ns - self._reviewed_ns >= S
        for number, words in event.pages.items():
            process = self._processes.get(number)
            if process is not None:
                process.read(words, now_ns, span_ns, self._slice_ns)
        for process, words in self._last:
            process.read(words, now_ns, span_ns, self._slice_ns)
        self._last.clear()
        shut: dict[Client, None] = {}
        crowded: list[Gpu] = []
        for gpu in self._gpus.values():
            if gpu.is_at_rest:
                continue
            gpu.tick(now_ns, span_ns)
            shut.update(dict.fromkeys(gpu.standing(now_ns, self._quantum_ns)))
            if gpu.crowd > gpu.sharers or (is_second and ceil(gpu.crowd) != gpu.sharers):
                gpu.sharers = ceil(gpu.crowd)
                crowded.append(gpu)
        steps = list(self._decide(shut, crowded, now_ns))
        return [*steps, *self._review(now_ns)] if is_second else steps

    def _was_away(self, now_ns: int) -> bool:
        return now_ns - max(self._ticked_ns, self._needed_ns) > _AWAY_NS

    def _note_absence(self, clients: Iterable[Client], now_ns: int) -> None:
        """Note that nothing was metered until now."""
        for client in clients:
            client.note_unmetered(now_ns)
            for process in client.processes.values():
                process.is_unread = True

    def _decide(
        self, shut: dict[Client, None], crowded: list[Gpu], now_ns: int
    ) -> Iterable[ShareInstruction]:
        """Show the gates of all containers for which something may have changed."""
        opened = [client for client in self._shut if client not in shut]
        closed = [client for client in shut if client not in self._shut]
        self._shut = shut
        for client in [*opened, *closed]:
            client.is_shut = client in shut
        soles = [gpu.sole.client for gpu in self._gpus.values() if gpu.sole]
        others = [account.client for gpu in crowded for account in gpu.accounts]
        for client in dict.fromkeys([*opened, *closed, *self._open, *soles, *others]):
            yield from self._show(client, now_ns)

    def _show_all(self, gpus: Iterable[Gpu], now_ns: int) -> list[ShareInstruction]:
        clients = dict.fromkeys(account.client for gpu in gpus for account in gpu.accounts)
        return [step for client in clients for step in self._show(client, now_ns)]

    def _show(self, client: Client, now_ns: int) -> Iterable[ShareInstruction]:
        """Write a container's gate, if it changes."""
        state = GateState.SHUT if client.is_shut else GateState.METERED
        if client.may_open(now_ns, self._relax_ns):
            state = GateState.OPEN
        if GateState.OPEN in (state, client.state):
            client.note_unmetered(now_ns)
        client.state = state
        self._open.pop(client, None)
        if state is GateState.OPEN and client.has_rivals:
            self._open[client] = None
        sharers = max([gpu.sharers for gpu in client.gpus])
        word = _next_word(client.word, state)
        if word != client.word or sharers != client.sharers:
            client.word, client.sharers = word, sharers
            yield SetGate(client.key, word, sharers)

    def _review(self, now_ns: int) -> Iterable[Unmet]:
        """Once a second: remember every account's compute time, and find requests that were not met."""
        self._reviewed_ns = now_ns
        for client in self._clients.values():
            for account in client.accounts:
                account.tally.remember(now_ns)
            found = unmet(client, self._unmet_ns, self._quantum_ns / 4, now_ns)
            if found:
                yield found

    def _compare(self, event: Utilised) -> list[ShareInstruction]:
        """Compare the words of processes with NVML's figures."""
        gpu = self._gpus.get(event.gpu)
        if gpu is None:
            return []
        span_ns, gpu.utilised_ns = event.now_ns - gpu.utilised_ns, event.now_ns
        steps: list[ShareInstruction] = []
        if self._was_away(event.now_ns):
            self._note_absence([account.client for account in gpu.accounts], event.now_ns)
        for client in [account.client for account in gpu.accounts]:
            place = client.gpus.index(gpu)
            if client.state is GateState.OPEN:
                client.note_unmetered(event.now_ns)
            for number, process in client.processes.items():
                meter, used_pct = process.places[place][2], event.used_pct.get(number)
                if used_pct is not None and meter.skipped_ns < event.now_ns - WHOLE * span_ns:
                    told_pct = 100 * meter.told_ns / span_ns
                    if len(client.gpus) == 1:
                        correct(meter, used_pct, span_ns)
                    if is_violation(meter, used_pct, told_pct):
                        steps.append(ShareViolated(client.key, process.owner, gpu.uuid, used_pct, told_pct))
                meter.ran_ns = meter.told_ns = 0.0
        return steps


def _next_word(word: int, state: GateState) -> int:
    """The gate word of this state, a step after `word`; `word` itself if it has this state already."""
    if word % GATE_STEP == state.value:
        return word
    return (word - word % GATE_STEP + GATE_STEP + state.value) % _WORDS
