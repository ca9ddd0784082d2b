"""Patterns of numbers in quotes, which no range of a JSON schema holds.

What always holds: a number is written without leading zeros, as the parts read it.
"""

from decimal import Decimal
from typing import Final

_FRACTION: Final = "([.][0-9]+)?"


def integers(low: int, high: int | None) -> str:
    """The whole numbers from `low` to `high`, both included; no end without `high`. Neither is negative."""
    first = str(low)
    if high is None:
        return f"{_same(first, '9' * len(first))}|[1-9][0-9]{{{len(first)},}}"
    parts = []
    while len(first) < len(str(high)):
        parts.append(_same(first, "9" * len(first)))
        first = "1" + "0" * len(first)
    return "|".join((*parts, _same(first, str(high))))


def decimals(low: Decimal, high: int | None, *, above: bool) -> str:
    """The numbers from `low` to `high`, with or without decimals; `above` leaves out a whole `low` itself."""
    start = int(low)
    digits = str(low).partition(".")[2]
    if digits:
        parts = [f"{start}[.]({_at_least(digits)})"]
    elif above:
        parts = [f"{start}[.][0-9]*[1-9][0-9]*"]
    else:
        parts = [f"{start}{_FRACTION}"]
    if high is None or start + 1 < high:
        parts.append(f"({integers(start + 1, None if high is None else high - 1)}){_FRACTION}")
    if high is not None:
        parts.append(f"{high}([.]0+)?")
    return "|".join(parts)


def _at_least(digits: str) -> str:
    """The decimals that are `digits` or more: more at one of its places, or the same at all."""
    greater = [
        f"{digits[:place]}[{int(digit) + 1}-9][0-9]*" for place, digit in enumerate(digits) if digit != "9"
    ]
    return "|".join((*greater, f"{digits}[0-9]*"))


def _same(low: str, high: str) -> str:
    """The numbers between two of as many digits."""
    if not low:
        return ""
    rest, zeros, nines = len(low) - 1, "0" * (len(low) - 1), "9" * (len(low) - 1)
    if low[1:] == zeros and high[1:] == nines:
        digit = low[0] if low[0] == high[0] else f"[{low[0]}-{high[0]}]"
        return digit + (f"[0-9]{{{rest}}}" if rest else "")
    if low[0] == high[0]:
        return f"{low[0]}({_same(low[1:], high[1:])})"
    from_digit, to_digit = int(low[0]), int(high[0])
    parts = []
    if low[1:] != zeros:
        parts.append(f"{low[0]}({_same(low[1:], nines)})")
        from_digit += 1
    if high[1:] != nines:
        parts.append(f"{high[0]}({_same(zeros, high[1:])})")
        to_digit -= 1
    if from_digit <= to_digit:
        parts.append(_same(f"{from_digit}{zeros}", f"{to_digit}{nines}"))
    return "|".join(parts)
