"""Makes the nodes and pods that a test needs on a real API server.

What always holds: a node made here is as a healthy kubelet would leave it, Ready and untainted, so a test only
says what is special about it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tests.servers.apiserver import ApiServer, Object

ALLOCATABLE: Mapping[str, str] = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


async def create_node(
    api: ApiServer,
    name: str,
    allocatable: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
) -> Object:
    """Create a node and return it.

    Args:
        api: The server.
        name: Its name; also its label `kubernetes.io/hostname`.
        allocatable: Quantities by resource, added to `ALLOCATABLE`; capacity is the same.
        labels: Further labels.
        taints: Its only taints.
        ready: The status of its Ready condition.
    """
    node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}}
    await api.must("POST", "/api/v1/nodes", node)
    # Admission taints every new node as not ready. The controller that removes this taint does not run here.
    await api.must("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints)}})
    resources = {**ALLOCATABLE, **(allocatable or {})}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready_condition(ready=ready)]}
    return await api.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})


async def copied_capacity(api: ApiServer) -> bool:
    """Copy capacity to allocatable on every node, as its kubelet would; whether all nodes show GPU memory."""
    for node in (nodes := (await api.get("/api/v1/nodes"))["items"]):
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        await api.must("PATCH", path, {"status": {"allocatable": node["status"]["capacity"]}})
    return all("plimsoll.dev/gpu-memory" in node["status"]["capacity"] for node in nodes)


def ready_condition(*, ready: bool) -> Mapping[str, str]:
    """A node's Ready condition as the kubelet reports it, just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "set by a test",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


async def create_pod(api: ApiServer, namespace: str, pod: Object) -> Object:
    """Create a pod from a manifest as a dict and return it as the API server stored it."""
    return await api.must("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


async def apply_manifest(api: ApiServer, namespace: str, manifest: str) -> None:
    """Create the objects of a YAML or JSON text with the real kubectl."""
    await api.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=manifest)


def pod_manifest(
    name: str,
    resources: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "plimsoll",
) -> Object:
    """A pod of one container `main`; a test changes the dict for anything else.

    Args:
        name: Its name.
        resources: Its limits by resource, for instance `{"plimsoll.dev/gpu-memory": "4Gi"}`; requests follow.
        annotations: Its annotations.
        scheduler: Its `schedulerName`.
    """
    container = {"name": "main", "image": "none", "resources": {"limits": dict(resources or {})}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


async def get_pod(api: ApiServer, namespace: str, name: str) -> Object:
    """The pod as stored on the API server."""
    return await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
