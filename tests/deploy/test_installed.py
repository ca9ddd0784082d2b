"""The chart and the base for kustomize, on a real API server: installed, upgraded, rolled back and taken away."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import helm_python as helm
import pytest

from tests.deploy.rendering import CASES, templates
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until
from tools.chart import BASE, CHART, NAMESPACE, RELEASE

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/plimsoll-webhook"
UNSAFE = ("plimsoll-broker", "plimsoll-monitor")  # and the brokers of pools
BUNDLE = "YXV0aG9yaXR5"


@asynccontextmanager
async def of_a_release(api: ApiServer) -> AsyncIterator[None]:
    """The release's namespace, with Pod Security's level, until the context ends. Nothing of the release stays."""
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    await api.must("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": level}})
    try:
        yield
    finally:
        base = await asyncio.to_thread((BASE / "plimsoll.yaml").read_text)
        await api.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=base)
        for kind in ("secrets", "configmaps"):
            await api.must("DELETE", f"/api/v1/namespaces/{NAMESPACE}/{kind}")
        await api.purge()

        async def out_of_force() -> bool:
            probe = pod_manifest(
                "probe", {"plimsoll.dev/gpu": "1"}, annotations={"plimsoll.dev/decision": "{}"}
            )
            path = "/api/v1/namespaces/default/pods?dryRun=All"
            return (await api.call("POST", path, probe)).status < 400

        # All tests share the API server, so a webhook or a policy left behind would refuse the next test's pods.
        await until(out_of_force)


async def trust(api: ApiServer) -> None:
    """Write the authority into the configuration, as the webhook does."""
    found = await api.get(CONFIGURATION)
    hooks = [{"op": "add", "path": f"/webhooks/{n}/clientConfig/caBundle", "value": BUNDLE} for n in range(4)]
    assert len(found["webhooks"]) == len(hooks)
    answer = await api.call("PATCH", CONFIGURATION, hooks, content_type="application/json-patch+json")
    assert answer.status == 200, answer.body


async def bundles(api: ApiServer) -> set[str | None]:
    """The authorities in the configuration."""
    return {one["clientConfig"].get("caBundle") for one in (await api.get(CONFIGURATION))["webhooks"]}


async def test_the_base_applies_twice_and_keeps_the_authority(apiserver: ApiServer) -> None:
    """Server-side apply takes every object of the base. Applied again, it takes nothing from the webhook."""
    apply = ("apply", "--server-side", "--validate=strict", f"--kustomize={BASE}")
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    async with of_a_release(apiserver):
        first = await apiserver.kubectl(*apply)
        assert len(first.splitlines()) > 30
        assert all(line.endswith("serverside-applied") for line in first.splitlines())
        namespace = await apiserver.get(f"/api/v1/namespaces/{NAMESPACE}")
        assert namespace["metadata"]["labels"].items() >= level["metadata"]["labels"].items()
        await trust(apiserver)
        await apiserver.kubectl(*apply)
        assert await bundles(apiserver) == {BUNDLE}


@pytest.mark.parametrize("case", CASES)
async def test_only_the_parts_of_the_node_need_privileged(apiserver: ApiServer, case: str) -> None:
    """Pod Security's `restricted` takes the pods of every part but broker and monitor. `baseline` refuses those too.

    Parts with the host's network need `privileged` as well, which is why that is a value.
    """
    shared = CASES[case].get("placer", {}).get("hostNetwork", False)
    priority = {"metadata": {"name": "plimsoll"}, "value": 1000}
    await apiserver.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    await apiserver.must("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    try:
        async with of_a_release(apiserver):
            for name, template in templates(CASES[case]):
                for level in ("restricted", "baseline", "privileged"):
                    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
                    await apiserver.must("PATCH", f"/api/v1/namespaces/{NAMESPACE}", label)
                    # In place of the volumes that a StatefulSet claims.
                    claimed = {"emptyDir": {}, "name": "data"}
                    spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], claimed]}
                    body = {"metadata": {**template["metadata"], "name": "probe"}, "spec": spec}
                    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
                    answer = await apiserver.call("POST", path, body)
                    taken = level == "privileged" or not (name.startswith(UNSAFE) or shared)
                    assert (answer.status < 400) == taken, (name, level, answer.body.get("message"))
    finally:  # the release's end took the class already, unless the release never began
        await apiserver.call("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/plimsoll")
        await apiserver.must("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/nvidia")


async def pod_of_a_user(api: ApiServer) -> Object:
    """A running pod of a user, on a node, with a place on a GPU."""
    await create_node(api, "n1", {"plimsoll.dev/gpu": "30"})
    given = {"plimsoll.dev/decision": "{}", "gpus.plimsoll.dev/main": "GPU-1"}
    pod = pod_manifest("trainer", {"plimsoll.dev/gpu": "1"}, annotations=given)
    pod["spec"]["nodeName"] = "n1"
    pod["spec"]["volumes"] = [{"name": "plimsoll", "csi": {"driver": "plimsoll.dev"}}]
    await create_pod(api, "default", pod)
    running = {"status": {"phase": "Running"}}
    return await api.must("PATCH", "/api/v1/namespaces/default/pods/trainer/status", running)


async def test_upgrade_rollback_and_uninstall_leave_pods_alone(apiserver: ApiServer) -> None:
    """Helm's own engine installs, upgrades, rolls back and uninstalls. A user's pod is not even written to.

    Passwords stay, and so does the webhook's authority. After the uninstall no webhook refuses a pod.
    """
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/plimsoll-credentials"
    broker = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/plimsoll-broker"
    before = await pod_of_a_user(apiserver)
    async with of_a_release(apiserver):
        with helm.Config(kubeconfig_path=str(apiserver.kubeconfig()), namespace=NAMESPACE) as config:
            installed = await asyncio.to_thread(config.install, str(CHART), RELEASE, {})
            assert (installed["status"], installed["revision"]) == ("deployed", 1)
            passwords = (await apiserver.get(secret))["data"]
            assert len(set(passwords.values())) == 6
            await trust(apiserver)

            # Names are fixed, so another release is refused before it changes anything.
            other = helm.Config(kubeconfig_path=str(apiserver.kubeconfig()), namespace="default")
            with other, pytest.raises(helm.HelmError, match="invalid ownership metadata"):
                await asyncio.to_thread(other.install, str(CHART), "another", {})

            changed: dict[str, Any] = {"nodeImage": {"tag": "next"}, "placer": {"replicas": 3}}
            await asyncio.to_thread(config.upgrade, str(CHART), RELEASE, changed)
            assert image_of(await apiserver.get(broker)) == "plimsoll-node:next"
            assert (await apiserver.get(secret))["data"] == passwords
            assert await bundles(apiserver) == {BUNDLE}

            await asyncio.to_thread(config.rollback, RELEASE, version=1)
            assert image_of(await apiserver.get(broker)) == "plimsoll-node:0.1.0"
            assert (await apiserver.get(secret))["data"] == passwords
            assert await bundles(apiserver) == {BUNDLE}

            await asyncio.to_thread(config.uninstall, RELEASE)
            for path in (broker, CONFIGURATION):
                assert (await apiserver.call("GET", path)).status == 404
            left = await apiserver.kubectl(
                "get",
                "all,pdb,networkpolicy,configmap,secret,role",
                f"--namespace={NAMESPACE}",
                "--output=json",
            )
            assert [one for one in json.loads(left)["items"] if "plimsoll" in one["metadata"]["name"]] == []
            assert await apiserver.get("/api/v1/namespaces/default/pods/trainer") == before


def image_of(workload: Object) -> str:
    """The image of a workload's only container."""
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return str(container["image"])
