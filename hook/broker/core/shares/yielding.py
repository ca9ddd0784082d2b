"""When one who holds a GPU's token has to yield it to one who waits."""

from typing import Final

from hook.broker.core.shares.clients import Client, Gpu, Phase
from hook.broker.core.shares.settings import MS

HOLD_NS: Final = 2 * MS
"""Nobody loses a token sooner: several times what a hand-over costs."""

FAR: Final = 2
"""Quotas that a waiter must be farther behind than the holder to have the token at once. Less would end turns among
equals early: within one turn the distance changes by up to twice its length."""

SLACK: Final = 0.5
"""Who leaves more than this part of the time unused that others waited for has it counted as used."""


def takes(waiter: Client, now_ns: int) -> bool:
    """Whether the time has come to take all its tokens from those who have them.

    On each of its GPUs the token must be free or about to be, or with somebody who is not metered or less behind; and
    on one of them this must be the moment to hand it over. Then all are taken together, so that none of them is kept
    waiting for another for long.
    """
    is_time = False
    for gpu in waiter.gpus:
        holder = gpu.holder
        if holder is None or holder.phase is Phase.DRAINING:
            is_time = True
            continue
        if holder.is_open:
            is_time = True
            continue
        if now_ns < holder.granted_ns + HOLD_NS or waiter.lag_ns(gpu) < holder.lag_ns(gpu):
            return False
        is_time |= is_turn_over(holder, now_ns) or _is_urgent(waiter, holder, gpu)
    return is_time


def is_turn_over(holder: Client, now_ns: int) -> bool:
    """Whether its quota is used up."""
    return now_ns >= holder.granted_ns + holder.quota_ns


def wasted_ns(holder: Client, now_ns: int) -> float:
    """For how long since it was looked at it kept its tokens from others, unused; 0 if it used most of the time."""
    unused_ns = now_ns - holder.looked_ns - (holder.meter.used_ns - holder.looked_used_ns)
    if unused_ns < SLACK * (now_ns - holder.looked_ns):
        return 0.0
    others = (
        other for gpu in holder.gpus for other in gpu.clients if other is not holder and other.is_wanting
    )
    waited_ns = now_ns - min((other.wanted_ns for other in others if other.wanted_ns), default=now_ns)
    # No more than a turn: if nobody looked for longer, it was not this one that kept them waiting.
    return min(unused_ns, waited_ns, holder.quota_ns)


def _is_urgent(waiter: Client, holder: Client, gpu: Gpu) -> bool:
    """KubeShare's step 2: one below its request need not wait for the quota of one above its own.

    Among those who always have work, who is below is only a question of whose turn it is. So it must have idled
    before, or be behind by more than any order of turns explains.
    """
    waiter_ns, holder_ns = waiter.lag_ns(gpu), holder.lag_ns(gpu)
    if not waiter_ns > 0 > holder_ns:
        return False
    return waiter.has_returned or waiter_ns - holder_ns > FAR * holder.quota_ns
