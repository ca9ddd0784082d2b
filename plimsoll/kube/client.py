"""Authenticated bytes to and from the API server.

What always holds: every await has a deadline. Every failure is one of the few errors of `plimsoll.kube.transport`. A
patch states its kind.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from plimsoll.kube.configuration import configured, way_to
from plimsoll.kube.credentials import Credentials
from plimsoll.kube.exec_plugin import CredentialsError
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
KEEP_ALIVE_S: Final = 60.0
"""A connection that was idle for longer is not used again. The API server closes one after 90 s."""
PROBE_AFTER_S: Final = 15
PROBE_EVERY_S: Final = 5
PROBES: Final = 3
"""TCP keep-alive: the kernel probes a connection that was silent for 15 s, and ends it after three probes without an
answer. So a watch on a server whose machine is gone, or behind a cut network, ends after 30 s."""

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


@dataclass(frozen=True, slots=True)
class KubeClient:
    """`Transport` over one session of aiohttp; `connect` makes and closes it.

    The generated client's requests are not used. It walks each body twice, and reads `~/.netrc` and the environment
    at every request, in two threads. That would more than triple the CPU time of a request.

    Attributes:
        host: the server's address, with its scheme.
        http: the session. It has no time limits: `KubeClient` sets them.
        way: what each request needs to reach the server: a proxy, a TLS server name, or nothing.
        credentials: for each request. A request that is refused with 401 is sent once more with renewed ones.
        waiting: makes the context in which a request waits for its answer, from the server's address.
        outage: logs once, and not for each request, that no server answers, or that it refuses the credentials.
    """

    host: str
    http: aiohttp.ClientSession
    way: Mapping[str, Any]
    credentials: Credentials
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
        return await self._request("PATCH", path, body=body, headers={"Content-Type": kind.value})

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
                response = await self._open("GET", path, query)
                if response.status != 200:
                    raise self._failure(response, await _body_of(response), what)
        try:
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
            response = await self._open(
                "GET", path, query, headers=headers, timeout=limits, allow_redirects=False
            )
        try:
            yield response
        finally:
            response.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Body | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        what = f"{method} {path}"
        with self._transient(what, REQUEST_TIMEOUT_S):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await self._open(method, path, query, body, headers)
                answer = await _body_of(response)
        if 200 <= response.status < 300:
            return answer
        raise self._failure(response, answer, what)

    async def _open(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Body | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        **options: Any,  # noqa: ANN401 - those of aiohttp.ClientSession.request
    ) -> aiohttp.ClientResponse:
        """The open answer to a request. If it is refused with 401, it is sent once more, with renewed credentials."""
        if self.http.closed:  # as for a request of another part while this one ends
            raise TransientError(f"{method} {path}: the client is closed")
        options |= self.way
        if body is None:
            address = self.host + path + ("?" + urlencode(query, quote_via=quote) if query else "")
        else:
            address = self.host + path + ("" if method == "DELETE" else UNCHECKED)
            options["allow_redirects"] = False  # that would send the body a second time
        data = None if body is None else msgspec.json.encode(body)

        async def send(authorization: str | None) -> aiohttp.ClientResponse:
            if authorization is not None and not authorization.isprintable():
                raise OSError("a header has more than one line: is the token whole, and nothing else?")
            own = {} if authorization is None else {"Authorization": authorization}
            sent = None if data is None else _Body(data)
            return await self.http.request(method, address, data=sent, headers={**headers, **own}, **options)

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
        response.close()
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
            # aiohttp's own text says nothing of why a body was not written, such as a check that failed.
            cause = error.__cause__ if type(error) is aiohttp.ClientOSError else None
            raise self._away(what, cause_of(cause or error, "the kubeconfig")) from error

    def _away(self, what: str, cause: str) -> TransientError:
        failure = TransientError(f"{what}: {cause}")
        self.outage.failed("the API server is out of reach, retrying", cause, server=self.host)
        failure.is_logged = True
        return failure

    def _failure(self, response: aiohttp.ClientResponse, answer: bytes, what: str) -> ApiError:
        failure = error_from(response.status, answer, what, response.headers.get("Retry-After"))
        if response.status == UNAUTHORIZED:
            self.outage.failed("the API server refuses this login, retrying", REFUSED_LOGIN, server=self.host)
            failure.is_logged = True
        return failure


async def _body_of(response: aiohttp.ClientResponse) -> bytes:
    """The whole body of an answer; for a refusal whose body cannot be read, a text that says so."""
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        if 200 <= response.status < 300:
            raise
        return f"(body unread: {text_of(error)})".encode()


class _Body(aiohttp.BytesPayload):
    """A body that is checked when it is sent, and sent once. aiohttp sends the headers together with it."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._check = before_sending.get()

    @property
    def consumed(self) -> bool:
        """Always: aiohttp would send a DELETE again after the server has closed the connection on it."""
        return True

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
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": JSON, "User-Agent": AGENT, "Content-Type": JSON},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
        ) as http:
            yield KubeClient(configuration.host, http, way_to(configuration), credentials, waiting)
    finally:
        await credentials.close()


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose peer the kernel probes while it is silent."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    # Probes are not sent while sent data waits for its acknowledgement, so that has a limit of its own.
    longest_ms = 1000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, longest_ms)
    return made
