"""The HTTP API: reads and the live page on a TCP port; the reads, and pods, on a UNIX socket for its owner alone.

What always holds: no request over TCP changes anything. Whoever can reach the port may read, unless
`placer.api.access` asks for a token. Pods become processes of the placer's user, so only that user may submit them:
over a socket that no other user can open. The paths are those of `plimsoll.placer_api.routes`. Each refusal has a
`Problem` as its body, even for an unknown path.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from placer.api.access import Access, guard
from placer.api.explaining import Explainer, NotExplainedError, Previewer
from placer.api.forwarding import Leader, by_leader
from placer.api.node_rows import NodeRows, RowFilter, RowPage
from placer.api.queries import QueryParameters
from placer.api.state import StateReader
from placer.core.explain.scan import PageAsked
from placer.live import site
from placer.live.streams import STUCK_S
from placer.live.wiring import LivePage
from placer.local.frontend import LocalFrontEnd
from placer.local.manifest import MANIFEST_BYTES, parse_manifests
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX
from plimsoll.part.web import read_body, serving, serving_tcp
from plimsoll.placer_api import openapi
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.live import LIVE_PATH
from plimsoll.placer_api.routes import JSON, ROUTES, Route

ApiHandler = Callable[[web.Request, QueryParameters], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Api:
    """The sources of the API's answers.

    Attributes:
        rows: the rows of nodes and GPUs.
        state: the placer's whole state.
        explainers: gives the front ends that explain pods, in the order in which they are asked; they may come later.
        missing: names what keeps the placer from its work now; empty while it is ready.
        registry: the metrics at `/metrics`.
        local: the front end that takes pods from the UNIX socket, or None.
        page: the live page on the TCP port, or None.
        previews: gives the front end that answers which pods would move; None where no pods can.
        leader: gives the URL of the placer that leads, while this one follows.
    """

    rows: NodeRows
    state: StateReader
    explainers: Callable[[], Sequence[Explainer]]
    missing: Callable[[], Sequence[str]]
    registry: CollectorRegistry
    local: LocalFrontEnd | None = None
    page: LivePage | None = None
    previews: Callable[[], Previewer | None] = lambda: None
    leader: Leader = lambda: None


@contextlib.asynccontextmanager
async def serving_port(api: Api, address: str, port: int, access: Access | None = None) -> AsyncIterator[int]:
    """Serve metrics, health, all reads and the live page on a TCP port until the context ends.

    Gives the port, also where 0 was asked. Without `access`, everybody may read.

    Raises:
        InputError: the port cannot be opened.
    """
    routes = _routes(_Reads(api).by_operation())
    if api.page is not None:
        routes += [*site.routes(api.page.files), web.get(LIVE_PATH, api.page.streams.serve)]
    middlewares = (_problems,) if access is None else (_problems, guard(access))
    async with serving_tcp(routes, address, port, PREFIX + "HTTP_PORT", middlewares) as opened:
        try:
            yield opened
        finally:
            if api.page is not None:
                api.page.streams.close()  # an open page would delay the end of the server


@contextlib.asynccontextmanager
async def serving_socket(api: Api, listener: socket.socket) -> AsyncIterator[None]:
    """Serve everything on a listening UNIX socket (`open_socket`) until the context ends, then remove it."""
    path = Path(listener.getsockname())
    handlers = {**_Reads(api).by_operation(), **(_of_pods(api.local) if api.local is not None else {})}
    routes = _routes(handlers)
    if api.page is not None:
        # For `plimsoll top` and `plimsoll pods`; readers of the TCP port take none of the owner's places.
        routes.append(web.get(LIVE_PATH, api.page.streams.serve_owner))
    try:
        async with serving(routes, [listener], body_bytes=MANIFEST_BYTES, middlewares=(_problems,)):
            try:
                yield
            finally:
                if api.page is not None:
                    api.page.streams.close()  # an open stream would delay the end of the server
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def open_socket(path: Path) -> socket.socket:
    """A listening UNIX socket that only its owner may open; replaces a socket without a listener. Blocks.

    Raises:
        InputError: the path cannot be used, or another placer listens there.
    """
    name = PREFIX + "CONTROL_SOCKET"
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path, name)
        # Before bind, so that other users can open the socket at no moment.
        os.fchmod(listener.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        listener.bind(os.fspath(path))
        listener.listen()
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
    except OSError as error:
        listener.close()
        remedy = "name a path of at most 107 bytes in a directory of your own"
        raise InputError(name, os.fspath(path), f"cannot be used ({error})", remedy) from error
    except InputError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path, name: str) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise InputError(name, os.fspath(path), "belongs to a running placer", "end that one, or choose another")


def _routes(handlers: Mapping[str, ApiHandler]) -> list[web.RouteDef]:
    """The paths of the table that have a handler. A GET answers HEAD too."""
    return [
        web.route(route.method, route.path, _checked(route, handlers[route.operation]))
        for route in ROUTES
        if route.operation in handlers
    ]


def _checked(route: Route, handler: ApiHandler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request, QueryParameters(route, request))
        except InputError as error:
            return _json(Problem(message=str(error)), status=400)

    return answer


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give refusals of the server itself (no such path, no such method, body too large) a `Problem` as their body."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            raise
        answer = _json(Problem(message=f"{request.method} {request.path}: {error.reason}"), error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer


@dataclass(frozen=True, slots=True)
class _Reads:
    """The handlers of all reads."""

    api: Api
    document: bytes = field(default_factory=openapi.encoded)

    def by_operation(self) -> dict[str, ApiHandler]:
        return {
            "metrics": self.metrics,
            "healthy": self.healthy,
            "ready": self.ready,
            "state": by_leader(self.state, self.api.leader, wants=self._lacks),
            "nodes": by_leader(self.nodes, self.api.leader, wants=self._lacks),
            "gpus": by_leader(self.gpus, self.api.leader, wants=self._lacks),
            "explain": by_leader(self.explain, self.api.leader),
            "relocation": by_leader(self.relocation, self.api.leader),
            "openapi": self.openapi,
        }

    def _lacks(self) -> bool:
        return bool(self.api.missing())

    async def metrics(self, request: web.Request, _: QueryParameters) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        registry = self.api.registry.restricted_registry(names) if names else self.api.registry
        # With 100 000 GPUs this takes two seconds, and leases, watches and decisions must go on meanwhile.
        text = await asyncio.to_thread(encode, registry)
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    async def healthy(self, _: web.Request, __: QueryParameters) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, _: web.Request, __: QueryParameters) -> web.Response:
        missing = self.api.missing()
        return web.Response(status=503 if missing else 200, text="\n".join(missing or ["ok"]) + "\n")

    async def state(self, request: web.Request, _: QueryParameters) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(request)
        # The reader hung up, or takes nothing.
        with contextlib.suppress(ConnectionError, TimeoutError):
            if request.method != "HEAD":
                async for piece in self.api.state.pieces():
                    async with asyncio.timeout(STUCK_S):
                        await response.write(piece)
            await response.write_eof()
        return response

    async def nodes(self, request: web.Request, query: QueryParameters) -> web.Response:
        after, limit = query.text("continue") or "", query.number("limit")
        return _page(request, await self.api.rows.nodes(_filter(query), after, limit))

    async def gpus(self, request: web.Request, query: QueryParameters) -> web.Response:
        after, limit = query.text("continue") or "", query.number("limit")
        return _page(request, await self.api.rows.gpus(_filter(query), after, limit))

    async def explain(self, request: web.Request, query: QueryParameters) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        page = PageAsked(query.number("limit"), query.text("continue") or "", query.text("reason"))
        try:
            for explainer in self.api.explainers():
                explained = await explainer.explain(namespace, name, page)
                if explained is not None:
                    return _json(explained)
        except NotExplainedError as error:
            return _json(Problem(message=str(error)), status=503)
        return _no_pod(namespace, name)

    async def relocation(self, _: web.Request, query: QueryParameters) -> web.Response:
        namespace, name = query.text("namespace"), query.text("pod")
        try:
            previewer = self.api.previews()
            if previewer is None:
                return _json(Problem(message="this placer has no cluster, so it moves no pods"), status=404)
            if name is None:
                return _json(await previewer.for_gpu())
            preview = await previewer.for_pod(namespace or "default", name)
        except NotExplainedError as error:
            return _json(Problem(message=str(error)), status=503)
        return _json(preview) if preview is not None else _no_pod(namespace or "default", name)

    async def openapi(self, _: web.Request, __: QueryParameters) -> web.Response:
        return web.Response(body=self.document, content_type=JSON)


def _of_pods(local: LocalFrontEnd) -> dict[str, ApiHandler]:
    async def submit(request: web.Request, _: QueryParameters) -> web.Response:
        pods = parse_manifests(await read_body(request))
        for pod in pods:
            local.check(pod)
        return _json([local.enqueue(pod) for pod in pods], status=201)

    async def rows(_: web.Request, __: QueryParameters) -> web.Response:
        return _json(local.pods.rows())

    async def end(request: web.Request, _: QueryParameters) -> web.Response:
        row = await local.end(PodUid(request.match_info["uid"]))
        if row is None:
            return _json(Problem(message=f"uid: {request.match_info['uid']!r} is no pod here"), status=404)
        return _json(row)

    return {"submit": submit, "local_pods": rows, "end": end}


def _filter(query: QueryParameters) -> RowFilter:
    return RowFilter(query.text("node"), query.text("model"))


def _page(request: web.Request, page: RowPage) -> web.Response:
    """A page, or 304 where the reader has it already."""
    body = b'{"items":[' + b",".join(page.rows) + b'],"continue":' + msgspec.json.encode(page.more) + b"}"
    etag = hashlib.blake2b(body, digest_size=16).hexdigest()
    if any(known.value in {etag, "*"} for known in request.if_none_match or ()):
        answer = web.Response(status=304)
    else:
        answer = web.Response(body=body, content_type=JSON)
    answer.etag = etag
    return answer


def _no_pod(namespace: str, name: str) -> web.Response:
    text = f"pod: {f'{namespace}/{name}'!r} does not exist; name a pod, and its namespace"
    return _json(Problem(message=text), status=404)


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=JSON)
