"""Storage objects on a real API server, and a provisioner that makes zonal volumes as a CSI driver's would."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World
from tests.servers.apiserver import ApiServer, Object
from tests.servers.controllers import controllers
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
DRIVER = "zonal.example.com"
CORE, STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
CONTROLLERS = (
    "persistentvolume-binder-controller",
    "ephemeral-volume-controller",
    "persistentvolumeclaim-protection-controller",
)
_COLLECTIONS = (
    f"{CORE}/persistentvolumeclaims",
    f"{CORE}/persistentvolumes",
    f"{STORAGE}/storageclasses",
    f"{STORAGE}/csinodes",
    f"{STORAGE}/csidrivers",
    f"{STORAGE}/csistoragecapacities",
    f"{STORAGE}/volumeattachments",
)
LOOK_S = 0.05


@contextlib.asynccontextmanager
async def binding_controllers(api: ApiServer, directory: Path) -> AsyncIterator[None]:
    """Kubernetes' own controllers of claims, until the context ends; then no storage object is left."""
    async with controllers(api.plane, CONTROLLERS, directory):
        yield
    await purge_storage(api)


async def purge_storage(api: ApiServer) -> None:
    """Remove all storage objects; no controller takes their finalizers away."""
    for collection in _COLLECTIONS:
        group, _, kind = collection.rpartition("/")
        for item in (await api.get(collection))["items"]:
            meta = item["metadata"]
            where = f"{group}/namespaces/{meta['namespace']}" if "namespace" in meta else group
            path = f"{where}/{kind}/{meta['name']}"
            await api.call("PATCH", path, {"metadata": {"finalizers": None}})
            await api.call("DELETE", path)


async def create_class(
    api: ApiServer,
    name: str,
    provisioner: str = NO_PROVISIONER,
    *,
    mode: str = "WaitForFirstConsumer",
    zones: Sequence[str] = (),
) -> None:
    """Create a StorageClass."""
    document: Object = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }
    if zones:
        document["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    await api.must("POST", f"{STORAGE}/storageclasses", document)


async def create_claim(
    api: ApiServer,
    namespace: str,
    name: str,
    class_name: str,
    *,
    size: str = "1Gi",
    mode: str = "ReadWriteOnce",
) -> None:
    """Create a claim."""
    spec = {
        "accessModes": [mode],
        "storageClassName": class_name,
        "resources": {"requests": {"storage": size}},
    }
    await api.must("POST", claims_path(namespace), {"metadata": {"name": name}, "spec": spec})


async def create_volume(
    api: ApiServer,
    name: str,
    class_name: str,
    *,
    size: str = "1Gi",
    label: tuple[str, str] | None = None,
    mode: str = "ReadWriteOnce",
    **spec: object,
) -> None:
    """Create a volume that the nodes with this label reach; its CSI handle is its name."""
    document: Object = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": size},
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": name},
            **spec,
        },
    }
    if label is not None:
        terms = [{"matchExpressions": [{"key": label[0], "operator": "In", "values": [label[1]]}]}]
        document["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    await api.must("POST", f"{CORE}/persistentvolumes", document)


def claims_path(namespace: str) -> str:
    """The path of the claims of a namespace."""
    return f"{CORE}/namespaces/{namespace}/persistentvolumeclaims"


async def get_claim(api: ApiServer, namespace: str, name: str) -> Object:
    """A claim as stored."""
    return await api.get(f"{claims_path(namespace)}/{name}")


async def create_user(api: ApiServer, namespace: str, name: str, *claims: str, memory: str = "1Gi") -> None:
    """Create a pod that uses these claims and declares this much memory of a GPU."""
    pod = pod_manifest(name, {MEMORY: memory})
    pod["spec"]["volumes"] = [
        {"name": f"data-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]
    await create_pod(api, namespace, pod)


async def until_selected(world: World, claim: str) -> str:
    """Wait until a claim has a selected node, and return it."""

    async def look() -> str | None:
        stored = await get_claim(world.api, world.namespace, claim)
        selected: str | None = stored["metadata"].get("annotations", {}).get(SELECTED_NODE)
        return selected

    node = await until(look)
    assert node is not None
    return node


@dataclass(slots=True)
class Provisioner:
    """Makes a volume in the selected node's zone for each claim with a selected node, as an external provisioner.

    Attributes:
        made: the uids of the claims that got a volume.
        fails: claims for which it takes the selected node back, as after an error that another node may not have.
    """

    api: ApiServer
    namespace: str
    made: set[str] = field(default_factory=set)
    fails: set[str] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Provision until the context ends."""
        task = asyncio.create_task(self._run(), name="provisioner")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()

    async def _run(self) -> None:
        while True:
            for claim in (await self.api.get(claims_path(self.namespace)))["items"]:
                name, uid, node = claim["metadata"]["name"], claim["metadata"]["uid"], _selected(claim)
                if node is None or uid in self.made or claim["spec"].get("volumeName"):
                    continue
                if name in self.fails:
                    self.fails.discard(name)
                    path = f"{claims_path(self.namespace)}/{name}"
                    await self.api.must("PATCH", path, {"metadata": {"annotations": {SELECTED_NODE: None}}})
                    continue
                self.made.add(uid)
                await self._make(claim, node)
            await asyncio.sleep(LOOK_S)

    async def _make(self, claim: Object, node: str) -> None:
        meta, spec = claim["metadata"], claim["spec"]
        zone = (await self.api.get(f"{CORE}/nodes/{node}"))["metadata"]["labels"][ZONE]
        await create_volume(
            self.api,
            f"pvc-{meta['uid']}",
            spec["storageClassName"],
            size=spec["resources"]["requests"]["storage"],
            label=(ZONE, zone),
            mode=spec["accessModes"][0],
            claimRef={"namespace": self.namespace, "name": meta["name"], "uid": meta["uid"]},
        )


def _selected(claim: Object) -> str | None:
    selected: str | None = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
    return selected
