"""Writes over connections that stay open: each answer is that of its own request, and no request is sent twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plimsoll.kube.client import KubeClient, before_sending, connect
from plimsoll.kube.transport import TransientError
from tests.kube.faults import KUBECONFIG
from tests.servers.waiting import until_true

SIZED = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nA\r\n0123456789\r\n0\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
UNSIZED = b"HTTP/1.0 200 OK\r\n\r\n"
LATER = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(slots=True)
class Server:
    """A server of a few lines.

    Attributes:
        client: sends to it.
        asked: the bodies of all requests, by connection.
        waits: a request with this body is answered once the event is set.
        answers: a request with this body is answered by these pieces of bytes, and then the connection is closed.
    """

    client: KubeClient
    asked: list[list[bytes]] = field(default_factory=list)
    waits: dict[bytes, asyncio.Event] = field(default_factory=dict)
    answers: dict[bytes, list[bytes]] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request with its own body, until a body asks for the connection's end."""
        bodies: list[bytes] = []
        self.asked.append(bodies)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(size)
                bodies.append(body)
                if body in self.waits:
                    await self.waits[body].wait()
                if body in self.answers:
                    for piece in self.answers[body]:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0.005)  # so that the pieces arrive one by one
                    break
                writer.write(SIZED % (size, body))
                if b'"end"' in body:
                    break
        writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server, and a client that is connected to it."""
    made: list[Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].serve(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}"))
        async with connect(kubeconfig) as client:
            made.append(Server(client))
            yield made[0]


async def test_requests_share_connections_one_at_a_time(server: Server) -> None:
    """Requests together have a connection each, later ones use them again, and each gets its own answer."""

    async def ask(name: str) -> bytes:
        return await server.client.post("/things", {"name": name})

    for first in (0, 3):
        names = [str(number) for number in range(first, first + 3)]
        answers = await asyncio.gather(*map(ask, names))
        assert answers == [b'{"name":"%b"}' % name.encode() for name in names]
    assert [len(bodies) for bodies in server.asked] == [2, 2, 2]


async def test_an_abandoned_request_spoils_no_later_one(server: Server) -> None:
    """The late answer to a request that was cancelled is never taken for the answer to the next one."""
    late = server.waits[b'{"name":"late"}'] = asyncio.Event()
    task = asyncio.create_task(server.client.post("/things", {"name": "late"}))
    await until_true(lambda: server.asked == [[b'{"name":"late"}']])
    task.cancel()
    await asyncio.wait([task])
    asyncio.get_running_loop().call_later(0.05, late.set)
    assert await server.client.post("/things", {"name": "next"}) == b'{"name":"next"}'
    assert task.cancelled()
    assert server.asked == [[b'{"name":"late"}'], [b'{"name":"next"}']]


async def test_a_cut_answer_is_transient_and_its_request_is_not_sent_again(server: Server) -> None:
    """The caller learns that the write may have happened; the next request has a connection of its own."""
    server.answers[b'{"name":"cut"}'] = [SIZED % (100, b"{")]
    with pytest.raises(TransientError, match="POST /things"):
        await server.client.post("/things", {"name": "cut"})
    assert await server.client.post("/things", {"name": "next"}) == b'{"name":"next"}'
    assert server.asked == [[b'{"name":"cut"}'], [b'{"name":"next"}']]


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([SIZED[:10], SIZED[10:] % (2, b"{"), b"}"], b"{}"),
        ([CHUNKED[:50], CHUNKED[50:65], CHUNKED[65:70], CHUNKED[70:]], b"{}0123456789"),
        ([HINTS + CHUNKED], b"{}0123456789"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([UNSIZED, b"{", b"}"], b"{}"),
    ],
)
async def test_an_answer_is_read_whole(server: Server, pieces: list[bytes], whole: bytes) -> None:
    """However its size is given, and however its bytes are cut."""
    server.answers[b"{}"] = pieces
    assert await server.client.post("/things", {}) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        SIZED % (1, b"{}"),
        2 * (SIZED % (2, b"{}")),
        CHUNKED[:-4],
        HINTS,
        b"",
    ],
)
async def test_a_damaged_answer_is_transient(server: Server, text: bytes) -> None:
    """Bytes that are no whole answer, or more than one, are never taken for one; the next request succeeds."""
    server.answers[b"{}"] = [text]
    with pytest.raises(TransientError, match="POST /things"):
        await server.client.post("/things", {})
    assert await server.client.post("/things", {"name": "next"}) == b'{"name":"next"}'


async def test_a_refusal_says_when_to_come_again(server: Server) -> None:
    """The pause that the server asks for reaches the caller."""
    server.answers[b"{}"] = [LATER]
    with pytest.raises(TransientError) as refused:
        await server.client.post("/things", {})
    assert (refused.value.status, refused.value.retry_after_s) == (429, 3)


async def test_a_connection_that_the_server_closed_is_not_used_again(server: Server) -> None:
    """After the server closed an idle connection, the next request opens another one and succeeds."""
    await server.client.post("/things", {"name": "end"})
    writes = server.client.writes
    assert writes is not None
    await until_true(lambda: not writes._idle)
    assert await server.client.post("/things", {"name": "next"}) == b'{"name":"next"}'


async def test_a_request_whose_check_fails_is_not_sent(server: Server) -> None:
    """The check is made when the request would be sent; if it fails, the server gets nothing."""

    def refuse() -> None:
        raise OSError("too late")

    before_sending.set(refuse)
    with pytest.raises(TransientError, match="too late"):
        await server.client.post("/things", {"name": "late"})
    before_sending.set(lambda: None)
    await server.client.post("/things", {"name": "next"})
    assert [body for bodies in server.asked for body in bodies] == [b'{"name":"next"}']


async def test_a_token_of_several_lines_is_not_sent(server: Server, tmp_path: Path) -> None:
    """Such a token would become headers, or a request, of its own."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(kubeconfig.read_text().replace("token: none", r'token: "one\r\nother: x"'))
    async with connect(kubeconfig) as client:
        with pytest.raises(TransientError, match="more than one line"):
            await client.post("/things", {})
    assert server.asked == []
