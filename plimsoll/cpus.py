"""Lists of CPUs as Linux writes them: `0-3,8`."""

import re
from collections.abc import Iterable
from typing import Final

from plimsoll.part.errors import InputError

MOST_CPUS: Final = 1024
"""CPUs of a node, as many as Linux has by default."""

_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def ranges(cpus: Iterable[int]) -> str:
    """CPUs in rising order as Linux lists them: `0-3,8`."""
    found: list[list[int]] = []
    for cpu in cpus:
        if found and found[-1][1] == cpu - 1:
            found[-1][1] = cpu
        else:
            found.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def parse_cpus(text: str, field: str) -> frozenset[int]:
    """The CPUs of a list as Linux writes it; none for an empty text.

    Raises:
        InputError: the text is no such list, or names a CPU past `MOST_CPUS`; `field` is its place in the message.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        bounds = _RANGE.fullmatch(part)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if not first <= last < MOST_CPUS:
            remedy = f"write numbers below {MOST_CPUS} as Linux does: 0-3,8"
            raise InputError(field, text[:80], "is no list of CPUs", remedy)
        found.update(range(first, last + 1))
    return frozenset(found)
