"""The real API server behaves as the placer's design assumes."""

import asyncio
import json

import pytest

from tests.servers.apiserver import Answer, ApiServer, Object, RefusedError
from tests.servers.objects import apply_manifest, create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import PATIENCE_S, until

GPU_KEY = "gpus.plimsoll.dev/main"
GPU = "GPU-11111111-2222-3333-4444-555555555555"


async def bind(api: ApiServer, namespace: str, pod: str, node: str, gpu: str) -> Answer:
    """Bind a pod to a node with the GPU in the same write."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": {GPU_KEY: gpu}},
        "target": {"kind": "Node", "name": node},
    }
    return await api.call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", binding)


async def first_change(api: ApiServer, namespace: str, pod: Object) -> Object:
    """The pod after the first write that followed `pod`."""
    since = pod["metadata"]["resourceVersion"]
    path = f"/api/v1/namespaces/{namespace}/pods?watch=1&resourceVersion={since}"
    async with asyncio.timeout(PATIENCE_S), api.http.get(path, headers=api.authorization()) as answer:
        change: Object = json.loads(await answer.content.readline())
    changed: Object = change["object"]
    return changed


async def test_binding_writes_node_and_gpu_together(apiserver: ApiServer, namespace: str) -> None:
    """The write that sets the pod's node also merges the Binding's annotations into the pod."""
    await create_node(apiserver, "n1", {"plimsoll.dev/gpu": "60", "plimsoll.dev/gpu-memory": "48Gi"})
    manifest = pod_manifest("p", {"plimsoll.dev/gpu-memory": "4Gi"}, annotations={"mine": "kept"})
    created = await create_pod(apiserver, namespace, manifest)
    assert "nodeName" not in created["spec"]
    assert (await bind(apiserver, namespace, "p", "n1", GPU)).status == 201
    bound = await first_change(apiserver, namespace, created)
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"mine": "kept", GPU_KEY: GPU}


async def test_second_bind_is_a_conflict_and_changes_nothing(apiserver: ApiServer, namespace: str) -> None:
    """A second Binding gets 409, and neither its node nor its GPU is stored."""
    await create_node(apiserver, "n1")
    await create_node(apiserver, "n2")
    await create_pod(apiserver, namespace, pod_manifest("p"))
    assert (await bind(apiserver, namespace, "p", "n1", GPU)).status == 201
    assert (await bind(apiserver, namespace, "p", "n2", "GPU-other")).status == 409
    bound = await get_pod(apiserver, namespace, "p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"][GPU_KEY]) == ("n1", GPU)


async def test_created_node_is_ready_untainted_and_has_what_was_asked(apiserver: ApiServer) -> None:
    """A node made for a test looks as a healthy kubelet leaves it, with the given resources."""
    node = await create_node(
        apiserver, "n1.example", {"plimsoll.dev/gpu": "2", "cpu": "1"}, labels={"a": "b"}
    )
    assert node["status"]["allocatable"]["plimsoll.dev/gpu"] == "2"
    assert node["status"]["allocatable"]["cpu"] == "1"
    assert node["status"]["conditions"][0]["status"] == "True"
    assert "taints" not in node["spec"]
    assert node["metadata"]["labels"] == {"a": "b", "kubernetes.io/hostname": "n1.example"}


@pytest.mark.parametrize("_", [1, 2])
async def test_shared_server_is_empty_at_the_start_of_a_test(apiserver: ApiServer, _: int) -> None:
    """A test does not see nodes, namespaces and pods of the test before it."""
    assert (await apiserver.get("/api/v1/nodes"))["items"] == []
    assert (await apiserver.get("/api/v1/pods"))["items"] == []
    await create_node(apiserver, "n1")
    await apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": "left-behind"}})
    await create_pod(apiserver, "left-behind", pod_manifest("p"))
    # A pod with a node has a grace period, and no kubelet here ends that period.
    bound = pod_manifest("p")
    bound["spec"]["nodeName"] = "n1"
    await create_pod(apiserver, "default", bound)


async def test_kubectl_applies_yaml_and_reads_it_back(apiserver: ApiServer, namespace: str) -> None:
    """The real kubectl creates a pod from YAML; a limit of `4Gi` GPU memory becomes a request too."""
    await apply_manifest(
        apiserver,
        namespace,
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: yaml}
        spec:
          schedulerName: plimsoll
          containers:
          - {name: main, image: none, resources: {limits: {plimsoll.dev/gpu-memory: 4Gi}}}
        """,
    )
    path = "jsonpath={.spec.containers[0].resources.requests.plimsoll\\.dev/gpu-memory}"
    assert (
        await apiserver.kubectl("get", "pod", "yaml", f"--namespace={namespace}", "--output", path) == "4Gi"
    )
    with pytest.raises(RefusedError, match="NotFound"):
        await apiserver.kubectl("get", "pod", "absent", f"--namespace={namespace}")


async def test_rights_follow_the_roles_bound_to_a_user(apiserver: ApiServer) -> None:
    """A user without a role is refused by name, and may act as soon as a role is bound, so RBAC is on."""
    refused = await apiserver.call("GET", "/api/v1/nodes", user="plimsoll-placer")
    assert refused.status == 403
    assert 'User "plimsoll-placer" cannot list resource "nodes"' in refused.body["message"]

    async def may_list_nodes() -> bool:
        return (await apiserver.call("GET", "/api/v1/nodes", user="plimsoll-placer")).status == 200

    role = "list-nodes-for-a-test"
    await apiserver.kubectl("create", "clusterrole", role, "--verb=list", "--resource=nodes")
    try:
        subject = "--user=plimsoll-placer"
        await apiserver.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", subject)
        # The authorizer reads new roles from a watch, a moment after they are stored.
        await until(may_list_nodes)
        assert (await apiserver.call("GET", "/api/v1/nodes", user="somebody")).status == 403
    finally:
        await apiserver.kubectl("delete", "clusterrole,clusterrolebinding", role, "--ignore-not-found")
