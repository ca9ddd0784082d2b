"""A small API server that misbehaves on purpose, in ways that a real one cannot be made to.

It serves one collection of pods from memory. Lists are sound unless the script says otherwise; each watch plays the
next act of a script, and once the script is over stays open, silent but for bookmarks of its current version.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Act = Callable[[web.Request, "Answer"], Awaitable[None]]

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: faults
contexts: [{{name: faults, context: {{cluster: faults, user: nobody}}}}]
clusters: [{{name: faults, cluster: {{server: "{url}"}}}}]
users: [{{name: nobody, user: {{token: none}}}}]
"""


def pod(name: str, version: int, uid: str | None = None, **spec: object) -> Object:
    """A pod as the server lists it; its uid derives from its name unless given."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}


@dataclass(slots=True)
class Answer:
    """A response being written by an act."""

    request: web.Request
    stream: web.StreamResponse = field(default_factory=web.StreamResponse)

    async def begin(self) -> None:
        """Send the headers of a watch."""
        self.stream.content_type = "application/json"
        await self.stream.prepare(self.request)

    async def event(self, kind: str, item: Object) -> None:
        """Send one event."""
        await self.raw(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    async def raw(self, data: bytes) -> None:
        """Send unchanged bytes."""
        await self.stream.write(data)

    def abort(self) -> None:
        """Drop the connection in the middle of the answer."""
        assert self.request.transport is not None
        self.request.transport.abort()


@dataclass(slots=True)
class FaultyServer:
    """The state of the server and the requests that it received.

    Attributes:
        pods: the pods of the collection, by name.
        version: the resourceVersion of a list.
        acts: the acts of the next watches, in order.
        list_faults: the answers in place of the next lists, in order.
        asked: every request for the collection, its query and when it came, on the loop's clock.
    """

    kubeconfig: Path
    pods: dict[str, Object] = field(default_factory=dict)
    version: int = 1
    page_size: int = 0
    acts: deque[Act] = field(default_factory=deque)
    list_faults: deque[web.Response] = field(default_factory=deque)
    asked: list[tuple[dict[str, str], float]] = field(default_factory=list)

    @property
    def lists(self) -> list[dict[str, str]]:
        """The queries of all list requests."""
        return [query for query, _ in self.asked if "watch" not in query]

    @property
    def watches(self) -> list[dict[str, str]]:
        """The queries of all watch requests."""
        return [query for query, _ in self.asked if "watch" in query]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        query = dict(request.query)
        self.asked.append((query, asyncio.get_running_loop().time()))
        if "watch" not in query:
            return self._list(query)
        answer = Answer(request)
        if self.acts:
            await self.acts.popleft()(request, answer)
        else:
            await answer.begin()
            bookmark = {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}
            while True:
                await answer.event("BOOKMARK", bookmark)
                await asyncio.sleep(0.1)
        return answer.stream

    def _list(self, query: dict[str, str]) -> web.Response:
        if self.list_faults:
            return self.list_faults.popleft()
        start = int(query.get("continue", "0"))
        items = list(self.pods.values())
        end = start + self.page_size if self.page_size else len(items)
        metadata = {"resourceVersion": str(self.version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return web.json_response({"metadata": metadata, "items": items[start:end] or None})


@contextlib.asynccontextmanager
async def answering(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], folder: Path
) -> AsyncIterator[Path]:
    """Run a server of a few lines until the context ends; gives its kubeconfig, in `folder`."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kubeconfig = folder / "config"
        kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}"))
        yield kubeconfig


@contextlib.asynccontextmanager
async def faulty_server(folder: Path) -> AsyncIterator[FaultyServer]:
    """Run a faulty server until the context ends; its kubeconfig is written into `folder`."""
    server = FaultyServer(folder / "faults.kubeconfig")
    application = web.Application()
    application.router.add_get("/api/v1/pods", server.serve)
    # Watches never end by themselves, so waiting for them would only lengthen each test.
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.kubeconfig.write_text(KUBECONFIG.format(url=f"http://{host}:{port}"))
        yield server
    finally:
        await runner.cleanup()
