"""The division of a GPU's time into dues, as if the time could be divided at will."""

from collections.abc import Sequence

from hook.broker.core.shares.settings import FLOOR


def water_level(bounds: Sequence[tuple[float, float]], total: float) -> list[float]:
    """Rates within their bounds; all rates that no bound holds are equal.

    KubeShare's three steps (Yeh et al., HPDC 2020, §4.5) give the same when their quota goes to 0. No container
    passes its limit (step 1). Every container gets its request first (step 2). The rest goes to the container that
    uses least, so that all containers between their bounds end at the same level (step 3).

    Args:
        bounds: request and limit of each container, 0 to 1.
        total: the rate to divide.

    Returns:
        The rates. Their sum is the total, unless the bounds forbid that: then they are all requests, or all limits.
    """
    if total <= sum(least for least, _ in bounds):
        return [least for least, _ in bounds]
    if total >= sum(most for _, most in bounds):
        return [most for _, most in bounds]
    level = _level(bounds, total)
    return [min(max(level, least), most) for least, most in bounds]


def _level(bounds: Sequence[tuple[float, float]], total: float) -> float:
    """Raise the level from bend to bend; the sum grows with the number of rates that rise."""
    bends = sorted([(least, 1) for least, _ in bounds] + [(most, -1) for _, most in bounds])
    reached, rising, level = sum(least for least, _ in bounds), 0, 0.0
    for bend, change in bends:
        gain = rising * (bend - level)
        if reached + gain >= total:
            break
        reached, level, rising = reached + gain, bend, rising + change
    return level + (total - reached) / rising if rising else level


def dues(bounds: Sequence[tuple[float, float]]) -> list[float]:
    """Each container's due as a part of all charges, by its request and limit; the sum is 1.

    Requests come first. The rest goes to the container with the least, and no due exceeds its limit.
    """
    rates = water_level([(max(min(request, limit), FLOOR), limit) for request, limit in bounds], 1.0)
    total = sum(rates)
    return [rate / total for rate in rates]
