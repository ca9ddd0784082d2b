"""The transport to an API server that our adapters need, and its errors, split by what the caller does next."""

import enum
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from plimsoll.part.errors import PlimsollError

Query = Sequence[tuple[str, str]]
Body = Mapping[str, object]

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404

REFUSED_LOGIN: Final = "it does not accept this token or certificate; renew it in the kubeconfig"

_SHOWN_CHARS: Final = 200

_BY_RBAC: Final = re.compile(r'User ".*" cannot ')
"""The words of an authorizer; admission also answers with 403."""

_BY_WEBHOOK: Final = "failed calling webhook"
"""The words of an API server whose webhook gave no answer (`failurePolicy: Fail`); the status is 500."""


class ApiError(PlimsollError):
    """The API server, or a proxy before it, did not fulfil the request.

    Attributes:
        status: HTTP status, or None if no answer came.
        reason: Kubernetes' machine-readable reason (`AlreadyExists`, …), or empty.
    """

    is_logged = False
    """Whether the client has logged the cause, which is the same for all requests."""

    def __init__(self, message: str, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ConflictError(ApiError):
    """409: another client changed the object first. Read it again before deciding."""


class NotFoundError(ApiError):
    """404: the object does not exist, or not any more."""


class GoneError(ApiError):
    """410: the resourceVersion is too old. List the collection again."""


class RefusedError(ApiError):
    """Any other 4xx: repeating the same request is pointless."""


class TransientError(ApiError):
    """No answer, 429 or 5xx: repeat the request later. A write **may have happened** all the same.

    Attributes:
        retry_after_s: the pause that the server requested, or None.
        is_unwritten: a webhook of admission did not answer. Admission comes before the store, so a write surely did
            **not** happen.
    """

    def __init__(
        self, message: str, status: int | None = None, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status, reason)
        self.retry_after_s = retry_after_s
        self.is_unwritten = False


class PatchKind(enum.Enum):
    """How the server merges a patch; lists behave differently in each."""

    STRATEGIC = "application/strategic-merge-patch+json"  # lists merge by key; built-in kinds only
    MERGE = "application/merge-patch+json"  # RFC 7386: lists are replaced


class Transport(Protocol):
    """The client that our Kubernetes adapters need. All paths are absolute (`/api/v1/pods`).

    Every method raises one of `ConflictError`, `NotFoundError`, `GoneError`, `RefusedError`, `TransientError`.
    Cancelling abandons the request; a write may have happened then.
    """

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Read an object or a list; returns the answer's body."""

    async def post(self, path: str, body: Body) -> bytes:
        """Create an object or subresource; returns the answer's body."""

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """Change an object or its subresource; returns the answer's body."""

    async def delete(self, path: str, body: Body) -> bytes:
        """Delete an object by these `DeleteOptions`; returns the answer's body."""

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch; yields its lines. A line that takes longer than `read_timeout_s` raises `TransientError`."""


class _StatusDetails(msgspec.Struct, frozen=True):
    retryAfterSeconds: float | None = None  # noqa: N815 - the API's name


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    code: int | None = None
    details: _StatusDetails | None = None


def error_from(status: int, body: bytes, what: str, retry_after: str | None = None) -> ApiError:
    """The error for an answer whose status is not 2xx.

    Args:
        status: HTTP status.
        body: a `Status` object in JSON, or a proxy's text.
        what: the request, for the message.
        retry_after: the header `Retry-After`; only its form in seconds is understood.
    """
    try:
        answer = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        answer = _Status(message=body[:_SHOWN_CHARS].decode("utf-8", "replace").strip())
    message = f"{what}: {status} {answer.reason}: {answer.message}"
    known = {NOT_FOUND: NotFoundError, 409: ConflictError, 410: GoneError}
    if status == NOT_FOUND and not answer.reason:  # no Kubernetes Status about an object
        message += "; nothing is served at this path: the kubeconfig's server is wrong, or the cluster lacks this API"
    if status in known:
        return known[status](message, status, answer.reason)
    if status in (408, 425, 429) or status >= 500:
        error = TransientError(message, status, answer.reason, _retry_after_s(retry_after, answer))
        error.is_unwritten = _BY_WEBHOOK in answer.message
        return error
    if status == UNAUTHORIZED:
        message += f"; {REFUSED_LOGIN}"
    elif status == FORBIDDEN and _BY_RBAC.search(answer.message):  # policies and quotas have other words
        message += "; give this account the right by a Role or ClusterRole"
    return RefusedError(message, status, answer.reason)


def _retry_after_s(header: str | None, answer: _Status) -> float | None:
    if header is not None and header.isascii() and header.strip().isdecimal():
        return float(header)
    return answer.details.retryAfterSeconds if answer.details else None


def status_error(document: bytes | msgspec.Raw, what: str) -> ApiError:
    """The error of a watch's `ERROR` event, whose object is a `Status`."""
    try:
        code = msgspec.json.decode(document, type=_Status).code
    except msgspec.MsgspecError:
        code = None
    return error_from(code or 500, bytes(document), what)


def text_of(error: Exception) -> str:
    """Another library's error in one line, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
