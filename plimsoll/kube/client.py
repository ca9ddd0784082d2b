"""Authenticated bytes to and from the API server.

What always holds: every await has a deadline. Every failure is one of the few errors of `plimsoll.kube.transport`. A
patch states its kind.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from plimsoll.kube.configuration import configured, way_to
from plimsoll.kube.connections import KEEP_ALIVE_S, Connections, HttpAnswer
from plimsoll.kube.credentials import Credentials
from plimsoll.kube.exec_plugin import CredentialsError
from plimsoll.kube.sockets import probe
from plimsoll.kube.transport import (
    REFUSED_LOGIN,
    UNAUTHORIZED,
    ApiError,
    Body,
    PatchKind,
    Query,
    TransientError,
    error_from,
    text_of,
)
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.log import get_logger

REQUEST_TIMEOUT_S: Final = 30.0
"""The API server itself ends ordinary requests after 60 s; a scheduler should not wait that long."""
HEADERS_TIMEOUT_S: Final = 30.0
"""A watch must send its headers within this time, however long it then stays open."""

JSON: Final = "application/json"
UNCHECKED: Final = "?fieldValidation=Ignore"
"""The query of every write but a deletion. By default the API server looks for unknown fields in each body, which
takes it some percent of a bind, and answers with warnings; nothing here reads these."""
AGENT: Final = "plimsoll"
READ_BUFFER_BYTES: Final = 2**21
"""A burst of watch events is read in few chunks."""
LONGEST_LINE_BYTES: Final = 2**24
"""More than etcd stores in one object, several times over."""


log = get_logger()


before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=lambda: None)
"""A check that each request with a body makes at the moment at which it is sent. The check may raise `OSError`; then
nothing is sent. That moment may come long after the call: a connection is opened first, or the event loop stands
still."""


class Sent:
    """Notes, while it is the context, whether a request with a body is sent: only such a one may change something.

    Attributes:
        any: whether one was sent.
    """

    def __init__(self) -> None:
        self.any = False
        self._outer: Token[Callable[[], None]] | None = None

    def __enter__(self) -> Self:
        """Begin to note."""
        check = before_sending.get()

        def noted() -> None:
            check()
            self.any = True

        self._outer = before_sending.set(noted)
        return self

    def __exit__(self, *_: object) -> None:
        """End noting."""
        assert self._outer is not None, "left without having been entered"
        before_sending.reset(self._outer)


class _WithStatus(Protocol):
    @property
    def status(self) -> int:
        """HTTP status."""


R = TypeVar("R", bound=_WithStatus)


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
        writes: the connections of requests with a body; None where these go through a proxy, by the session.
        waiting: makes the context in which a request waits for its answer, from the server's address.
        outage: logs once, and not for each request, that no server answers, or that it refuses the credentials.
    """

    host: str
    http: aiohttp.ClientSession
    way: Mapping[str, Any]
    credentials: Credentials
    writes: Connections | None = None
    waiting: Callable[[str], AbstractContextManager[object]] = nullcontext
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
                raise self._failure(await _whole(response), what)
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
                if body is not None and self.writes is not None:
                    answer = await self._write(self.writes, method, path, body, content_type)
                else:
                    response = await self._open(method, path, query, body, content_type)
                    try:
                        answer = await _whole(response)
                    finally:
                        response.release()
        if 200 <= answer.status < 300:
            return answer.body
        raise self._failure(answer, what)

    async def _write(
        self, writes: Connections, method: str, path: str, body: Body, content_type: str
    ) -> HttpAnswer:
        self._check_open(method, path)
        data, target = msgspec.json.encode(body), path + _asked(method, (), body)

        async def send(authorization: str | None) -> HttpAnswer:
            headers = {"Accept": JSON, "User-Agent": AGENT, "Content-Type": content_type}
            if authorization is not None:
                headers["Authorization"] = authorization
            return await writes.send(method, target, headers, data, before_sending.get())

        return await self._authorized(send, lambda _: None)

    async def _open(
        self,
        method: str,
        path: str,
        query: Query,
        body: Body | None,
        content_type: str,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        self._check_open(method, path)
        address = self.host + path + _asked(method, query, body)
        data = None if body is None else msgspec.json.encode(body)

        async def send(authorization: str | None) -> aiohttp.ClientResponse:
            headers = {"Content-Type": content_type, **more.get("headers", {})}
            if authorization is not None:
                headers["Authorization"] = authorization
            sent = None if data is None else _Body(data)
            return await self.http.request(
                method, address, data=sent, **{**self.way, **more, "headers": headers}
            )

        return await self._authorized(send, aiohttp.ClientResponse.close)

    def _check_open(self, method: str, path: str) -> None:
        if self.http.closed:  # as for a request of another part while this one ends
            raise TransientError(f"{method} {path}: the client is closed")

    async def _authorized(self, send: Callable[[str | None], Awaitable[R]], close: Callable[[R], None]) -> R:
        """Send a request with the credentials, and once more with renewed ones if it is refused with 401."""
        authorization = await self.credentials.header()
        response = await send(authorization)
        if response.status != UNAUTHORIZED:
            self.outage.ended()
            return response
        try:
            if not await self.credentials.replaced(authorization):
                return response
        except BaseException:
            close(response)
            raise
        close(response)
        return await send(await self.credentials.header())

    @contextmanager
    def _transient(self, what: str, timeout_s: float) -> Iterator[None]:
        """Turn the failures of a connection into `TransientError`, and log the first of an outage."""
        try:
            with self.waiting(self.host):
                yield
        except TimeoutError as error:
            raise self._away(what, f"{self.host} gave no answer in {timeout_s:.0f} s") from error
        except CredentialsError as error:
            failure = TransientError(f"{what}: {text_of(error)}")
            failure.is_logged = True  # each failed renewal is logged
            raise failure from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._away(what, cause_of(error, "the kubeconfig")) from error

    def _away(self, what: str, cause: str) -> TransientError:
        failure = TransientError(f"{what}: {cause}")
        self.outage.failed("the API server is out of reach, retrying", cause, server=self.host)
        failure.is_logged = True
        return failure

    def _failure(self, answer: HttpAnswer, what: str) -> ApiError:
        failure = error_from(answer.status, answer.body, what, answer.retry_after)
        if answer.status == UNAUTHORIZED:
            self.outage.failed("the API server refuses this login, retrying", REFUSED_LOGIN, server=self.host)
            failure.is_logged = True
        return failure


def _asked(method: str, query: Query, body: Body | None) -> str:
    """The query of a request, with its mark; empty without one."""
    if body is not None:
        return "" if method == "DELETE" else UNCHECKED
    return "?" + urlencode(query, quote_via=quote) if query else ""


async def _whole(response: aiohttp.ClientResponse) -> HttpAnswer:
    """The whole answer; that of a failure also where its body cannot be read."""
    retry_after = response.headers.get("Retry-After")
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return HttpAnswer(response.status, await response.read(), retry_after)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        if 200 <= response.status < 300:
            raise
        return HttpAnswer(response.status, f"(body unread: {text_of(error)})".encode(), retry_after)


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
            raise TransientError(f"{what}: {text_of(error)}") from error
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


@asynccontextmanager
async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    waiting: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> AsyncIterator[KubeClient]:
    """A client for a cluster, closed when the context ends; entering sends nothing.

    Args:
        kubeconfig: a kubeconfig file, or several with `:`; None for the pod's own service account.
        context: the context of the kubeconfig; None for the current one.
        waiting: see `KubeClient`.

    Raises:
        InputError: the configuration is missing or unreadable.
    """
    configuration, tls, credentials = await configured(kubeconfig, context)
    connector = aiohttp.TCPConnector(
        ssl=tls,
        limit=configuration.connection_pool_maxsize,
        keepalive_timeout=KEEP_ALIVE_S,
        socket_factory=_probed_socket,
    )
    way = way_to(configuration)
    writes = None
    if "proxy" not in way:
        name, most = way.get("server_hostname"), configuration.connection_pool_maxsize
        writes = Connections(configuration.host, tls, name, most)
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": JSON, "User-Agent": AGENT},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
        ) as http:
            yield KubeClient(configuration.host, http, way, credentials, writes, waiting)
    finally:
        if writes is not None:
            writes.close()
        await credentials.close()


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    probe(made)
    return made
