"""Bodies of requests that never arrive as a whole: no part calls that an error of its own."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from aiohttp import web

from placer.webhook.certificate import make_generation
from placer.webhook.server import _context
from plimsoll.part import connections
from plimsoll.part.errors import InputError
from plimsoll.part.web import open_tcp, port_of, read_body, serving, serving_tcp
from tests.logs import capture_logs
from tests.servers.waiting import PATIENCE_S, until_true

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
HALF = HEAD + b"Content-Length: 100\r\n\r\n{"


@pytest.mark.parametrize("request_", [HALF, CHUNKED + b"5\r\n{", GZIP + b"none"])
async def test_a_body_that_never_arrives_is_a_bad_request(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves in the middle of its body, or sends nonsense, makes no log line."""
    outcomes: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        try:
            await read_body(request)
        except web.HTTPBadRequest:
            outcomes.append("bad")
            raise
        finally:
            outcomes.append("ended")
        return web.Response()

    caplog.set_level(logging.DEBUG, logger="aiohttp")
    async with serving_tcp([web.post("/", handle)], "127.0.0.1", 0, "PORT") as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        await writer.drain()
        writer.close()
        await until_true(lambda: "ended" in outcomes)
    assert outcomes == ["bad", "ended"]
    assert [one.getMessage() for one in caplog.records if one.levelno > logging.DEBUG] == []


async def test_a_client_that_waits_gets_the_reason_for_its_damaged_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing bounds such requests, so they leave no line in the log: neither when they are read nor at their end."""

    async def read(request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request))

    async def ignore(_: web.Request) -> web.Response:
        return web.Response(text="the body is ignored")

    caplog.set_level(logging.INFO)
    routes = [web.post("/", read), web.put("/", ignore)]
    async with serving_tcp(routes, "127.0.0.1", 0, "PORT") as port:
        for head in (GZIP, GZIP.replace(b"POST", b"PUT")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"none")
            assert b"body is" in await reader.read()
            writer.close()
    assert [one.getMessage() for one in caplog.records if one.name.startswith("aiohttp")] == []


async def test_a_host_that_is_no_name_is_refused() -> None:
    """Bytes that are not UTF-8, as Python reads them from the environment."""
    with pytest.raises(InputError, match="cannot be served at"):
        async with serving_tcp([], "\udcff", 0, "PORT"):
            pass


WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def closed(reader: asyncio.StreamReader) -> bytes:
    """All that the server sends until it closes the connection."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"", "HEADER_S"),
        (b"GET / HTTP/1.1\r\nHost: ", "HEADER_S"),
        (WHOLE, "IDLE_S"),
        (WHOLE + b"GET / HTTP", "IDLE_S"),
        (HALF, "BODY_S"),
    ],
)
async def test_a_client_that_sends_half_is_cut_off(
    sent: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never ends its header or body is cut off, and so is an idle one; each has its own time."""
    monkeypatch.setattr(connections, limit, 0.2)
    routes = [web.get("/", answer), web.post("/", read)]
    async with serving_tcp(routes, "127.0.0.1", 0, "PORT") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await closed(reader)).startswith(b"HTTP/1.1 200" if sent.startswith(WHOLE) else b"")
        writer.close()


async def test_half_a_second_header_is_cut_off_and_an_idle_connection_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection may idle longer than a header may take, also after its first request."""
    monkeypatch.setattr(connections, "HEADER_S", 0.2)
    async with serving_tcp([web.get("/", answer)], "127.0.0.1", 0, "PORT") as port:
        idle, half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in (idle, half):
            writer.write(WHOLE)
            await reader.readuntil(b"\r\n\r\n")
        half[1].write(b"GET / HTTP")
        await closed(half[0])
        idle[1].write(WHOLE)
        assert (await idle[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for _, writer in (idle, half):
            writer.close()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_those_that_waited_longest_make_room(is_tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter
    """However many connections somebody holds open, new ones are answered, and a request under way goes on."""
    monkeypatch.setattr(connections, "CONNECTIONS_AT_MOST", 5)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        begun.set()
        await may_end.wait()
        return web.Response()

    server, client = await asyncio.to_thread(contexts) if is_tls else (None, None)
    listeners = await open_tcp("127.0.0.1", 0, "PORT")
    port = port_of(listeners)
    async with serving([web.get("/", answer), web.get("/slow", slow)], listeners, tls=server):
        at_work = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        at_work[1].write(WHOLE.replace(b"/ ", b"/slow "))
        await begun.wait()
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]  # without a handshake
        asking = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        asking[1].write(WHOLE)
        assert (await asking[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for reader, _ in held[:30]:
            assert await closed(reader) == b""
        may_end.set()
        assert (await at_work[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for _, writer in (at_work, asking, *held):
            writer.close()


async def test_without_descriptors_the_log_has_one_line_and_connections_wait() -> None:
    """Past the limit on open files a client waits in the kernel's queue, and is answered once there is room."""
    loop, (soft, hard) = asyncio.get_running_loop(), resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logs, socket.socket() as client:
        client.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        async with serving_tcp([web.get("/", answer)], "127.0.0.1", 0, "PORT") as port:
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                await loop.sock_connect(client, ("127.0.0.1", port))
                await until_true(lambda: failures(logs))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await loop.sock_sendall(client, WHOLE)
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
    [line] = failures(logs)
    assert "ulimit -n" in line["remedy"]


def failures(logs: list[dict[str, Any]]) -> list[MutableMapping[str, Any]]:
    """The lines about accepts that failed."""
    return [line for line in logs if line["event"] == "accept_failed"]


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side of TLS, and the side of a client who trusts whomever he meets."""
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return _context(make_generation(frozenset({"localhost"}), 3600.0, time.time())), client


async def read(request: web.Request) -> web.Response:
    """Read the body, and answer."""
    await read_body(request)
    return web.Response()


async def answer(_: web.Request) -> web.Response:
    """Answer at once."""
    return web.Response()
