"""The proxy does to requests what its weather says, and nothing else."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.chaos.proxy import Proxy, Weather, proxy
from tests.servers.waiting import until, until_true

BIND = "/api/v1/namespaces/n/pods/p/binding"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/n/leases/one"
WATCH = "/api/v1/pods?watch=1"


@contextlib.asynccontextmanager
async def way(weather: Weather) -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession, list[str]]]:
    """A proxy with this weather, a client of it, and the paths of the requests that arrived behind it."""
    arrived: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        arrived.append(request.path)
        if not request.query.get("watch"):
            return web.json_response({"echo": (await request.read()).decode()}, status=201)
        stream = web.StreamResponse()
        await stream.prepare(request)
        while True:
            await stream.write(b"line\n")
            await asyncio.sleep(0.05)  # a watch with a steady trickle of lines

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with (
            proxy(f"http://{host}:{port}", ssl.create_default_context(), random.Random(1)) as made,
            aiohttp.ClientSession(made.url) as http,
        ):
            made.weather = weather
            yield made, http, arrived
    finally:
        await runner.cleanup()


BODY = '{"metadata": {"uid": "u"}}'


async def test_a_calm_proxy_is_a_pipe() -> None:
    """Without weather a request arrives as it was sent, its answer comes back, and a bind is counted."""
    async with way(Weather()) as (made, http, arrived):
        async with http.post(BIND, data=BODY) as answer:
            assert (answer.status, await answer.json()) == (201, {"echo": BODY})
        assert (arrived, made.binds, made.done) == ([BIND], ["u"], {})


@pytest.mark.parametrize(
    ("weather", "arrives"),
    [(Weather(cut_off=True), 0), (Weather(answers_lost=1.0), 1), (Weather(late=1.0, late_s=0.1), 1)],
)
async def test_a_broken_connection_tells_nothing(weather: Weather, arrives: int) -> None:
    """The client sees a broken connection if its request is lost or late, or if the answer is lost."""
    async with way(weather) as (_, http, arrived):
        with pytest.raises(aiohttp.ClientError):
            await http.post(BIND, data=BODY)

        async def enough() -> bool:
            return len(arrived) == arrives

        assert await until(enough)


async def test_requests_are_refused_as_servers_and_webhooks_do() -> None:
    """A refused request has one of three statuses, and a forbidden bind 403; neither arrives."""
    async with way(Weather(refused=1.0)) as (_, http, arrived):
        statuses = {(await http.get("/api/v1/pods")).status for _ in range(30)}
        assert (statuses, arrived) == ({429, 500, 503}, [])
    async with way(Weather(forbidden=1.0)) as (_, http, arrived):
        assert (await http.post(BIND, data=BODY)).status == 403
        assert (await http.get("/api/v1/pods")).status == 201


async def test_no_request_outlives_the_proxy() -> None:
    """A slow request whose client has hung up ends with the proxy."""
    before = asyncio.all_tasks()
    async with way(Weather(slow_s=3600.0)) as (_, http, arrived):
        with pytest.raises(TimeoutError):
            await http.post(BIND, data=BODY, timeout=aiohttp.ClientTimeout(total=0.5))
    await until_true(lambda: asyncio.all_tasks() <= before)
    assert arrived == []


async def test_leases_alone_are_cut_off() -> None:
    """A request for a Lease is lost where others pass."""
    async with way(Weather(leases_cut_off=True)) as (_, http, arrived):
        with pytest.raises(aiohttp.ClientError):
            await http.put(LEASE, data=BODY)
        assert (await http.post(BIND, data=BODY)).status == 201
        assert arrived == [BIND]


async def test_a_watch_stalls_goes_on_and_ends_with_410() -> None:
    """A stalled watch shows nothing until it goes on; then it ends with the error of a version that is too old."""
    async with way(Weather()) as (made, http, _), http.get(WATCH) as answer:
        assert await answer.content.readline() == b"line\n"
        made.weather = Weather(watches_stalled=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.content.read(), 0.5)
        made.weather = Weather(gone=True)
        async with asyncio.timeout(30):
            rest = await answer.content.read()
        assert b'"code": 410' in rest.splitlines()[-1]
        assert (await http.get(WATCH)).status == 410


async def test_a_cut_watch_breaks() -> None:
    """A watch that is cut ends with an error, and the next one works."""
    async with way(Weather()) as (made, http, _):
        async with http.get(WATCH) as answer:
            assert await answer.content.readline() == b"line\n"
            assert made.cut_watches() == 1
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()
        async with http.get(WATCH) as answer:
            assert await answer.content.readline() == b"line\n"
