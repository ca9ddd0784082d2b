"""The cause of a failed connection and its remedy, in one line for people: NATS, Redis, the API server, a socket.

A library says `TimeoutError()` or `[Errno 13]`; a person wants to know what to change. What always holds: a text made
here names no password. A cause that is not known here is shown as the library names it.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final, Protocol

from plimsoll.part.limits import limit_of

LOGIN: Final = (
    "authorization violation",
    "authentication expired",
    "authentication required",
    "authentication timeout",
    "wrongpass",
    "noauth",
    "invalid username-password",
    "without any password configured",
)
"""Words by which NATS and Redis refuse a user or password."""

RIGHTS: Final = ("permissions violation", "noperm", "no permissions")
"""Words by which NATS and Redis refuse an action that a known user may not do."""

ANSWERS: Final = (
    (
        "the server offers no tls",
        "no password was sent",
        "give the server TLS; or, where others cannot read the network, demand none in {login}",
    ),
    (
        "serviceunavailableerror: code=none",
        "the server has no JetStream, or has just started",
        "start it with --jetstream, or name another in {login}",
    ),
    (
        "insufficient storage resources",
        "the server's JetStream has too little room for the stream",
        "give it more (max_file_store), or lower PLIMSOLL_STREAM_MAX_BYTES",
    ),
    (
        "subjects overlap with an existing stream",
        "another stream of this server holds the subjects plimsoll.v1.>",
        "take them from that stream, or name an account or server of Plimsoll's own in {login}",
    ),
    (
        "stream not found",
        "nobody has made it yet",
        "start a monitor or a placer, which make it, or name another server in {login}",
    ),
    (
        "message size exceeds maximum allowed",
        "the stream takes no message so large",
        "give it the size that messages may have (`nats stream edit PLIMSOLL --max-msg-size=-1`)",
    ),
    (
        "maximum bytes exceeded",
        "the stream is full, and keeps its old messages",
        "have it drop them (`nats stream edit PLIMSOLL --discard=old`), or give it more room",
    ),
    (
        "maximum messages exceeded",
        "the stream has its most messages, and keeps its old ones",
        "have it drop them (`nats stream edit PLIMSOLL --discard=old`)",
    ),
    (
        "no response from stream",
        "no stream takes this subject",
        "give the stream PLIMSOLL the subject plimsoll.v1.>, or delete it, so that a monitor makes it",
    ),
    (
        "expected stream does not match",
        "another stream of this server takes this subject",
        "give the subject plimsoll.v1.> to the stream PLIMSOLL alone, or name another account in {login}",
    ),
    (
        "against a read only replica",
        "it is a read-only replica",
        "name its master, which its INFO shows as master_host, in {login}",
    ),
    ("command not allowed when used memory", "it is full, and evicts nothing", "raise its maxmemory"),
    (
        "misconf",
        "it takes no writes, because it cannot save to its disk",
        "see its log, and free some room on its disk",
    ),
)
"""Words by which NATS and Redis refuse a request, each with the cause and the remedy."""

LONGEST_TEXT: Final = 300
"""The most characters of a library's own words."""


def cause_of(error: BaseException, login: str) -> str:
    """The cause and the remedy: `the user or password is refused; mend it in PLIMSOLL_NATS_URL`.

    Args:
        error: an error that a library raised. The errors behind it are examined too.
        login: the setting that holds address, user and password, for the remedy.
    """
    chain = tuple(_chain(error))
    words = " ".join(str(one).lower() for one in chain)
    if any(text in words for text in LOGIN):
        return f"the user or password is refused; mend it in {login}"
    if any(text in words for text in RIGHTS):
        return f"the user has too few rights ({_text(error)}); give them to the user in {login}"
    for text, problem, remedy in ANSWERS:
        if text in words:
            return f"{problem} ({_text(error)}); {remedy.format(login=login)}"
    for one in chain:
        for kinds, problem, remedy in _KNOWN:
            if isinstance(one, kinds):
                return f"{problem} ({_text(one)}); {remedy.format(login=login)}"
    return f"{_text(error)}; see the server's log, and {login}"


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that a disk, or the quota on it, is full."""
    return any(
        (isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT))
        or "database or disk is full" in str(one)
        for one in _chain(error)
    )


def disk_remedy(error: BaseException, otherwise: str, whose: str = "its") -> str:
    """The remedy for a disk that refuses, or for a limit; `otherwise` where it is neither full nor read-only."""
    if (reached := limit_of(error)) is not None:
        return reached
    if is_disk_full(error):
        return f"free some room on {whose} disk"
    if any(
        (isinstance(one, OSError) and one.errno == errno.EROFS) or "readonly database" in str(one)
        for one in _chain(error)
    ):
        return f"see in the kernel's log (`dmesg`) why {whose} disk is read-only, and mount it writable"
    return otherwise


class _Bound(Protocol):
    def __call__(self, event: str, /, **details: Any) -> object:  # noqa: ANN401 - as the log takes
        """Write a line."""


class Outage:
    """Logs each cause of an outage once, and not at each attempt."""

    def __init__(self, write: _Bound) -> None:
        """Write lines by `write`, for instance `log.warning`."""
        self._write = write
        self._written: set[tuple[str, str]] = set()

    def failed(self, event: str, error: str, **details: object) -> None:
        """An attempt failed; `details` may differ from one attempt to the next."""
        if (event, error) not in self._written:
            self._written.add((event, error))
            self._write(event, error=error, **details)

    @property
    def is_on(self) -> bool:
        """Whether an attempt failed since the last success."""
        return bool(self._written)

    def ended(self) -> None:
        """The server answers: the next failure is another outage."""
        self._written.clear()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it came from, the innermost first: it says most."""
    found: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is None or one in found:
            continue
        found.append(one)
        of_group = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        inner = (one.__cause__, one.__context__, getattr(one, "os_error", None), *one.args, *of_group)
        rest.extend(each for each in inner if isinstance(each, BaseException))
    return reversed(found)


def _text(error: BaseException) -> str:
    text = str(error).strip().removesuffix(".") or type(error).__name__
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


_KNOWN: Final[tuple[tuple[tuple[type[BaseException], ...], str, str], ...]] = (
    (
        (ssl.SSLCertVerificationError,),
        "the server's certificate is not trusted",
        "give its authority in {login}",
    ),
    ((ssl.SSLError,), "TLS fails", "is there a server with TLS at the address in {login}?"),
    ((socket.gaierror,), "the host name is not known", "correct it in {login}, or mend the DNS"),
    (
        (PermissionError,),
        "this user may not open it",
        "run as its owner or as root, or name another in {login}",
    ),
    (
        (FileNotFoundError, NotADirectoryError),
        "it does not exist",
        "start its server, or mend the path in {login}",
    ),
    (
        (ConnectionRefusedError,),
        "nothing listens there",
        "start the server, or correct the address in {login}",
    ),
    (
        (ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError),
        "the server closed the connection",
        "see its log, and whether {login} names the right one",
    ),
    (
        (TimeoutError,),
        "there was no answer in time",
        "is the server up, is the network between open, and does {login} name the right one?",
    ),
)
