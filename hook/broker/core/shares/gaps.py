"""Who pauses: when a pause is no reason to give a token up, and what one is owed who pauses much.

Programs pause: they read data, or the machine is busy. Who holds a token and has nothing to do gives it to who waits.
But where the waiter has had more than its due, and its kernels are long, each pause of a millisecond would cost the
holder two hundred, and its request with them: beside kernels of 200 ms, one with request 90 that paused for 1 ms in
every 50 got 19 %. So while the holder is behind its due, and is known to come back soon, its token waits for it: for
no longer than the work that this saves it. The time counts as used by the holder, so that who waits is not kept from
its own request. What a waiter can have without having much too much it is given in pauses, where it costs the least:
beside kernels of 20 ms, one with request 90 that pauses for 5 ms in every 50 gets 83 %.
"""

from typing import Final

from hook.broker.core.shares.clients import Client, Gpu, Phase
from hook.broker.core.shares.settings import MS

MOST_NS: Final = 25 * MS
"""No token waits longer than this."""

LEAST_NS: Final = 4 * MS
"""Who gives tokens back sooner than this may come in at once: its turn costs little more than the pause."""

LENT: Final = 2
"""So many times what it lately took to give a token back a waiter may have had too much, and still be let in: what
it has in pauses it need not have in turns of its own. With less, its turns fall between the pauses as well."""

LENT_MOST_NS: Final = 50 * MS
"""And never more."""

WEIGHT: Final = 1 / 4
"""Of the latest pause, of the work before it, or of the latest drain, in the average."""

COUNTED_NS: Final = 100 * MS
"""Of one pause in the average: more tells nothing of the next ones, least of all after a broker that stood still."""


def begin(client: Client, idle_ns: int, now_ns: int) -> bool:
    """A holder says that it has had nothing to do since `idle_ns`; whether it keeps its tokens for a while."""
    client.gap_ns = min(idle_ns or now_ns, now_ns)
    client.mean_work_ns += (client.meter.used_ns - client.gap_used_ns - client.mean_work_ns) * WEIGHT
    client.gap_used_ns = client.meter.used_ns
    most_ns = min((_patience_ns(client, gpu) for gpu in client.gpus), default=0.0)
    until_ns = round(client.gap_ns + most_ns)
    if client.mean_gap_ns >= most_ns or until_ns <= now_ns:
        return False
    client.lingers_ns = until_ns
    client.lingers_used_ns = client.meter.used_ns
    return True


def _patience_ns(client: Client, gpu: Gpu) -> float:
    waiting = [other for other in gpu.clients if other is not client and other.is_waiting and other.may_run]
    if not waiting:
        return MOST_NS
    first = max(waiting, key=lambda other: other.lag_ns(gpu))
    drain_ns = first.mean_drain_ns
    lent_ns = min(LENT * drain_ns, LENT_MOST_NS)
    if drain_ns < LEAST_NS or not client.lag_ns(gpu) > 0 > first.lag_ns(gpu) + lent_ns:
        return 0.0
    worked_ns = max(client.mean_work_ns, 1.0)
    # The longest p for which p ≤ (d - p) w / (w + p): of the time that it would lose it works for that part.
    return min(MOST_NS, drain_ns * worked_ns / (2 * worked_ns + client.mean_gap_ns))


def end(client: Client, now_ns: int) -> bool:
    """Look whether one that lingers has come back; whether it must go."""
    has_come_back = client.meter.used_ns != client.lingers_used_ns
    if not has_come_back and now_ns < client.lingers_ns:
        return False
    # It was to be ended then, whenever the broker comes to it.
    paused_ns = min(now_ns, client.lingers_ns) - client.gap_ns
    if has_come_back:
        paused_ns = max(0, paused_ns - (client.meter.used_ns - client.lingers_used_ns))
        note(client, client.gap_ns + paused_ns)
        for member in client.members.values():
            member.is_idle = False
    client.lingers_ns = 0
    client.looked_used_ns -= paused_ns  # so that it is not held against it once more
    client.hold_against(paused_ns)
    return not has_come_back


def note(client: Client, now_ns: int) -> None:
    """Its pause, if it was in one, is over."""
    if client.gap_ns:
        paused_ns = min(now_ns - client.gap_ns, COUNTED_NS)
        client.mean_gap_ns += (paused_ns - client.mean_gap_ns) * WEIGHT
        client.gap_ns = 0


def note_drain(client: Client, now_ns: int) -> None:
    """It gave its tokens back, or others do not wait for that any more."""
    assert client.phase is Phase.DRAINING
    client.mean_drain_ns += (now_ns - client.revoked_ns - client.mean_drain_ns) * WEIGHT


def waive(client: Client) -> None:
    """A holder has nothing to do: of what it is owed it keeps what it may yet use as it is, and the others owe less.

    While it waits its due grows as that of one that always has work, which for one that mostly pauses is more than it
    ever uses. That would add up to a debt that stops others for hours once it works without pauses. So it keeps its
    claim and what an overrun adds to that, times its whole time over the part in which it pauses.
    """
    if client.mean_gap_ns <= 0:
        return
    times = 1 + max(client.mean_work_ns, 0.0) / client.mean_gap_ns
    for gpu, account in zip(client.gpus, client.accounts, strict=True):
        overrun_ns = max((other.mean_drain_ns for other in gpu.clients if other is not client), default=0.0)
        gpu.ledger.cut(account, times * (account.claim_ns + overrun_ns))
