"""The HTTP API: metrics, health and state on a TCP port; the same, and pods, on a UNIX socket for its owner alone.

What always holds: no request over TCP changes anything. Pods become processes of the placer's user, so only that user
may submit them: over a socket that no other user can open.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from placer.core.ledger import Ledger
from placer.core.room import room_on
from placer.core.score import Formula, node_scores
from placer.core.view import node_view
from placer.local.frontend import LocalFrontEnd
from placer.local.manifest import MANIFEST_BYTES, parse_manifests
from placer.reports import ReportView
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX
from plimsoll.part.web import serving, serving_tcp
from plimsoll.placer_api.http import PODS_PATH, STATE_PATH, DoubtRow, GpuRow, NodeRow, PodRow, Problem, State

TOGETHER: Final = 64
"""Nodes whose rows are made in one piece: some 10 ms."""


@dataclass(frozen=True, slots=True)
class Api:
    """The sources of the API's answers.

    Attributes:
        state: gives the placer's state now.
        missing: names what keeps the placer from its work now; empty while it is ready.
        registry: the metrics at `/metrics`.
        local: the front end that takes pods from the UNIX socket, or None.
    """

    state: Callable[[], Awaitable[State]]
    missing: Callable[[], Sequence[str]]
    registry: CollectorRegistry
    local: LocalFrontEnd | None = None


def serving_port(api: Api, address: str, port: int) -> contextlib.AbstractAsyncContextManager[int]:
    """Serve metrics, health and state on a TCP port until the context ends; gives the port, also where 0 was asked.

    Raises:
        InputError: the port cannot be opened.
    """
    return serving_tcp(_routes(api), address, port, PREFIX + "HTTP_PORT")


@contextlib.asynccontextmanager
async def serving_socket(api: Api, listener: socket.socket) -> AsyncIterator[None]:
    """Serve everything on a listening UNIX socket (`open_socket`) until the context ends, then remove it."""
    path = Path(listener.getsockname())
    try:
        async with serving([*_routes(api), *_pod_routes(api)], MANIFEST_BYTES) as runner:
            await web.SockSite(runner, listener).start()
            yield
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


def _routes(api: Api) -> list[web.RouteDef]:
    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        registry = api.registry.restricted_registry(names) if names else api.registry
        # With 100 000 GPUs this takes two seconds, and leases, watches and decisions must go on meanwhile.
        text = await asyncio.to_thread(encode, registry)
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        missing = api.missing()
        return web.Response(status=503 if missing else 200, text="\n".join(missing or ["ok"]) + "\n")

    async def state(_: web.Request) -> web.Response:
        return _json(await api.state())

    return [
        web.get("/metrics", metrics),
        web.get("/healthz", healthy),
        web.get("/readyz", ready),
        web.get(STATE_PATH, state),
    ]


def _pod_routes(api: Api) -> list[web.RouteDef]:
    local = api.local
    if local is None:
        return []

    async def submit(request: web.Request) -> web.Response:
        try:
            pods = parse_manifests(await request.read())
            for pod in pods:
                local.check(pod)
            return _json([local.enqueue(pod) for pod in pods], status=201)
        except InputError as error:
            return _json(Problem(message=str(error)), status=400)

    async def rows(_: web.Request) -> web.Response:
        return _json(local.pods.rows())

    async def end(request: web.Request) -> web.Response:
        row = await local.end(PodUid(request.match_info["uid"]))
        if row is None:
            return _json(Problem(message=f"uid: {request.match_info['uid']!r} is no pod here"), status=404)
        return _json(row)

    return [
        web.post(PODS_PATH, submit),
        web.get(PODS_PATH, rows),
        web.delete(PODS_PATH + "/{uid}", end),
    ]


async def state_of(reports: ReportView, ledger: Ledger, formula: Formula, pods: Iterable[PodRow]) -> State:
    """The placer's state for people: measurements, promises and pods, in the sorted list's order.

    Other tasks run between nodes, so the rows of a large cluster are of slightly different moments.

    Scores are computed anew from reports and promises by the list's own formula, so that they are shown while Redis
    is away.
    Equal scores are ordered as Redis orders them, greater name first.
    """
    rows: list[NodeRow] = []
    for state in tuple(reports.values()):
        rows.append(_node_row(state, ledger, formula, silent=state.node in reports.silent))
        if len(rows) % TOGETHER == 0:
            await asyncio.sleep(0)  # so that the lease is renewed meanwhile
    rows.sort(key=lambda row: (row.score, row.node), reverse=True)
    return State(nodes=tuple(rows), pods=tuple(pods), doubts=tuple(_doubt_rows(ledger)))


def _doubt_rows(ledger: Ledger) -> list[DoubtRow]:
    rows = [
        DoubtRow(
            namespace=booking.doubt.namespace,
            name=booking.doubt.name,
            uid=booking.pod,
            node=booking.node,
            foreign=booking.doubt.foreign,
            reason=booking.doubt.reason,
        )
        for booking in ledger.bookings()
        if booking.doubt is not None
    ]
    return sorted(rows, key=lambda row: (row.namespace, row.name))


def _node_row(state: NodeState, ledger: Ledger, formula: Formula, *, silent: bool) -> NodeRow:
    rooms = {gpu.uuid: room_on(state.node, gpu, ledger) for gpu in node_view(state).gpus}
    scores = node_scores(rooms.values(), formula)

    def gpu_row(gpu: Gpu) -> GpuRow:
        return GpuRow(
            uuid=gpu.uuid,
            index=gpu.index,
            model=gpu.model,
            usable_bytes=gpu.usable_bytes,
            used_bytes=gpu.used_bytes,
            idle_pct=gpu.idle_pct,
            free_bytes=rooms[gpu.uuid].free_bytes,
            free_share_pct=rooms[gpu.uuid].free_share_pct,
            score=scores.gpus[gpu.uuid],
            tasks=gpu.tasks,
        )

    gpus = tuple(gpu_row(gpu) for gpu in state.gpus)
    return NodeRow(
        node=state.node,
        score=scores.node,
        epoch=state.epoch,
        seq=state.seq,
        time=state.time,
        gpus=gpus,
        heartbeat_s=state.heartbeat_s,
        silent=silent,
    )


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
