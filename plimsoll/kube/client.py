"""Authenticated bytes to and from the API server: the only module that uses the generated client.

`kubernetes.aio` provides configuration, credentials and connections. Its typed decoding, watch and bind are not used
(see the package's docstring). What always holds: every await has a deadline. Every failure is one of a few errors,
split by what the caller does next. A patch states its kind. `connect` imports `kubernetes`, which takes more than a
second; importing this module does not.
"""

import asyncio
import enum
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from plimsoll.part.errors import InputError, PlimsollError

Query = Sequence[tuple[str, str]]
Body = Mapping[str, object]

REQUEST_TIMEOUT_S: Final = 30.0
"""The API server itself ends ordinary requests after 60 s; a scheduler should not wait that long."""
HEADERS_TIMEOUT_S: Final = 30.0
"""A watch must send its headers within this time, however long it then stays open."""
IN_CLUSTER: Final = "in-cluster"
"""The value, in a setting that names a kubeconfig, for the pod's own service account."""

_SHOWN_CHARS: Final = 200


class ApiError(PlimsollError):
    """The API server, or a proxy before it, did not fulfil the request.

    Attributes:
        status: HTTP status, or None if no answer came.
        reason: Kubernetes' machine-readable reason (`AlreadyExists`, …), or empty.
    """

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
    """

    def __init__(
        self, message: str, status: int | None = None, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status, reason)
        self.retry_after_s = retry_after_s


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
    known = {404: NotFoundError, 409: ConflictError, 410: GoneError}
    if status in known:
        return known[status](message, status, answer.reason)
    if status in (408, 425, 429) or status >= 500:
        return TransientError(message, status, answer.reason, _retry_after_s(retry_after, answer))
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


@dataclass(frozen=True, slots=True)
class KubeClient:
    """`Transport` over `kubernetes.aio`; `connect` makes and closes it."""

    api: Any  # kubernetes.aio.client.ApiClient: untyped, and imported in `connect` only

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        return await self._request("GET", path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        return await self._request("POST", path, body=body)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        return await self._request("PATCH", path, body=body, content_type=kind.value)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport`."""
        what = f"watch {path}"
        response = await self._open("GET", path, query, None, "application/json")
        try:
            if response.status != 200:
                raise await self._failure(response, what)
            yield _lines(response.content, what, read_timeout_s)
        finally:
            # Not release(): it would wait for the rest of a stream that has no end.
            response.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Body | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await self._open(method, path, query, body, content_type)
                try:
                    if not 200 <= response.status < 300:
                        raise await self._failure(response, what)
                    return await response.read()
                finally:
                    response.release()
        except TimeoutError as error:
            raise TransientError(f"{what}: no answer in {REQUEST_TIMEOUT_S:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{what}: {_text_of(error)}") from error

    async def _open(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str
    ) -> aiohttp.ClientResponse:
        # The generated client's `_request_timeout` is a total, which would cut a watch: we set timeouts of our own.
        unlimited = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            async with asyncio.timeout(HEADERS_TIMEOUT_S):
                method, url, headers, sent, _ = await self.api.param_serialize(
                    method, path, None, list(query), headers, body, auth_settings=["BearerToken"]
                )
                answer = await self.api.call_api(method, url, headers, sent, _request_timeout=unlimited)
        except TimeoutError as error:
            raise TransientError(f"{method} {path}: no answer in {HEADERS_TIMEOUT_S:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{method} {path}: {_text_of(error)}") from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _failure(self, response: aiohttp.ClientResponse, what: str) -> ApiError:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            body = f"(body unread: {_text_of(error)})".encode()
        return error_from(response.status, body, what, response.headers.get("Retry-After"))


async def _lines(content: aiohttp.StreamReader, what: str, read_timeout_s: float) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(read_timeout_s):
                line = await content.readline()
        except TimeoutError as error:
            raise TransientError(f"{what}: silent for {read_timeout_s:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a line without end
            raise TransientError(f"{what}: {_text_of(error)}") from error
        if not line:
            return
        yield line


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def kubeconfig_path(where: str) -> Path | None:
    """The argument of `connect` for a setting: a path, or None for `in-cluster`."""
    return None if where == IN_CLUSTER else Path(where)


@asynccontextmanager
async def connect(kubeconfig: Path | None = None) -> AsyncIterator[KubeClient]:
    """A client for a cluster, closed when the context ends; entering sends nothing.

    Args:
        kubeconfig: a kubeconfig file, of which the current context is used; None for the pod's own service account.

    Raises:
        InputError: the configuration is missing or unreadable.
    """
    api = await _configured(kubeconfig)
    try:
        yield KubeClient(api)
    finally:
        await api.close()


async def _configured(kubeconfig: Path | None) -> Any:  # noqa: ANN401 - untyped library
    # Importing, reading files and reading certificates all block, in coroutines too, so each step runs in a thread.
    # The step that may run an exec plugin has an event loop in its thread.
    client, config = await asyncio.to_thread(_imported)
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            await asyncio.to_thread(config.load_incluster_config, configuration)
        else:
            loading = config.load_kube_config(str(kubeconfig), client_configuration=configuration)
            _keep_fresh(configuration, await asyncio.to_thread(asyncio.run, loading))
        return await asyncio.to_thread(client.ApiClient, configuration)
    except Exception as error:  # the library raises errors of any type here, TypeError included
        where = str(kubeconfig) if kubeconfig else "in-cluster service account"
        remedy = "give a readable kubeconfig, or run in a pod with a service account"
        raise InputError("kubeconfig", where, f"cannot be used ({_text_of(error)})", remedy) from error


def _imported() -> tuple[Any, Any]:
    """`kubernetes.aio`'s client and config."""
    client, config = (importlib.import_module(f"kubernetes.aio.{name}") for name in ("client", "config"))
    return client, config


def _keep_fresh(configuration: Any, loader: Any) -> None:  # noqa: ANN401 - untyped library
    """Run an exec plugin again once its token has expired; other credentials of a kubeconfig do not expire."""
    if getattr(loader, "exec_plugin_expiry", None) is None:
        return

    async def refresh(_: object) -> None:
        await loader.load_from_exec_plugin()  # does nothing while the token is valid
        configuration.api_key["BearerToken"] = loader.token

    configuration.refresh_api_key_hook = refresh
