"""Removes secrets from texts that leave the cluster in a bug report.

What always holds: a secret that the command itself was given is removed wherever it stands. Others are found by their
form, or by the name before them. A text that may be a secret is removed too: a report with a gap can be read, and a
password that was published cannot be taken back.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from plimsoll.bus.access import BusAccess

REMOVED: Final = "(removed)"
SHORTEST: Final = 4
"""Characters below which a known secret is not searched for: removing each `a` would leave no report."""

_NAMES: Final = (
    r"[\w.-]*(?:passw(?:or)?d|passwd|secret|token|api[_-]?key|authorization|credential|seed|private[_-]?key)"
    r"[\w.-]*"
)

_FORMS: Final = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"------BEGIN [A-Z0-9 ]*------.*?(?:------END [A-Z0-9 ]*------|\Z)", re.DOTALL), REMOVED),
    # The password of a URL may hold any character but a blank or a quote.
    (re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s\"'<>]*@"), rf"\1{REMOVED}@"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"), REMOVED),  # JSON web tokens
    (re.compile(r"\bS[ACNOUX][A-Z2-7]{50,}\b"), REMOVED),  # seeds of nkeys
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{4,}", re.IGNORECASE), rf"\1 {REMOVED}"),
    # `"password": "x"`, also inside a JSON text in JSON, and `password=x`, `--token x`.
    (
        re.compile(rf"((?:\\*[\"'])?{_NAMES}(?:\\*[\"'])?\s*[:=]\s*\\*[\"'])[^\"'\\\n]+", re.IGNORECASE),
        rf"\1{REMOVED}",
    ),
    (re.compile(rf"(\b{_NAMES}\s*[:=]\s*)[^\s\"',;&{{}}\[\]\\]+", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(rf"(--{_NAMES}\s+)[^\s\"',\\]+", re.IGNORECASE), rf"\1{REMOVED}"),
)
_PRIVATE: Final = re.compile(r"SECRET|TOKEN|PASSW|KEY|CREDENTIAL|SEED", re.IGNORECASE)


class Secrets:
    """The secrets that the command was given, to be removed from texts."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = sorted({one for one in known if len(one) >= SHORTEST}, key=len, reverse=True)

    @classmethod
    def of(cls, urls: Iterable[str], access: BusAccess, environment: Mapping[str, str]) -> "Secrets":
        """Passwords in these URLs, lines of the bus's private files, and variables named like secrets. Blocks."""
        known = [word for url in urls for one in url.split(",") for word in _of_url(one)]
        files = (
            access.key,
            access.credentials,
            access.nkey,
            environment.get("PLIMSOLL_PLACER_TOKEN_FILE", ""),
        )
        known += [line for path in files for line in _of_file(path)]
        known += [value for name, value in environment.items() if _PRIVATE.search(name)]
        return cls(known)

    def removed(self, text: str) -> str:
        """The text without secrets."""
        for one in self._known:
            text = text.replace(one, REMOVED)
        for form, instead in _FORMS:
            text = form.sub(instead, text)
        return text


def _of_url(url: str) -> list[str]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return []
    return [password, unquote(password)] if password else []


def _of_file(path: str) -> list[str]:
    """The lines of a file, or the secret itself where it stands in its file's place."""
    if not path:
        return []
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return [path]
    return [line.strip() for line in lines if len(line.strip()) > 20 and not line.startswith("-")]
