"""The extender over HTTP: decode, ask the extender, encode, count.

kube-scheduler shows the text of an `Error` field to people, and of any other status than 200 only its number. So
filter and bind answer 200 with the error in its field. The answers of prioritize and preempt have no such field.
kube-scheduler goes on without priorities, or evicts nothing, when they fail.

What always holds: a client without the right certificate changes nothing and reads nothing (`tls.py`). A body of any
size that is allowed stops the event loop for some 30 ms at most.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from ssl import SSLContext
from typing import Final, NoReturn

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from placer.extender.extender import Extender
from placer.extender.tls import client_name
from placer.extender.wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    NotBoundError,
    PreemptionArgs,
    PreemptionResult,
    UnavailableError,
    UndecidedError,
    decode,
    filter_result,
    nodes_of,
    priorities,
)
from placer.metrics.kube import WRITE_BUCKETS_S
from placer.settings import Settings
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX
from plimsoll.part.web import open_tcp, port_of, read_body, serving


class ExtenderMetrics:
    """Counters and histograms in the placer's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "plimsoll_placer_extender_requests",
            "Requests of kube-scheduler, by verb and outcome: `fits`, `unfit`, `scored`, `bound`, `not_bound`"
            " (the GPUs or the pod are gone), `undecided` (the API server has not answered), `malformed`, "
            "`unavailable` (this placer cannot bind now) or `forbidden`.",
            ["verb", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "plimsoll_placer_extender_seconds",
            "Time from a request of kube-scheduler to its answer, by verb.",
            ["verb"],
            buckets=WRITE_BUCKETS_S,
            registry=registry,
        )


PATH: Final = "/extender/v1"
"""The end of kube-scheduler's `urlPrefix`."""
BODY_BYTES: Final = 16 * 1024**2
"""The longest question: 20 000 names of nodes are some 0.6 MiB. Whole Node objects of 10 KiB are too many from some
1600 on; then kube-scheduler has to send names (`nodeCacheCapable: true`)."""

JSON: Final = "application/json"

log = get_logger()

Ask = Callable[[bytes], Awaitable[tuple[object, str]]]
"""Takes a body; gives the answer to be encoded, and the outcome for the metrics."""


@contextlib.asynccontextmanager
async def serving_extender(
    extender: Extender,
    address: tuple[str, int],
    metrics: ExtenderMetrics,
    tls: SSLContext | None = None,
    clients: frozenset[str] = frozenset(),
) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port, also where 0 was asked.

    Args:
        extender: gives the answers.
        address: an address of this machine, and a TCP port or 0.
        metrics: counts them.
        tls: None for plain HTTP.
        clients: the common names of the certificates whose owners may ask. Empty: whoever can connect.

    Raises:
        InputError: the port cannot be opened.
    """
    verbs = {"filter": _filter, "prioritize": _prioritize, "preempt": _preempt, "bind": _bind}
    routes = [
        web.post(f"{PATH}/{verb}", _handler(verb, make(extender), metrics, clients))
        for verb, make in verbs.items()
    ]
    listeners = await open_tcp(*address, PREFIX + "EXTENDER_PORT")
    number, routes = port_of(listeners), [*routes, web.get("/readyz", _ready(extender))]
    async with serving(routes, listeners, body_bytes=BODY_BYTES, tls=tls):
        yield number


def _handler(
    verb: str, ask: Ask, metrics: ExtenderMetrics, clients: frozenset[str]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        name = client_name(request)
        if clients and name not in clients:
            metrics.requests.labels(verb, "forbidden").inc()
            log.warning("a client may not use the extender", client=name, verb=verb)
            return web.Response(status=403, text=f"{name!r} may not use the extender\n")
        if request.content_type != JSON:  # a page in a browser of this machine can send others without asking
            metrics.requests.labels(verb, "malformed").inc()
            return web.Response(status=415, text=f"send {JSON}\n")
        try:
            body = await read_body(request)
        except web.HTTPBadRequest:
            metrics.requests.labels(verb, "malformed").inc()
            raise
        except web.HTTPRequestEntityTooLarge:
            metrics.requests.labels(verb, "malformed").inc()
            log.warning("a question is too long; give kube-scheduler nodeCacheCapable: true", verb=verb)
            raise
        with metrics.seconds.labels(verb).time():
            answer, outcome = await ask(body)
        metrics.requests.labels(verb, outcome).inc()
        if isinstance(answer, PlimsollError):
            return web.Response(status=400 if isinstance(answer, InputError) else 503, text=f"{answer}\n")
        return web.Response(body=msgspec.json.encode(answer), content_type=JSON)

    return handle


def _filter(extender: Extender) -> Ask:
    async def ask(body: bytes) -> tuple[object, str]:
        try:
            args = decode(body, ExtenderArgs)
            names = nodes_of(args, body)
            refused = await extender.filter(args.pod, names)
        except (InputError, UnavailableError) as error:
            return FilterResult(error=_text(error)), _outcome(error)
        result = filter_result(args, names, refused)
        return result, "fits" if len(refused) < len(names) else "unfit"

    return ask


def _prioritize(extender: Extender) -> Ask:
    async def ask(body: bytes) -> tuple[object, str]:
        try:
            args = decode(body, ExtenderArgs)
            scores = await extender.prioritize(args.pod, nodes_of(args, body))
        except (InputError, UnavailableError) as error:
            return error, _outcome(error)
        return priorities(scores), "scored"

    return ask


def _preempt(extender: Extender) -> Ask:
    async def ask(body: bytes) -> tuple[object, str]:
        try:
            args = decode(body, PreemptionArgs)
            victims = args.victims
            helped = await extender.preempt(args.pod, {node: one.uids for node, one in victims.items()})
        except (InputError, UnavailableError) as error:
            return error, _outcome(error)
        kept = {node: one for node, one in victims.items() if node in helped}
        return PreemptionResult(kept), "fits" if kept else "unfit"

    return ask


def _bind(extender: Extender) -> Ask:
    async def ask(body: bytes) -> tuple[object, str]:
        try:
            order = decode(body, BindingArgs)
            await extender.bind(order)
        except (InputError, UnavailableError, NotBoundError) as error:
            log.info("bind refused", error=str(error))
            return BindingResult(error=_text(error)), _outcome(error)
        return BindingResult(), "bound"

    return ask


def _ready(extender: Extender) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def ready(_: web.Request) -> web.Response:
        try:
            extender.leadership.check()
        except UnavailableError as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(text="ok\n")

    return ready


def _text(error: PlimsollError) -> str:
    """The error for the events of a pod, where people read it among those of kube-scheduler."""
    return f"plimsoll: {error}"


def _outcome(error: PlimsollError) -> str:
    match error:
        case InputError():
            return "malformed"
        case UndecidedError():
            return "undecided"
        case NotBoundError():
            return "not_bound"
        case _:
            return "unavailable"


async def serve_extender(settings: Settings, port: int, extender: Extender) -> NoReturn:
    """Serve until cancelled.

    Raises:
        InputError: the port or a file cannot be used.
    """
    files = settings.extender_tls
    context = await asyncio.to_thread(files.context)
    names = (name.strip() for name in settings.extender_clients.split(","))
    clients = frozenset(name for name in names if name) if settings.extender_client_ca else frozenset()
    metrics = ExtenderMetrics(extender.decider.metrics.registry)
    address = settings.http_address, port
    async with serving_extender(extender, address, metrics, context, clients) as number:
        get_logger().info("extender ready", address=settings.http_address, port=number)
        if context is not None:
            await files.follow(context)
        await asyncio.get_running_loop().create_future()  # until cancelled
    raise AssertionError("a future that nobody sets has ended")
