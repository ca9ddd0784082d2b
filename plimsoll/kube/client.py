"""Authenticated bytes to and from the API server: the only module that uses the generated client.

`kubernetes.aio` provides configuration, credentials and certificates. Its requests, typed decoding, watch and bind
are not used (see the package's docstring). What always holds: every await has a deadline. Every failure is one of a
few errors, split by what the caller does next. A patch states its kind. `connect` imports `kubernetes`, which takes
more than a second; importing this module does not.
"""

import asyncio
import enum
import importlib
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import structlog
from aiohttp.abc import AbstractStreamWriter

from plimsoll.kube import credentials as kube_credentials
from plimsoll.kube import kubeconfig as kubeconfig_check
from plimsoll.kube.credentials import Credentials, Token, file_credentials, plugin_credentials
from plimsoll.kube.exec_plugin import CredentialsError, exec_plugin
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.errors import InputError, PlimsollError

Query = Sequence[tuple[str, str]]
Body = Mapping[str, object]

REQUEST_TIMEOUT_S: Final = 30.0
"""The API server itself ends ordinary requests after 60 s; a scheduler should not wait that long."""
HEADERS_TIMEOUT_S: Final = 30.0
"""A watch must send its headers within this time, however long it then stays open."""
IN_CLUSTER: Final = kubeconfig_check.IN_CLUSTER

JSON: Final = "application/json"
UNCHECKED: Final = (("fieldValidation", "Ignore"),)
"""The query of every write. By default the API server looks for unknown fields in each body, which takes it some
percent of a bind, and answers with warnings; nothing here reads these."""
KEEP_ALIVE_S: Final = 60.0
"""Idle connections stay open so long, below the API server's own limit: a new one costs a TLS handshake."""
READ_BUFFER_BYTES: Final = 2**21
"""A burst of watch events is read in few chunks."""
LONGEST_LINE_BYTES: Final = 2**24
"""More than etcd stores in one object, several times over."""
PROBE_AFTER_S: Final = 15
PROBE_EVERY_S: Final = 5
PROBES: Final = 3
"""TCP keep-alive: the kernel probes a connection that was silent for 15 s, and ends it after three probes without an
answer. So a watch on a server whose machine is gone, or behind a cut network, ends after 30 s."""
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403

_SHOWN_CHARS: Final = 200

log = structlog.get_logger("plimsoll.kube.client")


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
    known = {404: NotFoundError, 409: ConflictError, 410: GoneError}
    if status in known:
        return known[status](message, status, answer.reason)
    if status in (408, 425, 429) or status >= 500:
        return TransientError(message, status, answer.reason, _retry_after_s(retry_after, answer))
    if status == UNAUTHORIZED:
        message += f"; {REFUSED_LOGIN}"
    elif status == FORBIDDEN and _BY_RBAC.search(
        answer.message
    ):  # policies and quotas have words of their own
        message += "; give this account the right by a Role or ClusterRole"
    return RefusedError(message, status, answer.reason)


REFUSED_LOGIN: Final = "it does not accept this token or certificate; renew it in the kubeconfig"

_BY_RBAC: Final = re.compile(r'User ".*" cannot ')
"""The words of an authorizer; admission also answers with 403."""


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


before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=lambda: None)
"""A check that each request with a body makes at the moment at which it is sent. The check may raise `OSError`; then
nothing is sent. That moment may come long after the call: a connection is opened first, or the event loop stands
still."""


@dataclass(frozen=True, slots=True)
class KubeClient:
    """`Transport` over a session of our own; `connect` makes and closes it.

    The generated client's requests are not used. It walks each body twice, and reads `~/.netrc` and the environment
    at every request, in two threads. Without that, a request takes 0.15 ms of CPU in place of 0.53 ms.

    Attributes:
        host: the server's address, with its scheme.
        http: the session. It has no time limits: `KubeClient` sets them.
        way: what each request needs to reach the server: a proxy, a TLS server name, or nothing.
        credentials: for each request. A request that is refused with 401 is sent once more with renewed ones.
        outage: logs once, and not for each request, that no server answers, or that it refuses the credentials.
    """

    host: str
    http: aiohttp.ClientSession
    way: Mapping[str, Any]
    credentials: Credentials
    outage: Outage = field(default_factory=lambda: Outage(log.warning))

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        return await self._request("GET", path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        return await self._request("POST", path, body=body)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        return await self._request("PATCH", path, body=body, content_type=kind.value)

    async def delete(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        return await self._request("DELETE", path, body=body)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport`."""
        what = f"watch {path}"
        with self._transient(what, HEADERS_TIMEOUT_S):
            async with asyncio.timeout(HEADERS_TIMEOUT_S):
                response = await self._open("GET", path, query, None, JSON)
        try:
            if response.status != 200:
                raise await self._failure(response, what)
            yield _lines(response.content, what, read_timeout_s)
        finally:
            # Not release(): it would wait for the rest of a stream that has no end.
            response.close()

    @asynccontextmanager
    async def reading(
        self, path: str, query: Query, headers: Mapping[str, str], limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The open answer of a GET, whatever its status: for what the API server proxies.

        Raises:
            TransientError: there was no answer; while the answer is read, aiohttp raises its own errors.
        """
        with self._transient(f"GET {path}", REQUEST_TIMEOUT_S):
            more = {"headers": headers, "timeout": limits, "allow_redirects": False}
            response = await self._open("GET", path, query, None, JSON, more)
        try:
            yield response
        finally:
            response.close()

    async def _request(
        self, method: str, path: str, query: Query = (), body: Body | None = None, content_type: str = JSON
    ) -> bytes:
        what = f"{method} {path}"
        with self._transient(what, REQUEST_TIMEOUT_S):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await self._open(method, path, query, body, content_type)
                try:
                    if not 200 <= response.status < 300:
                        raise await self._failure(response, what)
                    return await response.read()
                finally:
                    response.release()

    async def _open(
        self,
        method: str,
        path: str,
        query: Query,
        body: Body | None,
        content_type: str,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        if self.http.closed:  # as for a request of another part while this one ends
            raise TransientError(f"{method} {path}: the client is closed")
        address = self.host + path
        if body is not None and method != "DELETE":
            query = UNCHECKED
        if query:
            address += "?" + urlencode(query, quote_via=quote)
        data = None if body is None else msgspec.json.encode(body)

        async def send(authorization: str | None) -> aiohttp.ClientResponse:
            headers = {"Content-Type": content_type, **more.get("headers", {})}
            if authorization is not None:
                headers["Authorization"] = authorization
            sent = None if data is None else _Body(data)
            return await self.http.request(
                method, address, data=sent, **{**self.way, **more, "headers": headers}
            )

        authorization = await self.credentials.header()
        response = await send(authorization)
        if response.status != UNAUTHORIZED:
            self.outage.ended()
            return response
        try:
            if not await self.credentials.replaced(authorization):
                return response
        except BaseException:
            response.close()
            raise
        response.release()
        return await send(await self.credentials.header())

    @contextmanager
    def _transient(self, what: str, timeout_s: float) -> Iterator[None]:
        """Turn the failures of a connection into `TransientError`, and log the first of an outage."""
        try:
            yield
        except TimeoutError as error:
            raise self._away(what, f"no answer in {timeout_s:.0f} s") from error
        except CredentialsError as error:
            failure = TransientError(f"{what}: {_text_of(error)}")
            failure.is_logged = True  # each failed renewal is logged
            raise failure from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._away(what, cause_of(error, "the kubeconfig")) from error

    def _away(self, what: str, cause: str) -> TransientError:
        failure = TransientError(f"{what}: {cause}")
        self.outage.failed("the API server is out of reach, retrying", cause, server=self.host)
        failure.is_logged = True
        return failure

    async def _failure(self, response: aiohttp.ClientResponse, what: str) -> ApiError:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            body = f"(body unread: {_text_of(error)})".encode()
        failure = error_from(response.status, body, what, response.headers.get("Retry-After"))
        if response.status == UNAUTHORIZED:
            self.outage.failed("the API server is of no use, retrying", REFUSED_LOGIN, server=self.host)
            failure.is_logged = True
        return failure


class _Body(aiohttp.BytesPayload):
    """A body that is checked when it is sent. aiohttp sends the headers together with it."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._check = before_sending.get()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Check, then send in the same step of the event loop."""
        self._check()
        await super().write_with_length(writer, content_length)


async def _lines(content: aiohttp.StreamReader, what: str, read_timeout_s: float) -> AsyncIterator[bytes]:
    """The lines of an answer, read a chunk at a time: reading each line by itself costs more than decoding it."""
    loop = asyncio.get_running_loop()
    rest = b""
    deadline_s = loop.time() + read_timeout_s
    while True:
        try:
            async with asyncio.timeout_at(deadline_s):
                chunk = await content.readany()
        except TimeoutError as error:
            raise TransientError(f"{what}: silent for {read_timeout_s:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{what}: {_text_of(error)}") from error
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if not chunk:
            break
        if len(rest) > LONGEST_LINE_BYTES:
            raise TransientError(f"{what}: a line has more than {LONGEST_LINE_BYTES} bytes")
        if lines:
            deadline_s = loop.time() + read_timeout_s
    if rest:
        yield rest


def _text_of(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def kubeconfig_path(where: str) -> Path | None:
    """The argument of `connect` for a setting: a path, or None for `in-cluster`."""
    return None if where == IN_CLUSTER else Path(where)


@asynccontextmanager
async def connect(kubeconfig: Path | None = None, context: str | None = None) -> AsyncIterator[KubeClient]:
    """A client for a cluster, closed when the context ends; entering sends nothing.

    Args:
        kubeconfig: a kubeconfig file, or several with `:`; None for the pod's own service account.
        context: the context of the kubeconfig; None for the current one.

    Raises:
        InputError: the configuration is missing or unreadable.
    """
    configuration, tls, credentials = await _configured(kubeconfig, context)
    connector = aiohttp.TCPConnector(
        ssl=tls,
        limit=configuration.connection_pool_maxsize,
        keepalive_timeout=KEEP_ALIVE_S,
        socket_factory=_probed_socket,
    )
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": JSON, "User-Agent": "plimsoll"},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
        ) as http:
            yield KubeClient(configuration.host, http, _way(configuration), credentials)
    finally:
        await credentials.close()


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose peer is probed by the kernel while it is silent."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    # Probes are not sent while sent data waits for its acknowledgement, so that has a limit of its own.
    made.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S)
    )
    return made


async def _configured(
    kubeconfig: Path | None, context: str | None
) -> tuple[Any, ssl.SSLContext, Credentials]:
    # Importing, reading files and reading certificates all block, in coroutines too, so each step runs in a thread.
    # The step that may run an exec plugin has an event loop in its thread.
    if kubeconfig is not None:
        # Without this the library prints a line, and reports another error.
        await asyncio.to_thread(kubeconfig_check.check_kubeconfig, "kubeconfig", str(kubeconfig))
    client, config = await asyncio.to_thread(_imported)
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            await asyncio.to_thread(config.load_incluster_config, configuration, try_refresh_token=False)
            credentials = await file_credentials(kube_credentials.SERVICE_TOKEN)
        else:
            loading = config.load_kube_config(
                str(kubeconfig), context=context, client_configuration=configuration
            )
            loader = await asyncio.to_thread(asyncio.run, loading)
            # The file that has the cluster may be one of several, and no public name tells it.
            kubeconfig_check.check_server(loader._cluster.path, configuration.host)  # noqa: SLF001
            credentials = await _credentials(configuration, loader)
        # Nothing but its reading of certificates is used, so it has no connection to close.
        api = await asyncio.to_thread(client.ApiClient, configuration)
    except InputError:
        raise
    except Exception as error:  # the library raises errors of any type here, TypeError included
        raise await asyncio.to_thread(_unusable, kubeconfig, error) from error
    return configuration, api.rest_client.ssl_context, credentials


def _unusable(kubeconfig: Path | None, error: Exception) -> InputError:
    text = _text_of(error)
    if kubeconfig is None:
        remedy = "run in a pod with a service account, or name a kubeconfig"
        return InputError("kubeconfig", IN_CLUSTER, f"is no choice here ({text})", remedy)
    if "current-context" in text:
        remedy = "choose one by `kubectl config use-context`"
        return InputError("kubeconfig", str(kubeconfig), f"names no current context ({text})", remedy)
    if isinstance(
        error, TypeError | AttributeError | KeyError
    ):  # the library met another type than it expects
        damage = kubeconfig_check.damage("kubeconfig", str(kubeconfig))
        if damage is not None:
            return damage
    remedy = "mend it: `kubectl --kubeconfig` with this file must work"
    return InputError("kubeconfig", str(kubeconfig), f"cannot be used ({text})", remedy)


def _way(configuration: Any) -> dict[str, Any]:  # noqa: ANN401 - untyped library
    """How requests reach the server: by the kubeconfig, or a proxy that the environment names when we connect."""
    way: dict[str, Any] = {}
    if configuration.tls_server_name:
        way["server_hostname"] = configuration.tls_server_name
    server = urlsplit(configuration.host)
    proxy = configuration.proxy
    if not proxy and not proxy_bypass(server.hostname or ""):
        proxy = getproxies().get(server.scheme)
    if proxy:
        address = urlsplit(proxy)
        credentials, _, host = address.netloc.rpartition("@")
        way["proxy"] = address._replace(netloc=host).geturl()
        headers = dict(configuration.proxy_headers or {})
        if credentials:
            headers["Proxy-Authorization"] = f"Basic {b64encode(unquote(credentials).encode()).decode()}"
        if headers:
            way["proxy_headers"] = headers
    return way


def _imported() -> tuple[Any, Any]:
    """`kubernetes.aio`'s client and config."""
    client, config = (importlib.import_module(f"kubernetes.aio.{name}") for name in ("client", "config"))
    return client, config


async def _credentials(configuration: Any, loader: Any) -> Credentials:  # noqa: ANN401 - untyped library
    """The credentials of a kubeconfig's user. Only an exec plugin's token and a token's file are ever renewed."""
    header = configuration.api_key.get("BearerToken")
    node = loader._user  # noqa: SLF001 - nothing public gives the user's entry; None without one
    user = node.value if node is not None else {}
    if "auth-provider" in user:
        return Credentials(Token(header))
    if "exec" in user and (header is not None or configuration.cert_file is None):
        plugin = exec_plugin(user["exec"])
        return plugin_credentials(plugin, header, getattr(loader, "exec_plugin_expiry", None))
    if "tokenFile" in user:
        return await file_credentials(Path(node.path).parent / user["tokenFile"])
    return Credentials(Token(header))
