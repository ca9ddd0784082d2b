"""One node's compute time: events in, gate words out.

Which container may run on which GPU is decided by `tokens` and `yielding`, from what `accounts` say each is behind
its due; here events become entries there, and what changed becomes instructions.

What is asked of the processes (the library): whoever finds the gate shut reports that it wants, once per gate word;
whoever was metered or open reports, when the gate is shut, as soon as its work is done (`unfinished` false, with this
gate word), and after an open gate at once, even before it knows when its work will be done. One of a container of
several GPUs may have work anew after that: what others of it have under way waits for it on the device (`stalls.h`).
"""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares import gaps, gates
from hook.broker.core.shares.accounts import Account, Credit
from hook.broker.core.shares.charging import Charging
from hook.broker.core.shares.clients import Client, Gpu, Member, Phase
from hook.broker.core.shares.deadlines import STEP_NS, drain_end_ns, due_ns, poll_ns
from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.quota import Quota
from hook.broker.core.shares.settings import MS, US, S, ShareSettings
from hook.broker.core.shares.spans import begin_span, unmet
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
    Use,
)
from hook.broker.core.shares.yielding import HOLD_NS, wasted_ns
from plimsoll.names import GpuUuid

SEEN: Final = 2
"""Times `idle_us`, until the broker knows of a pause: with the way there and back, where nothing is late."""


class Scheduler:
    """The pure state machine."""

    def __init__(self, settings: ShareSettings) -> None:
        """Begin with no container."""
        self._settings = settings
        self._clients: dict[ContainerKey, Client] = {}
        self._whole: dict[ContainerKey, Terms] = {}
        self._gpus: dict[GpuUuid, Gpu] = {}
        self._charging = Charging(settings)
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
        """Whose `Use` the tick at `due_ns` wants to know: of all who use a GPU where something is due about then."""
        due_ns = self.due_ns
        if due_ns is None:
            return []
        users = [user for user in holders(_gpus(self._due(due_ns + STEP_NS))) if not user.is_open]
        return [(user.key, process) for user in users for process in user.members]

    def uses(self, container: ContainerKey, now_ns: int) -> ShareUse | None:
        """What a container had of its GPUs up to now; None for one that is not registered."""
        if container in self._whole:
            return ShareUse(self._whole[container], GateState.OPEN)
        client = self._clients.get(container)
        if client is None:
            return None
        tally = client.tally
        waiting_ns = max(0, now_ns - client.wanted_ns) if client.wanted_ns else 0
        return ShareUse(
            terms=client.terms,
            state=gates.state_of(client.word),
            used_pct=self._charging.used_pct(client, max(now_ns, self._now_ns)),
            busy_s=tally.used_ns / S,
            waited_s=(tally.waited_ns + waiting_ns) / S,
            drain_s=tally.drain_ns / S,
            overrun_s=tally.overrun_ns / S,
            waits=tally.waits,
            grants=tally.grants,
        )

    # Events.

    def _join(self, event: Joined) -> list[ShareInstruction]:
        if event.terms.whole:
            self._whole[event.container] = event.terms
            word = gates.next_word(event.word, GateState.OPEN, is_contended=False)
            return [SetGate(event.container, gates.renewed(word))]
        known = self._clients.get(event.container)
        if known:
            self._charging.settle(known.gpus, self._now_ns, known)
            self._change(known, event.terms)
            return self._conclude(known.gpus, _on(known.gpus))
        client = self._add(event)
        # Always written, so that whoever waits on a word that an earlier broker wrote reports again.
        client.word = gates.renewed(gates.next_word(event.word, GateState.SHUT, is_contended=False))
        first = SetGate(client.key, client.word)
        later = self._conclude(client.gpus, _on(client.gpus))
        return later if client.word != first.word else [first, *later]

    def _leave(self, container: ContainerKey) -> list[ShareInstruction]:
        self._whole.pop(container, None)
        client = self._clients.pop(container, None)
        if client is None:
            return []
        self._charging.settle(client.gpus, self._now_ns)
        for gpu, account in zip(client.gpus, client.accounts, strict=True):
            if gpu.holder is client:
                gpu.holder = None
            gpu.ledger.remove(account)
            gpu.clients.remove(client)
            if not gpu.clients:
                del self._gpus[gpu.uuid]
        return self._conclude(client.gpus, _on(client.gpus))

    def _report(self, client: Client, event: Reported, now_ns: int) -> list[ShareInstruction]:
        is_current = event.gate_word == client.word
        member = self._member(client, event, now_ns)
        client.meter.read(event.process, event.use)
        if not event.unfinished and not event.use.busy_since_ns:
            member.is_straggling = False
        self._settle(client)
        if len(client.members) == 1:
            client.meter.mark(now_ns)
        if client.phase is Phase.IDLE:
            client.meter.freeze(event.process)
        member.wants = event.wants and is_current
        member.is_idle = is_current and _says_idle(client, event)
        if client.phase is Phase.DRAINING and is_current:
            self._drain(client, event, member)
        elif client.phase is Phase.HOLDING and client.is_crowded and _is_idle(client):
            self._pause(client, event)
        return self._conclude(client.gpus, [client])

    def _pause(self, client: Client, event: Reported) -> None:
        """A holder has nothing to do: it gives its tokens back, or keeps them for a moment."""
        if client.lingers_ns:
            gaps.end(client, self._now_ns)
        gaps.waive(client)
        if gaps.begin(client, event.idle_since_ns, self._now_ns):
            return
        self._charge_waste(client)
        for gpu in client.gpus:
            gpu.ended_ns = event.idle_since_ns
        revoke(client, self._now_ns, done=(event.process,))
        client.has_returned, client.span_ns = True, 0

    def _charge_waste(self, client: Client) -> None:
        """Of a turn that a pause ends; that its word of it came late, on a busy machine, is not its fault."""
        most_ns = SEEN * self._settings.idle_us * US
        client.hold_against(min(wasted_ns(client, self._now_ns), most_ns))

    def _lose(self, client: Client, process: ProcessKey, now_ns: int) -> list[ShareInstruction]:
        if process not in client.members:
            return []
        del client.members[process]
        self._settle(client)
        client.meter.forget(process)
        if client.phase is Phase.DRAINING:
            self._drained(client, process, 0)
        elif client.phase is Phase.HOLDING and client.is_crowded and _is_idle(client):
            revoke(client, now_ns)
        return self._conclude(client.gpus, [client])

    def _tick(
        self, uses: Mapping[tuple[ContainerKey, ProcessKey], Use], now_ns: int
    ) -> list[ShareInstruction]:
        for (key, process), use in uses.items():
            client = self._clients.get(key)
            if client and process in client.members:
                client.meter.read(process, use)
        due = self._due(now_ns)
        gpus = _gpus(due)
        self._charging.settle(gpus, now_ns, *(self._clients[key] for key, _ in uses if key in self._clients))
        for client in holders(gpus):
            read = {process for key, process in uses if key == client.key}
            if read >= client.members.keys():
                client.meter.mark(now_ns)
            if client.phase is Phase.DRAINING:
                self._poll(client, read, now_ns)
            elif client.lingers_ns and gaps.end(client, now_ns):
                revoke(client, now_ns, done=client.members)
                client.has_returned, client.span_ns = True, 0
        return [*unmet(due, self._settings, now_ns), *self._conclude(gpus, due)]

    def _settle(self, client: Client) -> None:
        """Charge what was used up to now, by this one and by who holds its GPUs."""
        if client.astray and not any(member.is_straggling for member in client.members.values()):
            self._charging.come_back(client, client.gpus, self._now_ns)
        else:
            self._charging.settle(client.gpus, self._now_ns, client)

    # Who is there.

    def _add(self, event: Joined) -> Client:
        gpus = tuple(self._gpu(uuid) for uuid in event.terms.gpus)
        accounts = tuple(Account(0.0, 1.0, 0.0, gpu.ledger) for gpu in gpus)
        meter = Meter()
        meter.mark(event.now_ns)
        client = Client(event.container, event.terms, gpus, accounts, meter, None, event.word)
        client.is_adopted = event.word != 0
        client.was_held = gates.state_of(event.word) is not GateState.OPEN
        client.past = ((event.now_ns, 0), (event.now_ns, 0))
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
            enough_ns = self._settings.quota_least_ms * MS * (1 - limit)
            client.credit = Credit(limit, enough_ns, self._now_ns)
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

    # What comes of it.

    def _drain(self, client: Client, event: Reported, member: Member) -> None:
        if not event.unfinished:
            self._drained(client, event.process, event.idle_since_ns)
        elif not member.is_straggling:
            client.pending.add(event.process)  # It was done, and follows now what others of it wait for.

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
            self._charging.go_astray(client, now_ns)
        elif client.was_open:
            return
        if not client.pending:
            release(client, now_ns)

    def _due(self, now_ns: int) -> list[Client]:
        return [c for c in self._clients.values() if c.due_ns is not None and c.due_ns <= now_ns]

    def _conclude(self, gpus: Iterable[Gpu], heard: Iterable[Client]) -> list[ShareInstruction]:
        """Decide on these GPUs, and tell what changed: of those heard of, and of holders before and after."""
        now_ns = self._now_ns
        concerned = dict.fromkeys([*heard, *holders(gpus)])
        for client in concerned:
            self._note_wants(client, now_ns)
            self._charging.pay(client, now_ns, 0)
        for client in holders(gpus):
            _look(client, now_ns)
        for client in decide(gpus, now_ns):
            self._charging.pay(
                client, now_ns, 0
            )  # What it did not use while it was idle is no more than a quota.
            concerned[client] = None
        for client in concerned:
            self._relax(client, now_ns)
        return [step for client in concerned for step in self._tell(client, now_ns)]

    def _tell(self, client: Client, now_ns: int) -> Iterable[SetGate]:
        client.due_ns = due_ns(client, self._settings, now_ns)
        word = gates.next_word(client.word, _state(client), is_contended=_is_contended(client))
        if word != client.word:
            client.word = word
            yield SetGate(client.key, word)

    def _note_wants(self, client: Client, now_ns: int) -> None:
        client.heard()
        if client.is_wanting:
            if not client.wanted_ns:
                gaps.note(client, now_ns)
                client.wanted_ns = now_ns
                client.has_returned |= client.phase is Phase.IDLE and now_ns >= client.idled_ns + HOLD_NS
                if client.has_returned or not client.span_ns:
                    begin_span(client, now_ns)
        elif client.wanted_ns:
            client.tally.waited_ns += now_ns - client.wanted_ns
            client.wanted_ns = 0

    def _relax(self, client: Client, now_ns: int) -> None:
        """Nobody is metered for nothing."""
        if client.phase is Phase.HOLDING:
            if client.is_crowded:
                client.crowded_ns = now_ns
            elif client.credit is None and (
                (client.is_lone and not client.was_held)
                or now_ns >= client.crowded_ns + self._settings.relax_s * S
            ):
                client.is_open, client.was_held, client.span_ns = True, False, 0
        elif client.phase is Phase.IDLE and client.is_lone and client.credit is None and not client.was_held:
            grant(client, now_ns, is_open=True)


def _look(holder: Client, now_ns: int) -> None:
    """Look, once a quota, whether a holder uses what others wait for."""
    if holder.phase is Phase.HOLDING and not holder.is_open and now_ns >= holder.looked_ns + holder.quota_ns:
        holder.hold_against(wasted_ns(holder, now_ns))
        holder.looked_ns, holder.looked_used_ns = now_ns, holder.meter.used_ns


def _on(gpus: Iterable[Gpu]) -> list[Client]:
    return list({client: None for gpu in gpus for client in gpu.clients})


def _gpus(clients: Iterable[Client]) -> dict[Gpu, None]:
    return dict.fromkeys(gpu for client in clients for gpu in client.gpus)


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
