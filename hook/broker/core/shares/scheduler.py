"""One node's compute time: events in, gate words out.

Which container may run on which GPU is decided by `tokens` and `yielding`, from what `accounts` say each is behind
its due; here events become entries there, and what changed becomes instructions.

What is asked of the processes (the library): whoever finds the gate shut reports that it wants, once per gate word;
whoever was metered or open reports, when the gate is shut, as soon as its work is done (`unfinished` false, with this
gate word), and after an open gate at once, even before it knows when its work will be done.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares import gates
from hook.broker.core.shares.accounts import Account, Credit
from hook.broker.core.shares.clients import Client, Gpu, Member, Phase
from hook.broker.core.shares.deadlines import drain_end_ns, due_ns, poll_ns, span_end_ns
from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.quota import Quota
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.tokens import decide, grant, holders, release, revoke
from hook.broker.core.shares.turns import (
    GateState,
    Gone,
    Joined,
    Left,
    Reported,
    SetGate,
    ShareEvent,
    ShareInstruction,
    ShareUse,
    Terms,
    Ticked,
    Unmet,
    Use,
)
from hook.broker.core.shares.yielding import HOLD_NS
from plimsoll.names import GpuUuid

UNMET_PCT = 2.0
"""Points below its request from which a container is told of: the accuracy that shares are held to."""


class Scheduler:
    """The pure state machine."""

    def __init__(self, settings: ShareSettings) -> None:
        """Begin with no container."""
        self._settings = settings
        self._clients: dict[ContainerKey, Client] = {}
        self._whole: dict[ContainerKey, tuple[Terms, int]] = {}
        self._gpus: dict[GpuUuid, Gpu] = {}
        self._now_ns = 0

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        """Something happened; returns what is to be done now, in this order."""
        self._now_ns = now_ns = max(self._now_ns, event.now_ns)
        match event:
            case Joined():
                return self._join(event)
            case Left():
                return self._leave(event.container)
            case Reported():
                client = self._clients.get(event.container)
                return self._report(client, event, now_ns) if client else []
            case Gone():
                client = self._clients.get(event.container)
                return self._lose(client, event.process, now_ns) if client else []
            case Ticked():
                return self._tick(event.uses, now_ns)
        assert_never(event)

    @property
    def due_ns(self) -> int | None:
        """When `Ticked` must be handled next, if nothing else happens; None for never."""
        return min((c.due_ns for c in self._clients.values() if c.due_ns is not None), default=None)

    @property
    def watched(self) -> list[tuple[ContainerKey, ProcessKey]]:
        """Whose `Use` the tick at `due_ns` wants to know: of all who use a GPU where something is due then."""
        due = self.due_ns
        if due is None:
            return []
        users = [user for user in holders(self._due_gpus(due)) if not user.is_open]
        return [(user.key, process) for user in users for process in user.members]

    def uses(self, container: ContainerKey) -> ShareUse | None:
        """What a container had of its GPUs; None for one that is not registered."""
        if container in self._whole:
            return ShareUse(self._whole[container][0], GateState.OPEN)
        client = self._clients.get(container)
        if client is None:
            return None
        tally = client.tally
        waiting_ns = self._now_ns - client.wanted_ns if client.wanted_ns else 0
        return ShareUse(
            terms=client.terms,
            state=gates.state_of(client.word),
            used_pct=self._used_pct(client),
            busy_s=client.meter.used_ns / S,
            waited_s=(tally.waited_ns + waiting_ns) / S,
            drain_s=tally.drain_ns / S,
            overrun_s=tally.overrun_ns / S,
            waits=tally.waits,
            grants=tally.grants,
        )

    # Events.

    def _join(self, event: Joined) -> list[ShareInstruction]:
        if event.terms.whole:
            word = gates.next_word(event.word, GateState.OPEN, is_contended=False)
            word = word if word != event.word else gates.renewed(word)
            self._whole[event.container] = (event.terms, word)
            return [SetGate(event.container, word)]
        known = self._clients.get(event.container)
        if known:
            self._settle(known.gpus)
            self._change(known, event.terms)
            return self._conclude(dict.fromkeys(known.gpus))
        client = self._add(event)
        # Always written, so that whoever waits on a word that an earlier broker wrote reports again.
        client.word = gates.renewed(gates.next_word(event.word, GateState.SHUT, is_contended=False))
        first = SetGate(client.key, client.word)
        later = self._conclude(dict.fromkeys(client.gpus))
        return (
            later
            if any(isinstance(i, SetGate) and i.container == client.key for i in later)
            else [first, *later]
        )

    def _leave(self, container: ContainerKey) -> list[ShareInstruction]:
        self._whole.pop(container, None)
        client = self._clients.pop(container, None)
        if client is None:
            return []
        self._settle(client.gpus)
        for gpu, account in zip(client.gpus, client.accounts, strict=True):
            if gpu.holder is client:
                gpu.holder = None
            gpu.ledger.remove(account)
            gpu.clients.remove(client)
            if not gpu.clients:
                del self._gpus[gpu.uuid]
        return self._conclude(dict.fromkeys(gpu for gpu in client.gpus if gpu.clients))

    def _report(self, client: Client, event: Reported, now_ns: int) -> list[ShareInstruction]:
        is_current = event.gate_word == client.word
        member = self._member(client, event, now_ns)
        client.meter.read(event.process, event.use)
        self._settle(client.gpus, client)
        if len(client.members) == 1:
            client.meter.mark(now_ns)
        if client.phase is Phase.IDLE:
            client.meter.freeze(event.process)
        member.unfinished = event.unfinished
        member.wants = event.wants and is_current
        member.is_idle = is_current and _says_idle(client, event)
        if client.phase is Phase.DRAINING and is_current and not event.unfinished:
            self._drained(client, event.process, event.idle_since_ns)
        elif client.phase is Phase.HOLDING and client.is_crowded and _is_idle(client):
            for gpu in client.gpus:
                gpu.ended_ns = event.idle_since_ns
            revoke(client, now_ns, done=event.process)
            client.has_returned, client.span_ns = True, 0
        return self._conclude(dict.fromkeys(client.gpus))

    def _lose(self, client: Client, process: ProcessKey, now_ns: int) -> list[ShareInstruction]:
        if process not in client.members:
            return []
        self._settle(client.gpus)
        del client.members[process]
        client.meter.forget(process)
        if client.phase is Phase.DRAINING:
            self._drained(client, process, 0)
        elif client.phase is Phase.HOLDING and client.is_crowded and _is_idle(client):
            revoke(client, now_ns)
        return self._conclude(dict.fromkeys(client.gpus))

    def _tick(
        self, uses: Mapping[tuple[ContainerKey, ProcessKey], Use], now_ns: int
    ) -> list[ShareInstruction]:
        for (key, process), use in uses.items():
            client = self._clients.get(key)
            if client and process in client.members:
                client.meter.read(process, use)
        gpus = self._due_gpus(now_ns)
        self._settle(gpus, *(self._clients[key] for key, _ in uses if key in self._clients))
        for client in holders(gpus):
            read = {process for key, process in uses if key == client.key}
            if read >= client.members.keys():
                client.meter.mark(now_ns)
            if client.phase is Phase.DRAINING:
                self._poll(client, read, now_ns)
        return [*self._unmet(gpus, now_ns), *self._conclude(gpus)]

    # Who is there.

    def _add(self, event: Joined) -> Client:
        gpus = tuple(self._gpu(uuid) for uuid in event.terms.gpus)
        accounts = tuple(Account(0.0, 1.0, 0.0, gpu.ledger) for gpu in gpus)
        meter = Meter()
        meter.mark(event.now_ns)
        client = Client(event.container, event.terms, gpus, accounts, meter, None, event.word)
        client.is_adopted = event.word != 0
        client.window = ((event.now_ns, 0), (event.now_ns, 0))
        for gpu, account in zip(gpus, accounts, strict=True):
            account.siblings = accounts
            gpu.ledger.add(account)
            gpu.clients.append(client)
        self._clients[event.container] = client
        self._change(client, event.terms)
        return client

    def _gpu(self, uuid: GpuUuid) -> Gpu:
        return self._gpus.setdefault(uuid, Gpu(uuid, Quota(self._settings)))

    def _change(self, client: Client, terms: Terms) -> None:
        """Its terms are these from now on; what it owes or is owed stays."""
        client.terms = terms
        for account in client.accounts:
            account.request = terms.request_pct / 100
            account.limit = terms.limit_pct / 100
            account.claim_ns = max(terms.request_pct, 1) / 100 * self._settings.window_ms * MS
            account.ledger.is_stale = True
        limit = terms.limit_pct / 100
        if limit >= 1:
            client.credit = None
        elif client.credit is None:
            client.credit = Credit(limit, client.quota_ns, self._now_ns)
            client.is_open = False
        else:
            client.credit.limit = limit

    def _member(self, client: Client, event: Reported, now_ns: int) -> Member:
        member = client.members.get(event.process)
        if member is None:
            member = client.members[event.process] = Member()
            if client.is_adopted:
                client.meter.begin(event.process, event.use, now_ns)
            if client.phase is Phase.DRAINING:
                client.pending.add(event.process)
        return member

    # What was used.

    def _settle(self, gpus: Iterable[Gpu], *heard: Client) -> None:
        """Charge what was used up to now: to who holds these GPUs, and to others that were heard of."""
        for client in dict.fromkeys([*holders(gpus), *heard]):
            used_ns = client.meter.settle(self._now_ns)
            self._pay(client, used_ns)
            if not used_ns:
                continue
            for gpu, account in zip(client.gpus, client.accounts, strict=True):
                gpu.ledger.charge(account, used_ns)
            if client.phase is Phase.DRAINING or client.phase is Phase.IDLE:
                client.tally.overrun_ns += used_ns
            self._measure_gap(client)
            self._slide(client)

    def _pay(self, client: Client, used_ns: int) -> None:
        if client.credit is not None:
            enough_ns = self._settings.quota_least_ms * MS
            client.credit.settle(self._now_ns, used_ns, client.quota_ns, enough_ns)

    def _measure_gap(self, client: Client) -> None:
        """From the last holder's end to the begin of this one's first stretch, if that is still seen."""
        if not client.gap_from_ns:
            return
        begun = [client.meter.first_since_ns(process, busy) for process, busy in client.gap_busy.items()]
        if any(begun):
            for gpu in client.gpus:
                gpu.quota.measured(min(since for since in begun if since) - client.gap_from_ns)
        client.gap_from_ns = 0

    def _slide(self, client: Client) -> None:
        """Keep two moments to look back to, each about a window apart."""
        _, latest = client.window
        if self._now_ns - latest[0] >= self._settings.window_ms * MS:
            client.window = (latest, (self._now_ns, client.meter.used_ns))

    def _used_pct(self, client: Client) -> float:
        since_ns, used_ns = client.window[0]
        if self._now_ns <= since_ns:
            return 0.0
        return 100 * (client.meter.used_ns - used_ns) / (self._now_ns - since_ns)

    def _unmet(self, gpus: Iterable[Gpu], now_ns: int) -> list[ShareInstruction]:
        unmet: list[ShareInstruction] = []
        for client in _on(gpus):
            if not client.span_ns or now_ns < span_end_ns(client, self._settings):
                continue
            self._hold_on(client, now_ns)
            span_ns = now_ns - client.span_ns
            used_ns = client.meter.used_ns - client.span_used_ns
            if 100 * max(used_ns, client.span_held_ns) / span_ns < client.terms.request_pct - UNMET_PCT:
                worst = max(client.gpus, key=client.lag_ns)
                pct = 100 * used_ns / span_ns
                unmet.append(Unmet(client.key, worst.uuid, pct, client.terms.request_pct, span_ns / S))
            self._begin_span(client, now_ns)
        return unmet

    def _begin_span(self, client: Client, now_ns: int) -> None:
        client.span_ns, client.span_used_ns, client.span_held_ns = now_ns, client.meter.used_ns, 0

    def _hold_on(self, client: Client, now_ns: int) -> None:
        """Count how long it has held since its span began."""
        if client.phase is not Phase.IDLE:
            client.span_held_ns += now_ns - max(client.granted_ns, client.span_ns)

    # What comes of it.

    def _drained(self, client: Client, process: ProcessKey, ended_ns: int) -> None:
        client.pending.discard(process)
        for gpu in client.gpus:
            gpu.ended_ns = max(gpu.ended_ns, ended_ns)
        if not client.pending:
            release(client, self._now_ns)

    def _poll(self, client: Client, read: set[ProcessKey], now_ns: int) -> None:
        """Who was silent since its container lost its token, and has nothing under way, has no work."""
        if not client.was_open and now_ns >= poll_ns(client):
            client.polled_ns = now_ns
            idle = {process for process in client.pending & read if not client.meter.is_busy(process)}
            client.pending -= idle
        if now_ns >= drain_end_ns(client, self._settings):
            for process in client.pending:
                client.meter.freeze(process)
            client.pending.clear()
        elif client.was_open:
            return
        if not client.pending:
            release(client, now_ns)

    def _due_gpus(self, now_ns: int) -> dict[Gpu, None]:
        due = [c for c in self._clients.values() if c.due_ns is not None and c.due_ns <= now_ns]
        return dict.fromkeys(gpu for client in due for gpu in client.gpus)

    def _conclude(self, gpus: dict[Gpu, None]) -> list[ShareInstruction]:
        """Decide on these GPUs, and tell all there what changed."""
        now_ns = self._now_ns
        for client in _on(gpus):
            self._note_wants(client, now_ns)
            self._pay(client, 0)
        decide(gpus, now_ns)
        clients = _on(gpus)
        for client in clients:
            self._relax(client, now_ns)
        instructions: list[ShareInstruction] = []
        for client in clients:
            word = gates.next_word(client.word, _state(client), is_contended=_is_contended(client))
            if word != client.word:
                client.word = word
                instructions.append(SetGate(client.key, word))
            client.due_ns = due_ns(client, self._settings, now_ns)
        return instructions

    def _note_wants(self, client: Client, now_ns: int) -> None:
        client.update_demand()
        if client.is_wanting:
            if not client.wanted_ns:
                client.wanted_ns = now_ns
                client.has_returned |= client.phase is Phase.IDLE and now_ns >= client.idled_ns + HOLD_NS
                if client.has_returned or not client.span_ns:
                    self._begin_span(client, now_ns)
        else:
            client.wanted_ns = 0

    def _relax(self, client: Client, now_ns: int) -> None:
        """Nobody is metered for nothing."""
        if client.phase is Phase.HOLDING:
            if client.is_crowded:
                client.crowded_ns = now_ns
            elif client.credit is None and (
                client.is_lone or now_ns >= client.crowded_ns + self._settings.relax_s * S
            ):
                client.is_open, client.span_ns = True, 0
            if now_ns >= client.looked_ns + client.quota_ns:
                client.looked_ns, client.looked_used_ns = now_ns, client.meter.used_ns
        elif client.phase is Phase.IDLE and client.is_lone and client.credit is None:
            grant(client, now_ns, is_open=True)


def _on(gpus: Iterable[Gpu]) -> list[Client]:
    return list({client: None for gpu in gpus for client in gpu.clients})


def _says_idle(client: Client, event: Reported) -> bool:
    """Whether it has nothing to do; not before it had the time to begin, as threads that waited wake up late."""
    if event.wants or event.unfinished:
        return False
    return event.idle_since_ns > client.granted_ns or event.now_ns >= client.granted_ns + HOLD_NS


def _is_idle(client: Client) -> bool:
    return all(member.is_idle for member in client.members.values())


def _is_contended(client: Client) -> bool:
    return client.phase is Phase.HOLDING and not client.is_open and client.is_crowded


def _state(client: Client) -> GateState:
    if client.phase is not Phase.HOLDING:
        return GateState.SHUT
    return GateState.OPEN if client.is_open else GateState.METERED
