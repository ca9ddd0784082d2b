"""With the chart's policy about access, no pod on a real API server names GPUs past the lines."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import yaml

from tests.deploy.rendering import EVERYTHING, named, objects
from tests.servers.apiserver import Answer, ApiServer, Object
from tests.servers.objects import pod_manifest
from tests.servers.waiting import until

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OURS = {"fieldRef": {"fieldPath": "metadata.annotations['gpus.plimsoll.dev/main']"}}
CLASS: dict[str, Any] = {"runtimeClassName": "nvidia"}
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def pod(asked: str = "", env: Mapping[str, Any] | None = None, **spec: Any) -> Object:  # noqa: ANN401 - any field
    """A pod of one container that asks for one of a resource, with a variable and further fields."""
    made = pod_manifest("p", {asked: "1"} if asked else None, scheduler="default-scheduler")
    made["spec"]["containers"][0] |= {"env": [{"name": VISIBLE, **env}] if env is not None else []}
    made["spec"] |= spec
    return made


@pytest.fixture(scope="module")
async def policy(session_apiserver: ApiServer) -> AsyncIterator[str]:
    """The policy in force in one of Kubernetes' own namespaces, which stay; other ones are not bound by it."""
    apiserver, namespace = session_apiserver, "default"
    policy, binding = (
        yaml.safe_load(yaml.safe_dump(named(EVERYTHING, kind, "plimsoll-access"))) for kind in KINDS
    )
    [rule] = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert rule == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["plimsoll-system", "kube-system", "gpu-operator"],
    }
    rule |= {"operator": "In", "values": [namespace]}
    manifest = yaml.safe_dump_all([policy, binding])
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    await apiserver.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    await apiserver.kubectl("apply", "--server-side", "--filename=-", stdin=manifest)
    try:

        async def in_force() -> bool:
            return (await tried(apiserver, namespace, pod(env={"value": "all"}))).status == 403

        await until(in_force)
        yield namespace
    finally:
        await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=manifest)
        await apiserver.call("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/nvidia")

        async def out_of_force() -> bool:
            return (await tried(apiserver, namespace, pod(env={"value": "all"}))).status != 403

        await until(out_of_force)


@pytest.fixture
def guarded(policy: str, apiserver: ApiServer) -> str:  # noqa: ARG001 - it has no pod
    """The namespace in which the policy is in force, without a pod."""
    return policy


async def tried(api: ApiServer, namespace: str, made: Object) -> Answer:
    """The answer of the API server to a new pod, which is not stored."""
    return await api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", made)


REFUSED = {
    "all of them": pod(env={"value": "all"}),
    "one by its name": pod(env={"value": "GPU-1"}),
    "beside a request": pod("plimsoll.dev/gpu", {"value": "0"}),
    "beside a request to the device plugin": pod("nvidia.com/gpu", {"value": "all"}),
    "from a Secret": pod(env={"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
    "by another container's annotation": pod(
        env={"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpus.plimsoll.dev/other']"}}}
    ),
    "by a label": pod(env={"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['all']"}}}),
    "by the image, in the runtime class": pod(**CLASS),
    "by a sidecar's image": pod(
        "plimsoll.dev/gpu", {"valueFrom": OURS}, initContainers=[{"name": "side", "image": "cuda"}], **CLASS
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_nobody_names_gpus_by_hand(apiserver: ApiServer, guarded: str, case: str) -> None:
    """A pod that would see GPUs without a line is refused, with container and remedy."""
    answer = await tried(apiserver, guarded, REFUSED[case])
    assert answer.status == 403, answer.body
    assert "container side: " in answer.body["message"] or "container main: " in answer.body["message"]
    assert "remove" in answer.body["message"]


ADMITTED = {
    "no GPU at all": pod(),
    "blind": pod(env={"value": "void"}, **CLASS),
    "as the webhook leaves it": pod("plimsoll.dev/gpu-memory", {"valueFrom": OURS}, **CLASS),
    "the device plugin's": pod("nvidia.com/gpu", **CLASS),
}


@pytest.mark.parametrize("case", ADMITTED)
async def test_other_pods_pass(apiserver: ApiServer, guarded: str, case: str) -> None:
    """Pods without GPUs, those that the webhook completed, and those of NVIDIA's device plugin are admitted."""
    answer = await tried(apiserver, guarded, ADMITTED[case])
    assert answer.status == 201, answer.body


async def test_no_debugger_names_them(apiserver: ApiServer, guarded: str) -> None:
    """A new ephemeral container of a pod in the runtime class must be blind."""
    await apiserver.must("POST", f"/api/v1/namespaces/{guarded}/pods", pod("nvidia.com/gpu", **CLASS))
    path = f"/api/v1/namespaces/{guarded}/pods/p/ephemeralcontainers"

    async def debug(name: str, env: list[Object]) -> Answer:
        there = (await apiserver.get(path)).get("spec", {}).get("ephemeralContainers", [])
        one = {"name": name, "image": "cuda", "env": env, "terminationMessagePolicy": "File"}
        return await apiserver.call("PATCH", path, {"spec": {"ephemeralContainers": [*there, one]}})

    for env in ([], [{"name": VISIBLE, "value": "all"}]):
        assert (await debug("seeing", env)).status == 403
    for name in ("first", "second"):
        assert (await debug(name, [{"name": VISIBLE, "value": "void"}])).status == 200


def test_the_policy_is_off_by_default() -> None:
    """It refuses pods of others, so an operator turns it on."""
    assert not [one for one in objects({}) if one["metadata"]["name"] == "plimsoll-access"]
