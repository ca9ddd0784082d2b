"""How a GPU's time would be divided if it could be divided as finely as one likes."""

from collections.abc import Sequence

from hook.broker.core.shares.settings import FLOOR


def water_level(bounds: Sequence[tuple[float, float]], total: float) -> list[float]:
    """Each rate is at least the first of its bounds and at most the second, and otherwise as high as all others.

    It is what KubeShare's three steps (Yeh et al., HPDC 2020, §4.5) come to when their quota goes to 0: nobody passes
    its limit (step 1), everybody gets its request first (step 2), and the rest goes to whoever uses least, so that
    those between their bounds end at one level (step 3).

    Args:
        bounds: request and limit of each, as parts of 1.
        total: what there is to divide.

    Returns:
        The rates; their sum is the total unless the bounds forbid it: then all requests, or all limits.
    """
    if total <= sum(least for least, _ in bounds):
        return [least for least, _ in bounds]
    if total >= sum(most for _, most in bounds):
        return [most for _, most in bounds]
    level = _level(bounds, total)
    return [min(max(level, least), most) for least, most in bounds]


def _level(bounds: Sequence[tuple[float, float]], total: float) -> float:
    """Raise the level from bend to bend of the sum, which grows by the number of those who rise with it."""
    bends = sorted([(least, 1) for least, _ in bounds] + [(most, -1) for _, most in bounds])
    reached, rising, level = sum(least for least, _ in bounds), 0, 0.0
    for bend, change in bends:
        gain = rising * (bend - level)
        if reached + gain >= total:
            break
        reached, level, rising = reached + gain, bend, rising + change
    return level + (total - reached) / rising if rising else level


def dues(bounds: Sequence[tuple[float, float]]) -> list[float]:
    """What each is due of all that is served, given its request and its limit; their sum is 1.

    Requests come first, the rest goes to whoever has least, and nobody is due more than its limit.
    """
    rates = water_level([(max(min(request, limit), FLOOR), limit) for request, limit in bounds], 1.0)
    total = sum(rates)
    return [rate / total for rate in rates]
