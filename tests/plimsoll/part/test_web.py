"""Bodies of requests that never arrive as a whole: no part calls that an error of its own."""

import asyncio
import contextlib
import logging

import aiohttp
import pytest
from aiohttp import web

from plimsoll.part import web as web_part
from plimsoll.part.errors import InputError
from plimsoll.part.web import read_body, serving_tcp
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


async def test_a_host_that_is_no_name_is_refused() -> None:
    """Bytes that are not UTF-8, as Python reads them from the environment."""
    with pytest.raises(InputError, match="cannot be served at"):
        async with serving_tcp([], "\udcff", 0, "PORT"):
            pass


async def test_connections_that_send_no_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never ends its first request is cut off, and so is an idle one; whoever asks is answered."""
    monkeypatch.setattr(web_part, "IDLE_S", 0.5)
    async with serving_tcp([web.get("/", answer)], "127.0.0.1", 0, "PORT") as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: ", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(PATIENCE_S):
                assert (await reader.read()).startswith(
                    b"HTTP/1.1 200" if sent.endswith(b"\r\n\r\n") else b""
                )
            writer.close()


async def test_the_oldest_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections somebody holds open, a new one is answered, and their number stays bounded."""
    monkeypatch.setattr(web_part, "CONNECTIONS_AT_MOST", 5)
    async with serving_tcp([web.get("/", answer)], "127.0.0.1", 0, "PORT") as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/") as response:
            assert response.status == 200
        async with asyncio.timeout(PATIENCE_S):
            for reader, _ in held[:30]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in held:
            writer.close()


async def answer(_: web.Request) -> web.Response:
    """Answer at once."""
    return web.Response()
