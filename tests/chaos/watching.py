"""Follows one collection of the API server by a list and a watch, past every proxy and without the parts' code."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import aiohttp

from tests.servers.apiserver import ApiServer

PAUSE_S: Final = 0.1
"""The pause before the next watch, so that an API server that is away is not asked without end."""

Object = dict[str, Any]


class Listener(Protocol):
    """Takes what a collection holds, and each change of it in the order of writing."""

    def take_list(self, items: Sequence[Object]) -> None:
        """All objects at one moment; versions since the last change may be missing."""

    def take(self, item: Object, *, deleted: bool) -> None:
        """The next version of an object."""


@dataclass(slots=True)
class Watching:
    """Follows a collection while `run` runs.

    Attributes:
        path: the path of the collection.
        lists: how often it was listed. From the second time on, versions may have been missed.
        listed: set while a watch is open.
    """

    api: ApiServer
    path: str
    listener: Listener
    lists: int = 0
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> NoReturn:
        """List and watch until cancelled, whatever the API server does."""
        version = ""
        while True:
            try:
                version = version or await self._list()
                async for kind, item in self._watch(version):
                    version = item["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self.listener.take(item, deleted=kind == "DELETED")
            except _GoneError:
                version = ""
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
                pass  # the API server is away; a watch of the same version goes on where this one ended
            self.listed.clear()
            await asyncio.sleep(PAUSE_S)

    async def _list(self) -> str:
        answer = await self.api.call("GET", self.path)
        if answer.status != 200:
            raise aiohttp.ClientError(str(answer.status))
        self.lists += 1
        self.listener.take_list(answer.body["items"])
        return str(answer.body["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> AsyncIterator[tuple[str, Object]]:
        path = f"{self.path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self.api.http.get(path, headers=self.api.authorization(), timeout=timeout) as answer:
            if answer.status == 410:
                raise _GoneError
            if answer.status != 200:
                raise aiohttp.ClientError(str(answer.status))
            self.listed.set()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _GoneError
                    yield event["type"], event["object"]


class _GoneError(Exception):
    """The API server has forgotten the version from which the watch would go on."""
