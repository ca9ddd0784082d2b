"""When each pod of a namespace came to each stage, by the clock of a watch.

The kubelet's own times have whole seconds only.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from tests.node.node import Node
from tests.servers.apiserver import Object

PATIENCE_S: Final = 180.0

STAGES: Final = ("bound", "sandbox", "ready")
"""A node has the pod; its volumes are mounted and its sandbox has a network; its container runs and is ready."""

_CONDITIONS: Final = {"sandbox": "PodReadyToStartContainers", "ready": "Ready"}


@dataclass(slots=True)
class PodTimeline:
    """The stages of pods.

    Attributes:
        reached_s: by pod and stage, when the watch first saw it, on `time.monotonic`.
        gone: pods that were deleted.
    """

    reached_s: dict[str, dict[str, float]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, kind: str, pod: Object) -> None:
        """Take one event of the watch."""
        now_s, name = time.monotonic(), pod["metadata"]["name"]
        stages = self.reached_s.setdefault(name, {})
        if pod["spec"].get("nodeName"):
            stages.setdefault("bound", now_s)
        true = {one["type"] for one in pod["status"].get("conditions", ()) if one["status"] == "True"}
        for stage, condition in _CONDITIONS.items():
            if condition in true:
                stages.setdefault(stage, now_s)
        if kind == "DELETED":
            self.gone.add(name)
        self._news.set()

    async def until_ready(self, names: list[str]) -> None:
        """Wait until all of these pods are ready."""
        await self._until(lambda: all("ready" in self.reached_s.get(name, {}) for name in names), names)

    async def until_gone(self, names: list[str]) -> None:
        """Wait until all of these pods are deleted."""
        await self._until(lambda: self.gone.issuperset(names), names)

    async def _until(self, done: Callable[[], bool], names: list[str]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not done():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = {name: sorted(self.reached_s.get(name, {})) for name in names}
            raise AssertionError(f"after {PATIENCE_S} s: {seen}, gone: {sorted(self.gone)}") from None


@contextlib.asynccontextmanager
async def watching(node: Node, namespace: str) -> AsyncIterator[PodTimeline]:
    """Watch the pods of a namespace that has none yet, until the context ends."""
    found = PodTimeline()
    path = f"/api/v1/namespaces/{namespace}/pods"
    version = (await node.api.get(path))["metadata"]["resourceVersion"]
    task = asyncio.create_task(_follow(node, f"{path}?watch=1&resourceVersion={version}", found))
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _follow(node: Node, path: str, found: PodTimeline) -> None:
    headers = node.api.authorization()
    async with node.api.http.get(path, headers=headers, timeout=None) as answer:
        async for line in answer.content:
            event = json.loads(line)
            found.see(event["type"], event["object"])
