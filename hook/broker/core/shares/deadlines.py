"""When a container must be looked at again, if nothing happens before."""

import math
from collections.abc import Iterator
from typing import Final

from hook.broker.core.shares.accounts import Credit
from hook.broker.core.shares.clients import Client, Gpu, Phase
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.yielding import HOLD_NS

LOOK_NS: Final = 100 * MS
"""Between two looks at what a metered container uses whose GPUs nobody else wants."""

POLL_NS: Final = 1 * MS
"""From the loss of a token to the first look whether a silent process is idle; then twice as long, and so on. Long
enough that a launch which passed the gate just before shows in its slot."""

HUSH_NS: Final = 200 * MS
"""For so long a container that was not metered is waited for before its first word: its slots say nothing, and a
program without a context never will."""

STEP_NS: Final = 1 * MS
"""Never look sooner again for a moment that was only estimated."""

LEAST_PACE: Final = 0.01
"""Two lags that come closer more slowly than this are looked at again soon enough for other reasons."""


def due_ns(client: Client, settings: ShareSettings, now_ns: int) -> int | None:
    """The next moment at which time alone changes something for this container; None for never."""
    if client.phase is Phase.HOLDING:
        moments = _holding(client, settings, now_ns)
    elif client.phase is Phase.DRAINING:
        moments = _draining(client, settings)
    else:
        moments = _waiting(client, settings, now_ns)
    first = min(moments, default=math.inf)
    return None if math.isinf(first) else max(round(first), now_ns + 1)


def poll_ns(client: Client) -> float:
    """When the slots of its silent processes should be read next."""
    return client.polled_ns + max(POLL_NS, client.polled_ns - client.revoked_ns)


def drain_end_ns(client: Client, settings: ShareSettings) -> float:
    """When others go on although its work is not known to be done."""
    grace_ns = settings.grace_ms * MS
    if client.was_open and not client.pending:
        return client.revoked_ns + min(grace_ns, HUSH_NS)
    return client.revoked_ns + grace_ns


def span_end_ns(client: Client, settings: ShareSettings) -> float:
    """When it is to be seen whether it got its request."""
    return client.span_ns + settings.unmet_s * S


def _holding(client: Client, settings: ShareSettings, now_ns: int) -> Iterator[float]:
    if client.is_open:
        return
    if client.lingers_ns:
        yield client.lingers_ns
    if client.credit is not None:
        yield _spent_ns(client, client.credit, now_ns)
    yield client.looked_ns + (client.quota_ns if client.is_crowded else max(LOOK_NS, client.quota_ns))
    if client.is_crowded:
        yield from (_hand_over_ns(gpu, now_ns) for gpu in client.gpus)
    elif client.credit is None:
        yield client.crowded_ns + settings.relax_s * S
    if client.span_ns:
        yield span_end_ns(client, settings)


def _spent_ns(client: Client, credit: Credit, now_ns: int) -> float:
    """The soonest that its credit can be spent: it may have run since it was last asked, for all that is known.

    Where nothing was to be learned for long, as a slot cannot be read, it is not asked again all the time.
    """
    unknown_ns = client.meter.unknown_ns(now_ns)
    least_ns = LOOK_NS if unknown_ns > LOOK_NS else STEP_NS if unknown_ns else 0
    return now_ns + max(credit.lasts_ns(unknown_ns), least_ns)


def _hand_over_ns(gpu: Gpu, now_ns: int) -> float:
    """When somebody may take the token, if all goes on as now."""
    waiting = [other for other in gpu.clients if other.is_waiting and other.may_run]
    rivals = [other for other in waiting if len(other.gpus) > 1]
    # Of those who wait for this GPU alone, who is farthest behind comes first, or who may come before its turn.
    singles = [other for other in waiting if len(other.gpus) == 1]
    returned = [other for other in singles if other.has_returned]
    rivals += [max(some, key=lambda other: other.lag_ns(gpu)) for some in (singles, returned) if some]
    moment_ns = min((_take_ns(rival, now_ns) for rival in rivals), default=math.inf)
    return moment_ns if moment_ns > now_ns else now_ns + STEP_NS


def _take_ns(rival: Client, now_ns: int) -> float:
    """When it may take the tokens of all its GPUs, as `yielding.takes` has it."""
    ahead_ns, turn_ns = float(now_ns), math.inf
    for gpu in rival.gpus:
        holder = gpu.holder
        if holder is None or holder.phase is not Phase.HOLDING or holder.is_open:
            turn_ns = now_ns
            continue
        own, its = holder.account(gpu), rival.account(gpu)
        if own.lag_ns > its.lag_ns:
            even_ns = (own.lag_ns - its.lag_ns) / max(1 - own.part + its.part, LEAST_PACE)
            ahead_ns = max(ahead_ns, now_ns + even_ns)
        ahead_ns = max(ahead_ns, holder.granted_ns + HOLD_NS)
        turn_ns = min(turn_ns, holder.granted_ns + holder.quota_ns)
        if rival.has_returned and its.lag_ns > 0:
            turn_ns = min(turn_ns, now_ns + own.lag_ns / max(1 - own.part, LEAST_PACE))
    return max(ahead_ns, turn_ns)


def _draining(client: Client, settings: ShareSettings) -> Iterator[float]:
    yield drain_end_ns(client, settings)
    if client.pending and not client.was_open:
        yield poll_ns(client)


def _waiting(client: Client, settings: ShareSettings, now_ns: int) -> Iterator[float]:
    if not client.wants:
        return
    if client.credit is not None and client.credit.is_spent:
        yield now_ns + client.credit.recovers_ns(settings.quota_least_ms * MS)
    if client.span_ns:
        yield span_end_ns(client, settings)
