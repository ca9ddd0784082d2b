"""The client of the placer's HTTP API, on its control socket or its TCP port."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import aiohttp
import msgspec

from plimsoll.part.causes import cause_of
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api.http import (
    EXPLAIN_PATH,
    NODES_PATH,
    PODS_PATH,
    RELOCATION_PATH,
    STATE_PATH,
    NodePage,
    NodeRow,
    PodRow,
    Problem,
    State,
)
from plimsoll.placer_api.live import LIVE_PATH, ONCE
from plimsoll.placer_api.routes import MOST_ROWS
from plimsoll.placer_api.ways import Direct, PlacerRequest, Query, Way

TIMEOUT_S: Final = 10.0

LOGIN: Final = "--placer or PLIMSOLL_PLACER_URL"
"""The options that name a placer, for the remedy."""

SILENT_S: Final = 30.0
"""Seconds without a message of the stream after which it counts as lost: three times the placer's pause."""

READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"

REFUSED: Final = frozenset({400, 401, 403, 404, 503})
"""The statuses whose body is a `Problem`."""


class PlacerAwayError(PlimsollError):
    """The placer did not answer: it may be starting, or gone."""


class PlacerRefusedError(PlimsollError):
    """The placer refused a request; the message names field, value and remedy."""


class NoSuchPodError(PlacerRefusedError):
    """The placer does not know the pod."""


class PlacerClient:
    """A client of one placer. Use it as an async context manager; every call may be cancelled and repeated.

    Args:
        where: the path of its control socket, the `http://` URL of its TCP port, which submits no pods, or another
            way to that port.
        timeout_s: the longest time for an answer, in seconds.
        token: a bearer token, which is sent to a URL and never to a socket; None for none.
    """

    def __init__(
        self, where: Path | str | Way, timeout_s: float = TIMEOUT_S, token: str | None = None
    ) -> None:
        self._way = Direct(where, token) if isinstance(where, Path | str) else where
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        """Open the way."""
        with _translated():
            await self._way.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the way."""
        await self._way.__aexit__(kind, error, trace)

    async def state(self) -> State:
        """Nodes, GPUs, tasks and pods as the placer knows them.

        Raises:
            PlacerAwayError: no answer.
        """
        return msgspec.json.decode(await self._request("GET", STATE_PATH), type=State)

    async def nodes(self, node: str | None = None, model: str | None = None) -> AsyncIterator[NodeRow]:
        """The nodes that have reported, by name, a page at a time.

        Args:
            node: only this node.
            model: only nodes that have a GPU of this model.

        Raises:
            PlacerAwayError: no answer.
            PlacerRefusedError: the placer cannot answer now.
        """
        query: dict[str, str | int] = {"limit": MOST_ROWS}
        query |= {name: value for name, value in (("node", node), ("model", model)) if value is not None}
        while True:
            page = msgspec.json.decode(await self._request("GET", NODES_PATH, query=query), type=NodePage)
            for row in page.items:
                yield row
            if not page.more:
                return
            query["continue"] = page.more

    async def missing(self) -> list[str]:
        """The things that the placer lacks before it can place pods, a line each; empty where it can.

        Raises:
            PlacerAwayError: no answer.
            PlacerRefusedError: the server has no such path.
        """
        status, answer = await self._answer("GET", READY_PATH, frozenset({200, 503}))
        return answer.decode(errors="replace").splitlines() if status != 200 else []

    async def metrics(self) -> str:
        """The metrics, in Prometheus' text format.

        Raises:
            PlacerAwayError: no answer.
        """
        return (await self._request("GET", METRICS_PATH)).decode(errors="replace")

    async def submit(self, manifests: str) -> list[PodRow]:
        """Submit pods: one or several YAML documents.

        Raises:
            PlacerAwayError: no answer.
            PlacerRefusedError: a manifest cannot work; no pod was accepted.
        """
        answer = await self._request("POST", PODS_PATH, manifests.encode())
        return msgspec.json.decode(answer, type=list[PodRow])

    async def explain(self, namespace: str, name: str, query: Query | None = None) -> bytes:
        """The explanation of a pod: an `Explained` in JSON.

        Args:
            namespace: the pod's.
            name: the pod's.
            query: see `plimsoll.placer_api.routes`.

        Raises:
            PlacerAwayError: no answer.
            NoSuchPodError: the placer does not know the pod.
            PlacerRefusedError: the placer cannot explain it now, or a parameter is wrong.
        """
        path = EXPLAIN_PATH.format(namespace=quote(namespace, safe=""), name=quote(name, safe=""))
        return await self._request("GET", path, query=query)

    async def relocation(self, query: Query) -> bytes:
        """The pods that would move for a waiting pod, or to free a GPU: a `RelocationPreview` in JSON.

        Args:
            query: see `plimsoll.placer_api.routes`.

        Raises:
            PlacerAwayError: no answer.
            NoSuchPodError: the placer does not know the pod, or has no cluster.
            PlacerRefusedError: the placer cannot answer now, or a parameter is wrong.
        """
        return await self._request("GET", RELOCATION_PATH, query=query)

    async def live(self, *, once: bool = False) -> AsyncGenerator[tuple[str, bytes]]:
        """The messages of the live page's stream, each with its kind (see `plimsoll.placer_api.live`), until it ends.

        Args:
            once: end after one whole state. Such a reader takes no page's place.

        Raises:
            PlacerAwayError: no answer, or none for `SILENT_S`.
            PlacerRefusedError: too many read already, or the token may not read.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=SILENT_S)
        request = PlacerRequest("GET", LIVE_PATH, timeout, {ONCE: "1"} if once else {})
        kind = ""
        with _translated():
            async with self._way.sent(request) as response:
                if response.status in REFUSED:
                    raise PlacerRefusedError(msgspec.json.decode(await response.read(), type=Problem).message)
                response.raise_for_status()
                async for line in response.content:
                    name, _, value = line.strip().partition(b": ")
                    if name == b"event":
                        kind = value.decode()
                    elif name == b"data":
                        yield kind, value

    async def _request(
        self, method: str, path: str, body: bytes | None = None, query: Query | None = None
    ) -> bytes:
        _, answer = await self._answer(method, path, frozenset(), body, query)
        return answer

    async def _answer(
        self,
        method: str,
        path: str,
        wanted: frozenset[int],
        body: bytes | None = None,
        query: Query | None = None,
    ) -> tuple[int, bytes]:
        """Status and body; a status that is `wanted`, and any that is no error, is no reason to raise."""
        request = PlacerRequest(method, path, aiohttp.ClientTimeout(total=self._timeout_s), query or {}, body)
        with _translated():
            async with self._way.sent(request) as response:
                answer = await response.read()
                if response.status in wanted:
                    return response.status, answer
                if response.status in REFUSED:
                    kind = NoSuchPodError if response.status == 404 else PlacerRefusedError
                    raise kind(msgspec.json.decode(answer, type=Problem).message)
                response.raise_for_status()
                return response.status, answer


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise PlacerAwayError(cause_of(error, LOGIN)) from error
    except (ValueError, msgspec.MsgspecError) as error:
        remedy = "is it the placer's address, and are both of one version?"
        raise PlacerAwayError(f"the answer does not come from a placer ({error}); {remedy}") from error
