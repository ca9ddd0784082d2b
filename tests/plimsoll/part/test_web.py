"""Bodies of requests that never arrive as a whole: no part calls that an error of its own."""

import asyncio
import logging

import pytest
from aiohttp import web

from plimsoll.part.errors import InputError
from plimsoll.part.web import read_body, serving_tcp
from tests.servers.waiting import until_true

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
