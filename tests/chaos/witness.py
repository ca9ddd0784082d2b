"""The independent watch: a list and a watch of its own on the API server, past every proxy, and its own sums.

It sees each version of each pod in the order in which the API server wrote them, so its sums are those of each
moment. After a 410, and after a restart of the API server, versions may be
missing; `gaps` counts that. What always holds: a pod is judged by its first version with a node. What tenants write
on it later counts for nothing; a resize counts, as only the placer may write one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from tests.chaos.answers import ENDED, answers_of, promises_of, resized
from tests.chaos.asks import UnreadableError, annotations_of
from tests.chaos.fleet import Card
from tests.chaos.journal import Journal
from tests.chaos.pods import KIND, MALFORMED
from tests.chaos.promises import Sums
from tests.servers.apiserver import ApiServer

Object = dict[str, Any]

TENANT: Final = "tenant"
"""The field manager of all writes by tenants."""
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod's first version with a node."""

    name: str
    node: str
    answers: Mapping[str, str]
    version: int
    seen_s: float


@dataclass(slots=True)
class Witness:
    """Watches pods while `run` does.

    Attributes:
        pods: every pod that exists, by uid, as last seen.
        bound: every pod that was ever bound, by uid.
        sums: the promises of the pods that are bound and have not ended.
        gaps: the times at which versions of pods may have been missed.
        listed: set while a list was read and a watch of it goes on.
    """

    api: ApiServer
    cards: Mapping[str, Card]
    journal: Journal
    pods: dict[str, Object] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    gaps: int = -1
    version: int = 0
    sums: Sums = field(init=False)
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    on_pod: Callable[[Object], None] = lambda _: None
    _broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sums = Sums(self.cards)

    async def run(self) -> None:
        """List and watch until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async for kind, item in self._watch(version):
                    if kind == "ERROR":
                        version = ""
                        break
                    version = item["metadata"]["resourceVersion"]
                    self.version = int(version)
                    if kind != "BOOKMARK":
                        self.see(item, deleted=kind == "DELETED")
            except _GoneError:
                version = ""
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            self.listed.clear()
            await asyncio.sleep(PAUSE_S)

    async def _list(self) -> str:
        answer = await self.api.call("GET", "/api/v1/pods")
        if answer.status != 200:
            raise aiohttp.ClientError(str(answer.status))
        self.gaps += 1
        seen = {pod["metadata"]["uid"] for pod in answer.body["items"]}
        for uid in self.pods.keys() - seen:
            self.see(self.pods[uid], deleted=True)
        for pod in answer.body["items"]:
            self.see(pod)
        version = str(answer.body["metadata"]["resourceVersion"])
        self.version = int(version)
        self.listed.set()
        return version

    async def _watch(self, version: str) -> AsyncIterator[tuple[str, Object]]:
        path = f"/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
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
                    if event["type"] == "ERROR" and event["object"].get("code") == 410:
                        raise _GoneError
                    yield event["type"], event["object"]

    def see(self, pod: Object, *, deleted: bool = False) -> None:
        """Take a pod's next version, and judge it."""
        uid = pod["metadata"]["uid"]
        ended = deleted or pod.get("status", {}).get("phase") in ENDED
        if deleted:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        if pod["spec"].get("nodeName"):
            if uid not in self.bound:
                self._see_bound(pod)
            elif not ended:
                self._see_bound_again(pod)
        if ended:
            gpus = {promise.gpu for promise in self.sums.of(uid)}
            self.sums.drop(uid)
            self._judge(gpus, pod)
        self.on_pod(pod)

    def _see_bound(self, pod: Object) -> None:
        meta, uid, node = pod["metadata"], pod["metadata"]["uid"], pod["spec"]["nodeName"]
        self.bound[uid] = Bound(
            meta["name"], node, answers_of(pod), int(meta["resourceVersion"]), self.journal.elapsed_s
        )
        self.journal.note(
            "bound",
            pod=meta["name"],
            uid=uid,
            node=node,
            answers=answers_of(pod),
            version=meta["resourceVersion"],
        )
        if pod["spec"].get("schedulerName") != "plimsoll":
            return
        if (meta.get("labels") or {}).get(KIND) == MALFORMED:
            self.journal.find(f"the malformed pod {meta['name']} was bound to {node}")
        promises, problems = promises_of(pod, self.cards)
        for problem in problems:
            self.journal.find(f"pod {meta['name']}: {problem}", annotations=annotations_of(pod))
        self.sums.put(uid, promises)
        self._judge({promise.gpu for promise in promises}, pod)

    def _see_bound_again(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        first = self.bound[uid]
        if pod["spec"]["nodeName"] != first.node:
            self.journal.find(f"pod {meta['name']} moved from {first.node} to {pod['spec']['nodeName']}")
        if answers_of(pod) == first.answers or written_by_tenant(pod):
            return
        try:
            promises = resized(self.sums.of(uid), pod)
        except UnreadableError as error:
            self.journal.find(f"pod {meta['name']}: {error}")
            return
        if promises != self.sums.of(uid):
            self.journal.note(
                "resized", pod=meta["name"], answers=answers_of(pod), version=meta["resourceVersion"]
            )
            self.sums.put(uid, promises)
            self._judge({promise.gpu for promise in promises}, pod)

    def _judge(self, gpus: set[str], pod: Object) -> None:
        for gpu in gpus:
            problems = self.sums.broken(gpu)
            if problems and gpu not in self._broken:
                held = [
                    (self.name(one.pod), one.container, one.memory_bytes, one.share_pct, one.whole)
                    for one in self.sums.on(gpu)
                ]
                for problem in problems:
                    self.journal.find(f"{problem}, since {pod['metadata']['name']}", gpu=gpu, held=held)
            if problems:
                self._broken.add(gpu)
            else:
                self._broken.discard(gpu)

    def name(self, uid: str) -> str:
        """The name of a pod that was bound."""
        return self.bound[uid].name if uid in self.bound else uid


class _GoneError(Exception):
    """The API server has forgotten the version from which the watch would go on."""


def written_by_tenant(pod: Object) -> bool:
    """Whether a tenant has written one of the annotations that are the placer's."""
    for entry in pod["metadata"].get("managedFields") or ():
        if entry.get("manager") != TENANT:
            continue
        fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if any(f"f:{name}" in fields for name in answers_of(pod)):
            return True
    return False
