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
"""Of a quota: who uses less than that of its turn, while others wait, is owed no more turns in a row."""


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
        if now_ns < holder.granted_ns + HOLD_NS or not _is_ahead(waiter, holder, gpu, now_ns):
            return False
        is_time |= is_turn_over(holder, now_ns) or _is_urgent(waiter, holder, gpu)
    return is_time


def is_turn_over(holder: Client, now_ns: int) -> bool:
    """Whether its quota is used up."""
    return now_ns >= holder.granted_ns + holder.quota_ns


def is_slack(holder: Client, now_ns: int) -> bool:
    """Whether it left most of its latest quota unused."""
    quota_ns = holder.quota_ns
    if now_ns < holder.looked_ns + quota_ns:
        return False
    return holder.meter.used_ns - holder.looked_used_ns < SLACK * quota_ns


def unused_ns(holder: Client, now_ns: int) -> float:
    """How much of its latest quota it left unused; of no more, as nobody may have waited before."""
    return min(holder.quota_ns, now_ns - holder.looked_ns - (holder.meter.used_ns - holder.looked_used_ns))


def _is_ahead(waiter: Client, holder: Client, gpu: Gpu, now_ns: int) -> bool:
    if is_slack(holder, now_ns):
        return True
    return waiter.lag_ns(gpu) >= holder.lag_ns(gpu)


def _is_urgent(waiter: Client, holder: Client, gpu: Gpu) -> bool:
    """KubeShare's step 2: one below its request need not wait for the quota of one above its own.

    Among those who always have work, who is below is only a question of whose turn it is. So it must have idled
    before, or be behind by more than any order of turns explains.
    """
    waiter_ns, holder_ns = waiter.lag_ns(gpu), holder.lag_ns(gpu)
    if not waiter_ns > 0 > holder_ns:
        return False
    return waiter.has_returned or waiter_ns - holder_ns > FAR * holder.quota_ns
