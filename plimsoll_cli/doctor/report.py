"""The findings for people, readable at 80 columns and without colours: a line for each, and its remedy below."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from plimsoll_cli.doctor.examine import Group
from plimsoll_cli.doctor.finding import Finding, Verdict

WIDTH: Final = 80
"""The columns of the lines where no terminal shows them."""
NARROWEST: Final = 40
NAME_CHARS: Final = 12
"""The columns of the names of checks, at least. A longer name makes the column wider."""

_MARKS: Final = {
    Verdict.OK: ("ok  ", "green"),
    Verdict.WARNING: ("warn", "yellow"),
    Verdict.FAILED: ("FAIL", "bold red"),
    Verdict.SKIPPED: ("skip", "dim"),
}
_NOUNS: Final = {
    Verdict.OK: "ok",
    Verdict.WARNING: "to watch",
    Verdict.FAILED: "failed",
    Verdict.SKIPPED: "skipped",
}


def shown(groups: Iterable[Group], width: int) -> Iterator[Text]:
    """The lines, each at most `width` characters where its words allow that."""
    found: Counter[Verdict] = Counter()
    groups = tuple(groups)
    names = max((len(one.check) + 2 for group in groups for one in group.findings), default=0)
    for group in groups:
        yield Text(group.name, style="bold")
        for finding in group.findings:
            found[finding.verdict] += 1
            yield from _finding(finding, max(width, NARROWEST), max(names, NAME_CHARS))
    yield Text()
    yield Text(", ".join(f"{found[verdict]} {noun}" for verdict, noun in _NOUNS.items() if found[verdict]))


def _finding(finding: Finding, width: int, name_chars: int) -> Iterator[Text]:
    mark, style = _MARKS[finding.verdict]
    indent = " " * (2 + len(mark) + 2)
    head = f"{finding.check:<{name_chars}}"
    first, *more = _wrapped(finding.text, width - len(indent) - name_chars) or [""]
    yield Text.assemble("  ", (mark, style), f"  {head}{first}")
    for line in more:
        yield Text(indent + " " * name_chars + line)
    for place, line in enumerate(_wrapped(finding.remedy, width - len(indent) - name_chars - 2)):
        yield Text(indent + " " * name_chars + ("→ " if place == 0 else "  ") + line)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, NARROWEST // 2), break_long_words=False, break_on_hyphens=False)
