"""The tokens: who comes to hold them, and how they leave their holder.

What always holds: each GPU has one holder at most, and it keeps that place until its work is done, or until it had
`grace_ms` for it. A container holds the tokens of all its GPUs or none.
"""

from collections.abc import Iterable

from hook.broker.core.facts import ProcessKey
from hook.broker.core.shares import gaps
from hook.broker.core.shares.clients import Client, Gpu, Phase
from hook.broker.core.shares.yielding import takes


def decide(gpus: Iterable[Gpu], now_ns: int) -> list[Client]:
    """Give and take tokens until nothing is to be done at this moment.

    Args:
        gpus: where something happened.
        now_ns: now.

    Returns:
        Who got tokens or lost them.
    """
    touched = _reach(gpus)
    moved = [holder for holder in holders(touched) if holder.phase is Phase.HOLDING and not holder.may_run]
    for holder in moved:
        revoke(holder, now_ns)
        touched = _reach([*touched, *holder.gpus])
    while step := _step(touched, now_ns):
        moved += step
        touched = _reach([*touched, *(gpu for client in step for gpu in client.gpus)])
    return moved


def holders(gpus: Iterable[Gpu]) -> list[Client]:
    """Who has tokens of these GPUs, each once, always in the same order."""
    return list(dict.fromkeys(gpu.holder for gpu in gpus if gpu.holder))


def revoke(client: Client, now_ns: int, *, done: Iterable[ProcessKey] = ()) -> None:
    """Take its tokens; they are free when its work is done.

    Args:
        client: who holds them.
        now_ns: now.
        done: who just said that it has no work.
    """
    client.phase = Phase.DRAINING
    client.lingers_ns = 0
    client.revoked_ns = client.polled_ns = now_ns
    client.was_open, client.is_open = client.is_open, False
    client.pending = {process for process, member in client.members.items() if not member.is_straggling}
    client.pending.difference_update(done)
    client.quieten()
    if not client.pending and not client.was_open:
        release(client, now_ns)


def release(client: Client, now_ns: int) -> None:
    """Its work is done, or nobody waits for it any more."""
    gaps.note_drain(client, now_ns)
    client.phase = Phase.IDLE
    client.pending.clear()
    client.idled_ns = now_ns
    client.tally.drain_ns += now_ns - client.revoked_ns
    client.span_held_ns += now_ns - max(client.granted_ns, client.span_ns)
    for process in client.members:
        client.meter.freeze(process)
    for gpu in client.gpus:
        gpu.holder = None
    client.update_demand()


def grant(client: Client, now_ns: int, *, is_open: bool = False) -> None:
    """It holds the tokens of all its GPUs from now on."""
    client.phase = Phase.HOLDING
    client.is_open = is_open
    client.granted_ns = client.looked_ns = client.crowded_ns = now_ns
    client.looked_used_ns = client.meter.used_ns
    client.meter.mark(now_ns)
    client.quieten()
    for gpu in client.gpus:
        assert gpu.holder is None
        gpu.holder = client
    _note_grant(client, now_ns)
    client.update_demand()


def _note_grant(client: Client, now_ns: int) -> None:
    client.tally.grants += 1
    if client.wanted_ns:
        client.tally.waits += 1
        client.tally.waited_ns += now_ns - client.wanted_ns
    client.wanted_ns = 0
    client.has_returned = False
    client.gap_from_ns = max(gpu.ended_ns for gpu in client.gpus)
    client.gap_busy = {process: client.meter.busy_ns(process) for process in client.members}
    for gpu in client.gpus:
        gpu.ended_ns = 0


def _reach(gpus: Iterable[Gpu]) -> dict[Gpu, None]:
    """These, and those that wait with them: what one of several GPUs was kept free for, another may have decided."""
    reached = dict.fromkeys(gpus)
    new = list(reached)
    while new:
        new = [
            gpu
            for near in new
            for client in near.clients
            if len(client.gpus) > 1 and client.is_waiting
            for gpu in client.gpus
            if gpu not in reached
        ]
        reached.update(dict.fromkeys(new))
    return reached


def _step(gpus: Iterable[Gpu], now_ns: int) -> list[Client]:
    """One grant, or tokens taken from some; whose."""
    reserved: set[Gpu] = set()
    for client in _waiting(gpus):
        if not reserved.isdisjoint(client.gpus):
            continue
        if all(gpu.holder is None for gpu in client.gpus):
            grant(client, now_ns)
            return [client]
        if takes(client, now_ns):
            taken = [holder for holder in holders(client.gpus) if holder.phase is Phase.HOLDING]
            for holder in taken:
                revoke(holder, now_ns)
            if taken:
                return taken
            reserved.update(client.gpus)
    return []


def _waiting(gpus: Iterable[Gpu]) -> list[Client]:
    """Who waits and may run, whoever is farthest behind its due first, and then who waits longest."""
    waiting = dict.fromkeys(
        client for gpu in gpus for client in gpu.clients if client.is_waiting and client.may_run
    )
    return sorted(waiting, key=lambda client: (-client.urgency_ns, client.wanted_ns, client.key))
