"""The result of a check of `plimsoll doctor`: a verdict, a sentence, and a remedy."""

import enum
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from plimsoll.part.errors import InputError

NAMES_SHOWN: Final = 5
"""Names that one sentence lists: with a thousand nodes, five show which they are and the number shows how many."""


class Verdict(enum.Enum):
    """The verdicts of a check; only `FAILED` makes the command fail."""

    OK = "ok"
    WARNING = "warning"  # it works, and something will go wrong or be missed
    FAILED = "failed"
    SKIPPED = "skipped"  # not examined; the text says why


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check.

    Attributes:
        check: its name, unique in its group.
        text: what was found, for people.
        remedy: what to do, an imperative sentence without a full stop; never empty for warnings and failures.
    """

    check: str
    verdict: Verdict
    text: str
    remedy: str = ""


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check=check, verdict=Verdict.OK, text=text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """Something wants attention."""
    return Finding(check=check, verdict=Verdict.WARNING, text=text, remedy=remedy)


def failed(check: str, text: str, remedy: str) -> Finding:
    """Something is broken."""
    return Finding(check=check, verdict=Verdict.FAILED, text=text, remedy=remedy)


def skipped(check: str, text: str, remedy: str) -> Finding:
    """The check was not made; `remedy` says how it can be."""
    return Finding(check=check, verdict=Verdict.SKIPPED, text=text, remedy=remedy)


def failed_by(check: str, error: Exception | str) -> Finding:
    """A failure from an error of ours, whose message ends with `; ` and the remedy."""
    if isinstance(error, InputError):
        text = str(error).removesuffix(f"; {error.remedy}")
        return failed(check, text, error.remedy)
    text, _, remedy = str(error).rpartition("; ")
    return failed(check, text, remedy) if text else failed(check, remedy, "see the part's log")


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: the first ones, and how many more there are."""
    every = sorted(names)
    more = len(every) - NAMES_SHOWN
    return ", ".join(every[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
