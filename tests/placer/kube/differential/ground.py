"""Makes scenarios real on an API server, with kube-scheduler and a placer over it, one scenario after another.

What always holds: a question is asked only once both schedulers know the whole cluster. A *canary* says so: it is the
last node to be made, no pod fits on it, and both read nodes in the order of their changes. Pods are read in the order
of their changes too, and a question comes after the pods that it must know.
"""

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from placer.core.ledger import Ledger
from placer.core.policies import POLICIES, Policy
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.kube.frontend import KubeFrontEnd
from placer.kube.options import KubeOptions
from placer.kube.parts import KubeContext, KubeParts
from placer.metrics import Metrics
from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from tests.placer.kube.differential import domains_volumes
from tests.placer.kube.differential.draw import NAMESPACES, Object, Scenario
from tests.placer.kube.differential.oracle import SCHEDULER, Oracle, oracle
from tests.placer.kube.differential.pods import KUBELET, RUNTIME_CLASSES
from tests.placer.kube.world import Published
from tests.servers.apiserver import ApiServer, RefusedError
from tests.servers.tasks import running
from tests.servers.waiting import PATIENCE_S

POLICY: Final[Policy] = POLICIES["headroom"]
CANARY: Final = "canary"
ROUND: Final = "differential/round"
LOOK_S: Final = 0.004
"""The pause between two checks of what the placer's watch has shown. A look reads a dictionary, and a run waits
thousands of times."""

_PATHS: Final = {
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}


@dataclass(slots=True)
class Ground:
    """An API server with both schedulers.

    Attributes:
        api: the API server.
        asked: kube-scheduler's answers.
        parts: the placer's.
    """

    api: ApiServer
    asked: Oracle
    parts: KubeParts
    _rounds: Iterable[int] = field(default_factory=itertools.count)
    _made: list[str] = field(default_factory=list)  # paths of objects

    async def lay_out(self, scenario: Scenario) -> None:
        """Replace everything by the cluster of a scenario; returns once both schedulers know it.

        Raises:
            RefusedError: an object is not valid.
        """
        await self.clear()
        for one in scenario.objects:
            await self._make(one)
        await asyncio.gather(*(self._make_node(one) for one in scenario.nodes))
        await asyncio.gather(*(self._make_resident(one) for one in scenario.residents))
        await self._until_known()

    async def clear(self) -> None:
        """Delete all pods, nodes and objects of the last scenario."""
        for namespace in NAMESPACES:
            await self.api.must("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        await self.api.must("DELETE", "/api/v1/nodes?gracePeriodSeconds=0")
        for path in reversed(self._made):
            # The controller that would remove the finalizers does not run.
            await self.api.must("PATCH", path, {"metadata": {"finalizers": None}})
            await self.api.must("DELETE", path)
        self._made.clear()
        self.asked.passed.clear()

    async def make_shared(self) -> None:
        """Make what all scenarios share: namespaces and classes."""
        for name, labels in NAMESPACES.items():
            await self.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for one in (*RUNTIME_CLASSES, *domains_volumes.CLASSES):
            await self._make(one, is_shared=True)

    async def remove_shared(self) -> None:
        """Remove what all scenarios share."""
        for one in (*RUNTIME_CLASSES, *domains_volumes.CLASSES):
            await self.api.must("DELETE", _path(one))
        for name in NAMESPACES:
            await self.api.purge_namespace(name)

    def seen(self, pod: Object) -> Pod | None:
        """A pod as the placer's watch showed it last."""
        return self.parts.watches.pods._known.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    async def create(self, pod: Object) -> Object:
        """Create a pod."""
        return await self.api.must("POST", _pods(pod), pod)

    async def defaulted(self, pod: Object) -> Object:
        """The pod as the API server would store it."""
        return await self.api.must("POST", f"{_pods(pod)}?dryRun=All", pod)

    async def delete(self, pod: Object) -> None:
        """Delete a pod, and return once the placer knows."""
        await self.api.call("DELETE", f"{_pods(pod)}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        await soon(lambda: self.seen(pod) is None)

    async def _make(self, one: Object, *, is_shared: bool = False) -> None:
        await self.api.must(
            "POST", _path(one, is_new=True), {key: one[key] for key in one if key != "status"}
        )
        if not is_shared:
            self._made.append(_path(one))
        if "status" in one:
            await self.api.must("PATCH", f"{_path(one)}/status", {"status": one["status"]})

    async def _make_node(self, node: Object) -> None:
        await self.api.must("POST", "/api/v1/nodes", node)
        # Admission taints every new node as not ready.
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        await self.api.must("PATCH", path, {"spec": {"taints": node["spec"].get("taints", [])}})

    async def _make_resident(self, pod: Object) -> None:
        await self.create({key: pod[key] for key in pod if key != "status"})
        if "status" in pod:
            await self.api.must(
                "PATCH", f"{_pods(pod)}/{pod['metadata']['name']}/status", {"status": pod["status"]}
            )

    async def _until_known(self) -> None:
        round_id = str(next(iter(self._rounds)))
        canary = {
            "metadata": {"name": CANARY, "labels": {ROUND: round_id}},
            "status": {"allocatable": {"pods": "0"}, "capacity": {"pods": "0"}},
        }
        await self.api.must("POST", "/api/v1/nodes", canary)
        nodes = self.parts.watches.nodes._known

        def placer_knows() -> bool:
            found = nodes.get(("default", CANARY)) or nodes.get(("", CANARY))
            return found is not None and (found.metadata.labels or {}).get(ROUND) == round_id

        await soon(placer_knows)
        async with asyncio.timeout(PATIENCE_S):
            for number in itertools.count():
                if await self._kube_scheduler_knows(f"probe-{number}", round_id):
                    return

    async def _kube_scheduler_knows(self, name: str, round_id: str) -> bool:
        """Whether kube-scheduler knows the canary of this round: then it lacks the canary's places, not its label."""
        pod: Object = {
            "metadata": {"name": name, "namespace": min(NAMESPACES)},
            "spec": {
                "schedulerName": SCHEDULER,
                "containers": [{"name": "main", "image": "none"}],
                "nodeSelector": {ROUND: round_id},
                "tolerations": [{"operator": "Exists"}],
            },
        }
        await self.create(pod)
        await soon(lambda: refusal_of(self.seen(pod)) is not None)
        known = "Too many pods" in (refusal_of(self.seen(pod)) or "")
        await self.delete(pod)
        return known


@contextlib.asynccontextmanager
async def ground(api: ApiServer, folder: Path) -> AsyncIterator[Ground]:
    """Run both schedulers over an API server until the context ends; nothing of theirs stays on it."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    loaded = asyncio.Event()
    loaded.set()
    async with oracle(api.kubeconfig(), folder) as asked, connect(api.kubeconfig()) as client:
        parts = KubeParts(KubeContext(client, decider, Published(), KubeOptions(POLICY, places_unheld=True)))
        made = Ground(api, asked, parts)
        async with running(KubeFrontEnd(parts, loaded).run(), "the placer of the differential test"):
            try:
                await made.make_shared()
                await soon(parts.context.leads.is_set)
                yield made
            finally:
                await made.clear()
                await made.remove_shared()


async def soon(look: Callable[[], object]) -> None:
    """Wait until `look`, which reads memory alone, gives a true value.

    Raises:
        TimeoutError: that took longer than `PATIENCE_S`.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not look():  # noqa: ASYNC110 - the placer's watches set no event for others
            await asyncio.sleep(LOOK_S)


def refusal_of(pod: Pod | None) -> str | None:
    """The text of a pod's `PodScheduled: False` condition; None if there is none, or a scheduler only put it off."""
    conditions = (pod.status.conditions or ()) if pod is not None else ()
    found = next((one for one in conditions if one.type == "PodScheduled" and one.status == "False"), None)
    return (found.message or "") if found is not None and found.reason == "Unschedulable" else None


def twin_of(pod: Object) -> Object:
    """The pod for kube-scheduler, which has no filter for the kubelet's rules: it asks for resources in their place.

    A node selector in their place would leave nodes out of the counts of topology spread.
    """
    twin = copy.deepcopy(pod)
    twin["metadata"]["name"] += "-asked"
    twin["spec"]["schedulerName"] = SCHEDULER
    rules = set()
    systems = {
        pod["spec"].get("os", {}).get("name"),
        pod["metadata"].get("labels", {}).get("kubernetes.io/os"),
    }
    for system in systems - {None}:
        rules.add(f"{KUBELET}runs-{system}")
    if pod["spec"].get("securityContext", {}).get("supplementalGroupsPolicy") == "Strict":
        rules.add(f"{KUBELET}keeps-groups")
    asked = twin["spec"]["containers"][0].setdefault("resources", {})
    for kind in ("requests", "limits"):
        asked[kind] = {**asked.get(kind, {}), **dict.fromkeys(rules, "1")}
    return twin


def _pods(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def _path(one: Object, *, is_new: bool = False) -> str:
    path = _PATHS[one["kind"]].format(namespace=one["metadata"].get("namespace"))
    return path if is_new else f"{path}/{one['metadata']['name']}"


__all__ = ["CANARY", "POLICY", "Ground", "RefusedError", "ground", "refusal_of", "soon", "twin_of"]
