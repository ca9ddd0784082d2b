"""Writes over connections that stay open: each answer is that of its own request, and no request is sent twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plimsoll.kube.client import KubeClient, Sent, before_sending, connect
from plimsoll.kube.transport import PatchKind, RefusedError, TransientError
from tests.kube.faults import answering
from tests.servers.waiting import until_true

WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b"
LATER = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}"
ELSEWHERE = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
NEXT = b'{"name":"next"}'


@dataclass(slots=True)
class Server:
    """A server of a few lines.

    Attributes:
        client: sends to it.
        requests: the bodies of all requests, by connection.
        waits: a request with this body is answered once the event is set.
        answers: a request with this body is answered by these bytes, and then the connection is closed.
        twice: a request with this body is answered, and once the event is set, answered again.
        closed: set once the client has closed a connection that the server had closed.
    """

    client: KubeClient
    requests: list[list[bytes]] = field(default_factory=list)
    waits: dict[bytes, asyncio.Event] = field(default_factory=dict)
    answers: dict[bytes, bytes] = field(default_factory=dict)
    twice: dict[bytes, asyncio.Event] = field(default_factory=dict)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request with its own body, until one has an answer that ends the connection."""
        bodies: list[bytes] = []
        self.requests.append(bodies)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(size)
                bodies.append(body)
                if body in self.waits:
                    await self.waits[body].wait()
                writer.write(self.answers.get(body, WHOLE % (size, body)))
                if body in self.twice:
                    await self.twice[body].wait()
                    writer.write(WHOLE % (size, body))
                if body in self.answers:
                    writer.write_eof()
                    await reader.read()
                    self.closed.set()
                    break
        writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server, and a client that is connected to it."""
    made: list[Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].serve(reader, writer)

    async with answering(serve, tmp_path) as kubeconfig, connect(kubeconfig) as client:
        made.append(Server(client))
        yield made[0]


async def post_next(server: Server) -> None:
    """A further request gets its own answer."""
    assert await server.client.post("/things", {"name": "next"}) == NEXT


async def test_requests_share_connections_one_at_a_time(server: Server) -> None:
    """Requests together have a connection each, later ones use them again, and each gets its own answer."""

    async def ask(name: str) -> bytes:
        return await server.client.post("/things", {"name": name})

    for first in (0, 3):
        names = [str(number) for number in range(first, first + 3)]
        bodies = [b'{"name":"%b"}' % name.encode() for name in names]
        are_there = asyncio.Event()
        server.waits = dict.fromkeys(bodies, are_there)
        answers = asyncio.gather(*map(ask, names))
        await until_true(lambda: sum(map(len, server.requests)) == first + 3)  # noqa: B023 - awaited here
        are_there.set()
        assert await answers == bodies
    assert [len(bodies) for bodies in server.requests] == [2, 2, 2]


async def test_an_abandoned_request_spoils_no_later_one(server: Server) -> None:
    """The late answer to a request that was cancelled is never taken for the answer to the next one."""
    late = server.waits[b'{"name":"late"}'] = asyncio.Event()
    task = asyncio.create_task(server.client.post("/things", {"name": "late"}))
    await until_true(lambda: server.requests == [[b'{"name":"late"}']])
    task.cancel()
    await asyncio.wait([task])
    asyncio.get_running_loop().call_later(0.05, late.set)
    await post_next(server)
    assert task.cancelled()
    assert server.requests == [[b'{"name":"late"}'], [NEXT]]


WRITES: dict[str, Callable[[KubeClient], Awaitable[bytes]]] = {
    "POST": lambda client: client.post("/things", {}),
    "PATCH": lambda client: client.patch("/things", {}, PatchKind.MERGE),
    "DELETE": lambda client: client.delete("/things", {}),
}


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("answer", [b"", WHOLE % (100, b"{"), b"SSH-2.0-OpenSSH\r\n\r\n", WHOLE[:9]])
async def test_a_write_without_a_whole_answer_is_not_sent_again(
    server: Server, method: str, answer: bytes
) -> None:
    """The caller learns that the write may have happened, also on a connection that was used before."""
    await post_next(server)
    server.answers[b"{}"] = answer
    with Sent() as sent, pytest.raises(TransientError, match=f"{method} /things"):
        await WRITES[method](server.client)
    assert sent.any
    await post_next(server)
    assert server.requests == [[NEXT, b"{}"], [NEXT]]


async def test_an_answer_without_a_request_is_not_that_of_the_next_one(server: Server) -> None:
    """Such an answer, as proxies send before they close a connection, ends the connection before the next request."""
    again = server.twice[b"{}"] = asyncio.Event()
    await server.client.post("/things", {})
    again.set()
    connector = server.client.http.connector
    assert connector is not None
    await until_true(lambda: any(one.should_close for idle in connector._conns.values() for one, _ in idle))
    await post_next(server)
    assert server.requests == [[b"{}"], [NEXT]]


async def test_a_write_is_not_sent_to_another_address(server: Server) -> None:
    """A redirection of a write is a refusal: the first server may have fulfilled it."""
    server.answers[b"{}"] = ELSEWHERE
    with pytest.raises(RefusedError, match="307"):
        await server.client.post("/things", {})
    assert server.requests == [[b"{}"]]


async def test_a_refusal_says_when_to_come_again(server: Server) -> None:
    """The pause that the server asks for reaches the caller."""
    server.answers[b"{}"] = LATER
    with pytest.raises(TransientError) as refused:
        await server.client.post("/things", {})
    assert (refused.value.status, refused.value.retry_after_s) == (429, 3)


async def test_a_connection_that_the_server_closed_is_not_used_again(server: Server) -> None:
    """After the server closed an idle connection, the next request opens another one and succeeds."""
    server.answers[b'{"name":"end"}'] = WHOLE % (2, b"{}")
    await server.client.post("/things", {"name": "end"})
    await server.closed.wait()
    await post_next(server)


async def test_a_request_whose_check_fails_is_not_sent(server: Server) -> None:
    """The check is made when the request would be sent; if it fails, the server gets nothing."""

    def refuse() -> None:
        raise OSError("too late")

    before_sending.set(refuse)
    with pytest.raises(TransientError, match="too late"):
        await server.client.post("/things", {"name": "late"})
    before_sending.set(lambda: None)
    await post_next(server)
    assert [body for bodies in server.requests for body in bodies] == [NEXT]


async def test_a_token_of_several_lines_is_not_sent(server: Server, tmp_path: Path) -> None:
    """Such a token would become headers, or a request, of its own."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(kubeconfig.read_text().replace("token: none", r'token: "one\r\nother: x"'))
    async with connect(kubeconfig) as client:
        with pytest.raises(TransientError, match="more than one line"):
            await client.post("/things", {})
    assert server.requests == []
