"""The client of the placer's HTTP API on its control socket."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec

from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api.http import PODS_PATH, STATE_PATH, PodRow, Problem, State

TIMEOUT_S: Final = 10.0


class PlacerAwayError(PlimsollError):
    """The placer did not answer: it may be starting, or gone."""


class PlacerRefusedError(PlimsollError):
    """The placer refused a request; the message names field, value and remedy."""


class PlacerClient:
    """A client of one placer. Use it as an async context manager; every call may be cancelled and repeated."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        connector = aiohttp.UnixConnector(str(self._socket))
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    async def state(self) -> State:
        """Nodes, GPUs, tasks and pods as the placer knows them.

        Raises:
            PlacerAwayError: no answer.
        """
        return msgspec.json.decode(await self._request("GET", STATE_PATH), type=State)

    async def submit(self, manifests: str) -> list[PodRow]:
        """Submit pods: one or several YAML documents.

        Raises:
            PlacerAwayError: no answer.
            PlacerRefusedError: a manifest cannot work; no pod was accepted.
        """
        answer = await self._request("POST", PODS_PATH, manifests.encode())
        return msgspec.json.decode(answer, type=list[PodRow])

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        assert self._session is not None, "used outside its context"
        try:
            async with self._session.request(method, f"http://placer{path}", data=body) as response:
                answer = await response.read()
                if response.status == 400:
                    raise PlacerRefusedError(msgspec.json.decode(answer, type=Problem).message)
                response.raise_for_status()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PlacerAwayError(f"{method} {path} on {self._socket}: {error!r}") from error
