"""A proxy between one placer and the API server, which loses, delays, refuses and repeats nothing by itself.

The proxy stands for the network, load balancers and admission webhooks. What always holds: a request or an answer
that is passed on is never changed, and without weather the proxy is a plain pipe.
"""

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

PASSED: Final = ("Authorization", "Accept", "Content-Type", "User-Agent")
HOLD_LOOK_S: Final = 0.05
"""The pause between two checks of the weather while a part of a watch is held back."""
REFUSALS: Final = ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"))
EXPIRED: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "too old resource version: a test says so",
    "reason": "Expired",
    "code": 410,
}


@dataclass(slots=True)
class Weather:
    """The faults of this moment; the default has none. Ratios are parts of the requests, 0 to 1.

    Attributes:
        cut_off: no request arrives.
        leases_cut_off: no request for a Lease arrives.
        slow_s: each request waits a random time up to this, in seconds.
        refused: requests that are answered with 429, 500 or 503.
        forbidden: binds that are answered with 403, as by an admission webhook.
        answers_lost: writes that arrive, and whose answers are lost.
        late: writes whose connection breaks at once, and which arrive up to `late_s` afterwards.
        late_to: the end of the paths of these writes; empty stands for all writes.
        watch_lag_s: the delay of everything that a watch shows, in seconds.
        watches_stalled: watches stay open and show nothing.
        gone: new watches are answered with 410.
    """

    cut_off: bool = False
    leases_cut_off: bool = False
    slow_s: float = 0.0
    refused: float = 0.0
    forbidden: float = 0.0
    answers_lost: float = 0.0
    late: float = 0.0
    late_s: float = 3.0
    late_to: str = ""
    watch_lag_s: float = 0.0
    watches_stalled: bool = False
    gone: bool = False


@dataclass(slots=True)
class Proxy:
    """The way of one placer to the API server.

    Attributes:
        url: for the placer's kubeconfig.
        binds: uid of each pod whose bind through this proxy succeeded, in order.
        under_way: the paths of late writes that have not arrived yet.
        hurry: set to have all late writes arrive at once.
        done: how often each kind of fault was done to a request.
    """

    target: str
    http: aiohttp.ClientSession
    rng: random.Random
    url: str = ""
    weather: Weather = field(default_factory=Weather)
    binds: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    done: dict[str, int] = field(default_factory=dict)
    _watches: set[asyncio.Transport] = field(default_factory=set)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # some outlive their client's connection

    def cut_watches(self) -> int:
        """Break all open watches; returns how many there were."""
        cut = len(self._watches)
        for transport in self._watches:
            transport.abort()
        return cut

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, or do to it what the weather says."""
        self._end_with_proxy(asyncio.current_task())
        body, weather = await request.read(), self.weather
        if weather.slow_s:
            await asyncio.sleep(self.rng.uniform(0, weather.slow_s))  # this pause is the fault
        if (obstacle := self._obstacle(request)) is not None:
            return obstacle
        if request.query.get("watch"):
            return await self._watch(request)
        if request.method == "GET":
            return await self._pass(request, body)
        return await self._write(request, body)

    def _obstacle(self, request: web.Request) -> web.Response | None:
        """The answer to a request that does not arrive at the server, or None."""
        weather = self.weather
        if weather.cut_off or (weather.leases_cut_off and "/leases" in request.path):
            return self._broken(request, "cut off")
        if self.rng.random() < weather.refused:
            return self._refusal(*self.rng.choice(REFUSALS))
        if request.path.endswith("/binding") and self.rng.random() < weather.forbidden:
            return self._refusal(403, "Forbidden")
        return None

    async def _write(self, request: web.Request, body: bytes) -> web.StreamResponse:
        weather = self.weather
        if request.path.endswith(weather.late_to) and self.rng.random() < weather.late:
            task = asyncio.create_task(self._deliver_late(request, body, self.rng.uniform(0, weather.late_s)))
            self._end_with_proxy(task)
            return self._broken(request, "late")
        answer = await self._pass(request, body)
        return self._broken(request, "answer lost") if self.rng.random() < weather.answers_lost else answer

    async def _pass(self, request: web.Request, body: bytes) -> web.Response:
        try:
            return await self._forward(request, body)
        except (aiohttp.ClientError, TimeoutError):
            return self._broken(request, "server away")

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        async with self.http.request(
            request.method, self.target + request.path_qs, data=body or None, headers=_headers(request)
        ) as answer:
            if request.path.endswith("/binding") and answer.status == 201:
                self.binds.append(json.loads(body)["metadata"]["uid"])
            headers = {
                name: answer.headers[name]
                for name in ("Content-Type", "Retry-After")
                if name in answer.headers
            }
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def _deliver_late(self, request: web.Request, body: bytes, pause_s: float) -> None:
        self.under_way.append(request.path)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self.hurry.wait()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            await self._forward(request, body)
        self.under_way.remove(request.path)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self.weather.gone:
            self._count("410")
            return web.json_response(EXPIRED, status=410)
        endless = aiohttp.ClientTimeout(total=None, sock_connect=5)
        try:
            async with self.http.get(
                self.target + request.path_qs, headers=_headers(request), timeout=endless
            ) as answer:
                if answer.status != 200:
                    return web.Response(status=answer.status, body=await answer.read())
                return await self._pass_lines(request, answer)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return self._broken(request, "watch broken")

    async def _pass_lines(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        transport = request.transport
        if not isinstance(transport, asyncio.Transport):
            return stream
        self._watches.add(transport)
        loop = asyncio.get_running_loop()
        try:
            at_end_of_line = True
            async for chunk in answer.content.iter_any():
                await self._hold(transport, loop.time())
                if self.weather.gone and at_end_of_line:
                    self._count("410")
                    await stream.write(json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n")
                    return stream
                await stream.write(chunk)
                at_end_of_line = chunk.endswith(b"\n")
        finally:
            self._watches.discard(transport)
        return stream

    async def _hold(self, transport: asyncio.Transport, read_s: float) -> None:
        """Hold back the part of a watch that was read at `read_s`, until the weather of the moment lets it pass."""
        loop = asyncio.get_running_loop()
        while not transport.is_closing():
            if not self.weather.watches_stalled and loop.time() >= read_s + self.weather.watch_lag_s:
                return
            await asyncio.sleep(HOLD_LOOK_S)

    def _refusal(self, status: int, reason: str) -> web.Response:
        self._count(str(status))
        body: dict[str, Any] = {"kind": "Status", "status": "Failure", "reason": reason, "code": status}
        body["message"] = "a test refuses this"
        headers = {"Retry-After": "1"} if status == 429 else {}
        return web.json_response(body, status=status, headers=headers)

    def _broken(self, request: web.Request, why: str) -> web.Response:
        self._count(why)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)  # the client never sees this answer

    def _end_with_proxy(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None
        if task not in self._tasks:  # each request of a connection has the same task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def _headers(request: web.Request) -> Mapping[str, str]:
    return {name: request.headers[name] for name in PASSED if name in request.headers}


@contextlib.asynccontextmanager
async def proxy(target: str, trusted: ssl.SSLContext, rng: random.Random) -> AsyncIterator[Proxy]:
    """Run a proxy before `target` until the context ends."""
    connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
    timeout = aiohttp.ClientTimeout(total=60, sock_connect=5)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        made = Proxy(target, http, rng)
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", made.serve)
        # Watches never end by themselves, so waiting for them would only lengthen the end.
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            made.url = f"http://{host}:{port}"
            yield made
        finally:
            await runner.cleanup()
            for task in made._tasks:
                task.cancel()
            await asyncio.gather(*made._tasks, return_exceptions=True)
