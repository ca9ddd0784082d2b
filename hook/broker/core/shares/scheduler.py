"""The compute time of a node: events in, gate words out.

Every container runs, and the hardware gives each process with work its slices. A tick charges the executed work. It
then shuts the gate of each container that is ahead of its due while another is behind, or that has used up its limit.
Time and the accounts open the gates again. A gate covers all GPUs of its container, so any of them may shut it.
"""

from collections.abc import Iterable
from math import ceil
from typing import Final, assert_never

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.accounts import Gate, next_word
from hook.broker.core.shares.correction import WHOLE
from hook.broker.core.shares.events import (
    Appeared,
    GateState,
    Gone,
    Joined,
    Left,
    SetGate,
    ShareEvent,
    ShareInstruction,
    ShareOveruse,
    ShareTerms,
    ShareUse,
    Ticked,
    UnmetSpan,
    Utilised,
    Words,
)
from hook.broker.core.shares.gpus import SharedGpu
from hook.broker.core.shares.meters import ended
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.tenants import MeteredProcess, Tenant
from plimsoll.broker.pages import LOST_NS
from plimsoll.ids import GpuUuid

_AWAY_NS: Final = LOST_NS - S
"""If ticks were needed and none came for longer, the broker was stopped. Its last beat may be older than its last
tick, so the libraries may have taken every gate for open, and recorded nothing. Neither their words nor NVML's
figures count for that time."""


class Scheduler:
    """The pure state machine."""

    def __init__(self, settings: ShareSettings) -> None:
        """Begin with no container."""
        self._quantum_ns: Final = settings.quantum_ms * MS
        self._slice_ns: Final = round(settings.slice_ms * MS)
        self._relax_ns: Final = settings.relax_s * S
        self._unmet_ns: Final = settings.unmet_s * S
        self._tenants: dict[ContainerKey, Tenant] = {}
        self._whole: dict[ContainerKey, ShareTerms] = {}
        self._gpus: dict[GpuUuid, SharedGpu] = {}
        self._processes: dict[int, MeteredProcess] = {}
        self._last: list[tuple[MeteredProcess, Words]] = []
        self._shut: dict[Gate, None] = {}
        self._open: dict[Gate, None] = {}
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
            case Joined():
                steps = self._join(event)
            case Left():
                steps = self._leave(event)
            case Appeared():
                steps = self._appear(event)
            case Gone():
                steps = self._lose(event)
            case _:
                assert_never(event)
        if self.needs_ticks and not self._is_needed:
            self._needed_ns = event.now_ns
        self._is_needed = self.needs_ticks
        return steps

    @property
    def needs_ticks(self) -> bool:
        """Whether any container must be metered: it has a limit, or shares a GPU."""
        is_shared = any(gpu.populated > 1 for gpu in self._gpus.values())
        return is_shared or any(tenant.is_limited and tenant.processes for tenant in self._tenants.values())

    @property
    def is_at_rest(self) -> bool:
        """Whether no process had work at the last tick, and time alone changes no account and no gate."""
        return all(gpu.is_at_rest for gpu in self._gpus.values())

    def uses(self, container: ContainerKey, now_ns: int) -> ShareUse | None:
        """A container's compute time up to now; None for a container that is not registered."""
        if container in self._whole:
            return ShareUse(self._whole[container], GateState.OPEN)
        tenant = self._tenants.get(container)
        if tenant is None:
            return None
        histories = [account.history for account in tenant.accounts]
        return ShareUse(
            terms=tenant.terms,
            state=tenant.gate.state,
            used_pct=sum(history.used_pct(now_ns) for history in histories) / len(histories),
            busy_s=sum(history.ran_ns for history in histories) / len(histories) / S,
            waited_s=tenant.gate.waited_ns / S,
            waits=tenant.gate.waits,
        )

    # Containers and processes come and go.

    def _join(self, event: Joined) -> list[ShareInstruction]:
        if event.terms.whole:
            self._whole[event.container] = event.terms
            return [SetGate(event.container, next_word(event.word, GateState.OPEN), 1)]
        self._ticked_ns = self._ticked_ns or event.now_ns
        tenant = self._tenants.get(event.container)
        if tenant is None:
            gpus = tuple(self._gpus.setdefault(uuid, SharedGpu(uuid)) for uuid in event.terms.gpus)
            tenant = Tenant.join(Gate(event.container, event.word), event.terms, gpus, event.now_ns)
            self._tenants[event.container] = tenant
        else:
            tenant.change(event.terms)
        return self._show_all(tenant.gpus, event.now_ns)

    def _leave(self, event: Left) -> list[ShareInstruction]:
        self._whole.pop(event.container, None)
        tenant = self._tenants.pop(event.container, None)
        if tenant is None:
            return []
        for number in tenant.processes:
            del self._processes[number]
        self._last = [(process, words) for process, words in self._last if process.gate is not tenant.gate]
        for gpu, account in zip(tenant.gpus, tenant.accounts, strict=True):
            gpu.remove(account)
            if not gpu.accounts:
                del self._gpus[gpu.uuid]
        self._shut.pop(tenant.gate, None)
        self._open.pop(tenant.gate, None)
        return self._show_all(tenant.gpus, event.now_ns)

    def _appear(self, event: Appeared) -> list[ShareInstruction]:
        tenant = self._tenants.get(event.container)
        if tenant is None or event.number in self._processes:
            return []
        process = tenant.add(event.number, event.owner, event.now_ns, is_new=event.is_new)
        self._processes[event.number] = process
        return self._show_all(tenant.gpus, event.now_ns) if len(tenant.processes) == 1 else []

    def _lose(self, event: Gone) -> list[ShareInstruction]:
        process = self._processes.pop(event.number, None)
        if process is None:
            return []
        tenant = self._tenants[process.gate.container]
        tenant.remove(event.number)
        if event.words is not None and self._is_needed:
            self._last.append((process, ended(event.words, event.now_ns, self._slice_ns)))
        return [] if tenant.processes else self._show_all(tenant.gpus, event.now_ns)

    # Ticks.

    def _tick(self, event: Ticked) -> list[ShareInstruction]:
        now_ns, span_ns = event.now_ns, event.now_ns - self._ticked_ns
        if span_ns <= 0:
            return []
        if self._was_away(now_ns):
            self._note_absence(self._tenants.values(), now_ns)
        self._ticked_ns = now_ns
        is_second = now_ns - self._reviewed_ns >= S
        for number, words in event.pages.items():
            process = self._processes.get(number)
            if process is not None:
                process.read(words, now_ns, span_ns, self._slice_ns)
        for process, words in self._last:
            process.read(words, now_ns, span_ns, self._slice_ns)
        self._last.clear()
        shut: dict[Gate, None] = {}
        crowded: list[SharedGpu] = []
        for gpu in self._gpus.values():
            if gpu.is_at_rest:
                continue
            gpu.tick(now_ns, span_ns)
            shut.update(dict.fromkeys(gpu.gates_to_shut(self._quantum_ns)))
            if gpu.crowd > gpu.sharers or (is_second and ceil(gpu.crowd) != gpu.sharers):
                gpu.sharers = ceil(gpu.crowd)
                crowded.append(gpu)
        steps = list(self._decide(shut, crowded, now_ns))
        return [*steps, *self._review(now_ns)] if is_second else steps

    def _was_away(self, now_ns: int) -> bool:
        return now_ns - max(self._ticked_ns, self._needed_ns) > _AWAY_NS

    def _note_absence(self, tenants: Iterable[Tenant], now_ns: int) -> None:
        """Note that nothing was metered until now."""
        for tenant in tenants:
            tenant.note_unmetered(now_ns)
            for process in tenant.processes.values():
                process.is_unread = True

    def _decide(
        self, shut: dict[Gate, None], crowded: list[SharedGpu], now_ns: int
    ) -> Iterable[ShareInstruction]:
        """Show all gates for which something may have changed."""
        opened = [gate for gate in self._shut if gate not in shut]
        closed = [gate for gate in shut if gate not in self._shut]
        self._shut = shut
        for gate in [*opened, *closed]:
            gate.is_shut = gate in shut
        soles = [gpu.sole.gate for gpu in self._gpus.values() if gpu.sole]
        others = [account.gate for gpu in crowded for account in gpu.accounts]
        return self._show([*opened, *closed, *self._open, *soles, *others], now_ns)

    def _show_all(self, gpus: Iterable[SharedGpu], now_ns: int) -> list[ShareInstruction]:
        return list(self._show((account.gate for gpu in gpus for account in gpu.accounts), now_ns))

    def _show(self, gates: Iterable[Gate], now_ns: int) -> Iterable[SetGate]:
        """Write each of these gates that changes."""
        for gate in dict.fromkeys(gates):
            tenant = self._tenants[gate.container]
            state = GateState.SHUT if gate.is_shut else GateState.METERED
            if tenant.may_open(now_ns, self._relax_ns):
                state = GateState.OPEN
            if GateState.OPEN in (state, gate.state):
                tenant.note_unmetered(now_ns)
            self._open.pop(gate, None)
            if state is GateState.OPEN and tenant.has_rivals:
                self._open[gate] = None
            step = gate.show(state, max([gpu.sharers for gpu in tenant.gpus]))
            if step is not None:
                yield step

    def _review(self, now_ns: int) -> Iterable[UnmetSpan]:
        """Once a second: remember every account's compute time, and find requests that were not met."""
        self._reviewed_ns = now_ns
        for tenant in self._tenants.values():
            for account in tenant.accounts:
                account.history.remember(now_ns)
            found = tenant.unmet(self._unmet_ns, self._quantum_ns / 4, now_ns)
            if found:
                yield found

    def _compare(self, event: Utilised) -> list[ShareInstruction]:
        """Compare the words of processes with NVML's figures."""
        gpu = self._gpus.get(event.gpu)
        if gpu is None:
            return []
        span_ns, gpu.utilised_ns = event.now_ns - gpu.utilised_ns, event.now_ns
        steps: list[ShareInstruction] = []
        tenants = [self._tenants[account.gate.container] for account in gpu.accounts]
        if self._was_away(event.now_ns):
            self._note_absence(tenants, event.now_ns)
        for tenant in tenants:
            place = tenant.gpus.index(gpu)
            if tenant.gate.state is GateState.OPEN:
                tenant.note_unmetered(event.now_ns)
            for number, process in tenant.processes.items():
                correction, used_pct = process.places[place][2].correction, event.used_pct.get(number)
                if used_pct is not None and correction.skipped_ns < event.now_ns - WHOLE * span_ns:
                    claimed_pct = 100 * correction.claimed_ns / span_ns
                    if len(tenant.gpus) == 1:
                        correction.correct(used_pct, span_ns)
                    if correction.is_violation(used_pct, claimed_pct):
                        steps.append(
                            ShareOveruse(tenant.container, process.owner, gpu.uuid, used_pct, claimed_pct)
                        )
                correction.ran_ns = correction.claimed_ns = 0.0
        return steps
