"""Kubernetes quantities (`4Gi`, `1500M`, `250m`) to whole numbers and back, exactly, without floats.

The grammar is Kubernetes' `resource.Quantity`: a decimal number, then a binary suffix (Ki … Ei), a decimal
suffix (n, u, m, k, M, G, T, P, E) or an exponent (`1e3`).
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Final

from plimsoll.part.errors import InputError

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_SIZE: Final = "write a number such as 512Mi, 4Gi or 2"
"""The remedy for a bad size."""
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_REMEMBERED: Final = 4096
"""Quantities whose values are kept: far more than the shapes of pods in a cluster, and less than a megabyte."""
# Longer than any real quantity and short enough that no exponent can make the arithmetic expensive.
_FORM: Final = re.compile(
    r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20}))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,2}))?",
    re.ASCII,  # Kubernetes knows no other digits, and Python's numbers do
)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,63}")  # as long as a label's value
_INT64: Final = range(-(2**63), 2**63)


def parse_exact(text: str | float, field: str, remedy: str = _SIZE) -> Fraction:
    """The exact value of a quantity.

    Args:
        text: the quantity as written; YAML may already have made a number of it.
        field: the field's name, for the error message.
        remedy: the error message's remedy.

    Raises:
        InputError: `text` is no quantity.
    """
    value = _value_of(str(text))
    if value is None:
        raise InputError(field, text, "is not a quantity", remedy)
    return value


@lru_cache(maxsize=_REMEMBERED)
def _value_of(text: str) -> Fraction | None:
    """The value of a quantity, or None for another text. A cluster's pods ask for few different quantities."""
    matched = _FORM.fullmatch(text.strip())
    if matched is None:
        return None
    number, suffix, exponent = matched.groups()
    if exponent is not None:
        return _scaled(number, 10, int(exponent))
    if suffix in _BINARY:
        return _scaled(number, KIB, _BINARY[suffix])
    return _scaled(number, 10, _DECIMAL[suffix or ""])


@lru_cache(maxsize=_REMEMBERED)
def _milli_of(text: str) -> int | None:
    """The thousandths of a quantity, away from zero where they are not whole; None for another text."""
    value = _value_of(text)
    if value is None:
        return None
    return ceil(value * 1000) if value >= 0 else floor(value * 1000)


@lru_cache(maxsize=_REMEMBERED)
def _whole_of(text: str) -> int | None:
    """The value of a quantity that is a whole number, 0 or more; None for another text."""
    value = _value_of(text)
    return int(value) if value is not None and value >= 0 and value.denominator == 1 else None


def _scaled(number: str, base: int, power: int) -> Fraction:
    up, down = (base**power, 1) if power >= 0 else (1, base**-power)
    return Fraction(int(number) * up, down) if number.isdigit() else Fraction(number) * up / down


def parse_whole(text: str | float, field: str, unit: str) -> int:
    """A quantity that must be a whole number, 0 or more, of `unit`.

    Raises:
        InputError: `text` is no quantity, negative, or not whole.
    """
    whole = _whole_of(str(text))
    if whole is not None:
        return whole
    value = parse_exact(text, field, _SIZE if unit == "bytes" else f"write a number alone, in {unit}")
    if value < 0:
        raise InputError(field, text, "is negative", f"give 0 or more {unit}")
    near = f", such as {write_bytes(floor(value / MIB) * MIB)}" if unit == "bytes" and value > MIB else ""
    raise InputError(field, text, "is not a whole number", f"give whole {unit}{near}")


def parse_size(text: str | float, field: str, gpus: int = 1) -> int:
    """Bytes of GPU memory that a container declares in total over its GPUs; 0 declares none.

    A number without a unit is a number of bytes, also where its author meant another unit. No program runs in less
    than 1Mi, so such a size is refused.

    Raises:
        InputError: `text` is no whole number of bytes, or leaves less than 1Mi for a GPU.
    """
    size = parse_whole(text, field, "bytes")
    if 0 < size < MIB * gpus:
        problem = (
            f"is {size} byte{'' if size == 1 else 's'}, and a container needs {write_bytes(MIB)} or more"
        )
        is_bare = str(text).isdecimal()
        if is_bare and size < 512 * KIB:  # of Mi: no GPU has as much
            meant = f"{size}Gi" if size < 128 else f"{size}Mi"
        else:
            meant = write_bytes(MIB * gpus)
        on_each = " on each of its GPUs" if gpus > 1 else ""
        raise InputError(field, text, problem + on_each, f"write the unit, such as {meant}")
    return size


def parse_milli(text: str | float, field: str) -> int:
    """A quantity in thousandths, rounded up as Kubernetes does (`250m` → 250, `1` → 1000).

    Raises:
        InputError: `text` is no quantity, or negative.
    """
    milli = _milli_of(str(text))
    if milli is None:
        raise InputError(field, text, "is not a quantity", _SIZE)
    if milli < 0:
        raise InputError(field, text, "is negative", "give 0 or more")
    return milli


def plain_int(text: str) -> int | None:
    """A whole number of 64 bits in ASCII digits, with or without a sign; None for any other text.

    This is Go's `ParseInt`.
    """
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def write_bytes(count_bytes: int) -> str:
    """Bytes exactly, as a quantity: by the largest binary unit that leaves a whole number (`24Gi`, `1500Ki`, `7`)."""
    value, names = count_bytes, ("", *_BINARY)
    power = 0
    while value and value % KIB == 0 and power < len(_BINARY):
        value, power = value // KIB, power + 1
    return f"{value}{names[power]}"


def format_bytes(count_bytes: float) -> str:
    """Bytes for people: three significant digits and a binary unit (`1.18Gi`, `512Mi`, `0`)."""
    value = float(count_bytes)
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(value) < KIB or unit == "Ti":
            break
        value /= KIB
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return digits + unit
