"""Small clusters for preemption: bound pods, budgets and a refused pod in a line each, and an API server's part.

The API server accepts every patch. A deletion is graceful: the pod gets its deletion timestamp, and ends when the
test says so. Tests on a real API server are in `preemption.test_servers`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import msgspec

from placer.relocation.memory import RelocationMemory
from placer.relocation.rules import RelocationRules
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.writes import PreemptionWrites
from placer.scheduler.verdicts import Explanation
from plimsoll.ids import PodUid
from plimsoll.kube.models import DisruptionBudget, Pod, PodCondition
from plimsoll.kube.reflector import Added, Synced
from plimsoll.kube.storage_models import CsiNode, VolumeAttachment
from plimsoll.kube.transport import NotFoundError, Transport
from plimsoll.part.times import rfc3339
from plimsoll.quantity import GIB
from tests.placer.kube.decided import decision_text
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE, Object, pod_of
from tests.placer.kube.scene import Scene, scene
from tests.placer.scheduler.plugins.volumes.objects import bound_claim, volume_of
from tests.servers.tasks import running


def pod(
    name: str,
    node: str | None = None,
    priority: int = 0,
    limits: Object | None = None,
    *,
    started: str | None = None,
    status: Object | None = None,
    **more: Any,  # noqa: ANN401 - passed on
) -> Pod:
    """A pod, bound if it has a node; for `more` see `pod_of`."""
    seen = {"startTime": started, **(status or {})}
    return pod_of(name, limits, nodeName=node, priority=priority, status=seen, **more)


def on_gpu(
    name: str,
    gpu: str,
    priority: int = 0,
    gib: int | None = None,
    share: int = 0,
    *,
    is_whole: bool = False,
    cpu: str = "0",
    **more: Any,  # noqa: ANN401 - passed on
) -> Pod:
    """A pod that the placer gave a part of this GPU (`GPU-<node>-<n>`)."""
    node = gpu.removeprefix("GPU-").rpartition("-")[0]
    limits: Object = {"cpu": cpu}
    limits |= {WHOLE: "1"} if is_whole else {SHARE: str(share)} if share else {}
    limits |= {MEMORY: str(gib * GIB)} if gib is not None else {}
    text = decision_text(gpu, gib, 100 if is_whole else share, **({"whole": True} if is_whole else {}))
    given = {"plimsoll.dev/decision": text, "gpus.plimsoll.dev/main": gpu}
    return pod(name, node, priority, limits, annotations=given, **more)


def budget(name: str, app: str | None, allowed: int, *disrupted: str) -> DisruptionBudget:
    """A budget of the pods with this label `app`; None: its selector is empty."""
    document = {
        "metadata": {"name": name},
        "spec": {"selector": {} if app is None else {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "t")},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=DisruptionBudget)


Fault = Callable[[str], Awaitable[None]]


@dataclass
class PreemptionScene:
    """A front end without servers, and what it wrote.

    Attributes:
        deleted: the names of the pods that were deleted, in order.
        evicted: likewise.
        nominated: each nomination that was written, in order: pod and node.
        faults: called with the name of each pod before its deletion; may raise.
        grace_s: the grace period of all pods.
    """

    scene: Scene
    deleted: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    nominated: list[tuple[str, str | None]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    grace_s: float = 0.0

    def __post_init__(self) -> None:
        self.parts = self.scene.parts
        self.preemption = self.parts.core.preemption
        writes = PreemptionWrites(cast("Transport", self))
        self.preemption.nominated.executor.writes = self.parts.controllers.relocator.evictor.writes = writes
        self.parts.watches.on_budget(Synced())
        self.parts.context.leads.set()

    def budgets(self, *budgets: DisruptionBudget) -> None:
        """The watch shows budgets."""
        for one in budgets:
            self.parts.core.budgets.on_change(Added(one))

    def want(self, refused: Pod) -> PodInfo:
        """The watch shows a pod without a node, which is read."""
        self.scene.show(refused)
        self.scene.queued(refused.metadata.name).info = wanted = self.parts.core.reader.understood(refused)
        return wanted

    async def refuse(self, refused: Pod) -> Explanation | None:
        """Refuse a pod, as after its decision."""
        wanted = self.want(refused)
        return await self.preemption.refuse(wanted)

    def nomination(self, name: str) -> tuple[str, set[str]] | None:
        """The nominated node of a pod, and its victims."""
        found = self.scene.cache.nominator.find(PodUid(name))
        return (str(found.node), {str(uid) for uid in found.victims}) if found is not None else None

    async def settle(self) -> None:
        """Do all work that can be done now, preemptions included."""
        for _ in range(3):
            await self.scene.settle()
            for _ in range(50):
                await asyncio.sleep(0)

    # The transport's part, as far as preemption uses it.

    async def get(self, path: str) -> bytes:
        """The pod, as the watch showed it last."""
        found = self.scene.pods.get(path.rpartition("/")[2])
        if found is None:
            raise NotFoundError("gone", 404)
        return msgspec.json.encode(found)

    async def patch(self, path: str, body: Any, kind: object) -> bytes:  # noqa: ANN401, ARG002 - as in `Transport`
        """Take a status."""
        name = path.split("/")[-2]
        await asyncio.sleep(0)
        if name not in self.scene.pods:
            raise NotFoundError("gone", 404)
        if "nominatedNodeName" in body["status"]:
            self.nominated.append((name, body["status"]["nominatedNodeName"]))
            self._change(name, nominatedNodeName=body["status"]["nominatedNodeName"])
        else:
            conditions = msgspec.convert(body["status"]["conditions"], list[PodCondition])
            self._change(name, conditions=conditions)
        return b"{}"

    async def post(self, path: str, body: Any) -> bytes:  # noqa: ANN401 - as in `Transport`
        """Begin to evict a pod."""
        name = path.split("/")[-2]
        await asyncio.sleep(0)
        for fault in self.faults:
            await fault(name)
        if name not in self.scene.pods:
            raise NotFoundError("gone", 404)
        assert body["deleteOptions"]["preconditions"]["uid"] == name
        if "dryRun" in body["deleteOptions"]:
            return b"{}"
        self.evicted.append(name)
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self._change(name, conditions=msgspec.convert([evicted], list[PodCondition]))
        self._end(name)
        return b"{}"

    async def delete(self, path: str, body: Any) -> bytes:  # noqa: ANN401 - as in `Transport`
        """Begin to end a pod."""
        name = path.rpartition("/")[2]
        await asyncio.sleep(0)
        for fault in self.faults:
            await fault(name)
        if name not in self.scene.pods:
            raise NotFoundError("gone", 404)
        assert body["preconditions"]["uid"] == name
        self.deleted.append(name)
        self._end(name)
        return b"{}"

    def _end(self, name: str) -> None:
        """A pod begins to end; its timestamp is the end of its grace period."""
        until = self.parts.context.clock() + timedelta(seconds=self.grace_s)
        self.scene.show_again(name, deletionTimestamp=rfc3339(until))

    def _change(self, name: str, **status: object) -> None:
        known = self.scene.pods[name]
        changed = msgspec.structs.replace(known.status, **status)
        self.scene.show(msgspec.structs.replace(known, status=changed))


@asynccontextmanager
async def preemption_scene(
    relocation: RelocationRules | None = None,
    rooms: RelocationMemory | None = None,
    *,
    places_unheld: bool = True,
) -> AsyncIterator[PreemptionScene]:
    """A scene whose preemptions are carried out meanwhile."""
    async with scene(relocation=relocation, rooms=rooms, places_unheld=places_unheld) as made:
        playing = PreemptionScene(made)
        async with running(playing.preemption.run(), "preempt"):
            yield playing


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
ENDING: dict[str, Any] = {
    "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"conditions": [TARGET]},
}


def cpu(name: str, node: str, priority: int, amount: str = "8", **more: Any) -> Pod:  # noqa: ANN401 - passed on
    """A bound pod that takes this much CPU; a node has 8."""
    return pod(name, node, priority, {"cpu": amount}, **more)


def disk(claim: str) -> dict[str, Any]:
    """A pod's volume of this claim."""
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def attachable(made: PreemptionScene, *names: str, attached: str = "", mode: str = "ReadWriteOnce") -> None:
    """Bound claims of these names, of a driver that attaches one volume to `n1`; one may be attached there."""
    store = made.scene.profile.volumes.store
    limit = {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}
    store.put(msgspec.convert({"metadata": {"name": "n1"}, "spec": limit}, CsiNode))
    for name in names:
        store.put(volume_of(name, csi={"driver": "d", "volumeHandle": name}))
        store.put(bound_claim(name, name, mode))
    if attached:
        to_n1 = {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": attached}}
        store.put(msgspec.convert({"metadata": {"name": attached}, "spec": to_n1}, VolumeAttachment))


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}


CPU = {"cpu": "8"}


def waiting(name: str, priority: int, limits: dict[str, str] | None = None, **more: object) -> Pod:
    """A pod without a node; it wants all CPU of one unless it says otherwise."""
    return pod(name, None, priority, CPU if limits is None else limits, **more)  # type: ignore[arg-type]


async def later(made: PreemptionScene) -> None:
    """Do all work, that of woken pods included."""
    await made.settle()
    made.scene.pass_backoff()
    await made.settle()
