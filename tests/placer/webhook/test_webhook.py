"""The webhook as a real API server uses it."""

import io
import json
import re

from plimsoll.broker.volume import csi_volume, volume_mounts
from tests.placer.webhook.core.pods import GPU, MEMORY, container, gpu_pod, pod
from tests.placer.webhook.scene import RESTRICTED, Scene, scene
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

SECURE = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def test_a_pod_is_stored_with_all_it_needs(webhook: Scene) -> None:
    """Two resource lines are all that its author writes; the stored pod, sent in again, stays unchanged."""
    stored = await webhook.create(gpu_pod())
    spec = stored["spec"]
    [main] = spec["containers"]
    assert main["resources"]["limits"] == main["resources"]["requests"]
    assert main["resources"]["limits"][GPU] == "1"
    assert [one["name"] for one in main["env"]] == ["NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"]
    assert main["volumeMounts"][-2:] == list(volume_mounts("plimsoll"))
    assert csi_volume("plimsoll", "main") in spec["volumes"]
    assert spec["runtimeClassName"] == "nvidia"
    again = await webhook.create({"metadata": {"name": "again"}, "spec": spec})
    assert again["spec"] == spec


async def test_a_pod_that_cannot_work_is_refused_with_a_reason(webhook: Scene) -> None:
    """The author sees field, value and remedy, from whatever front end the pod comes."""
    refused = await webhook.create(pod(container(limits={MEMORY: "lots"})))
    # Kubernetes itself refuses what is no quantity; ours is the meaning of a quantity.
    assert refused["code"] in {400, 422}
    refused = await webhook.create(pod(container(limits={GPU: 2, MEMORY: 2**30 + 1})))
    assert refused["code"] == 400
    assert refused["message"] == (
        'admission webhook "gpus.plimsoll.dev" denied the request: '
        "spec.containers[main].resources[plimsoll.dev/gpu-memory]: '1073741825' does not divide evenly by 2 GPUs; "
        "give a multiple of 2"
    )
    elsewhere = gpu_pod()
    elsewhere["spec"]["schedulerName"] = "default-scheduler"
    assert "knows nothing of plimsoll.dev/gpu-memory" in (await webhook.create(elsewhere))["message"]


async def test_the_placers_annotations_are_refused_from_everybody(webhook: Scene) -> None:
    """An administrator too is refused at creation, without any policy."""
    for given in (container(), container(limits={GPU: 1})):
        for name in ("gpus.plimsoll.dev/main", "plimsoll.dev/decision", "plimsoll.dev/resize-by"):
            refused = await webhook.create(pod(given, annotations={name: "x"}))
            assert "tells of one that is; recreate the pod without it" in refused["message"]


async def test_restricted_namespaces_take_the_pods(webhook: Scene) -> None:
    """Nothing that is injected breaks Pod Security's `restricted`, which refuses the same pod with a host path."""
    path = f"/api/v1/namespaces/{webhook.namespace}"
    await webhook.api.must("PATCH", path, {"metadata": {"labels": RESTRICTED}})
    given = gpu_pod(securityContext=SECURE)
    given["spec"]["initContainers"] = [container("init", securityContext=SECURE)]
    stored = await webhook.create(given)
    assert stored["kind"] == "Pod", stored
    assert stored["spec"]["volumes"][-1]["csi"]["driver"] == "plimsoll.dev"
    given["metadata"]["name"] = "host"
    given["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/var/lib/plimsoll"}}]
    assert 'violates PodSecurity "restricted' in (await webhook.create(given))["message"]
    assert 'violates PodSecurity "restricted' in (await webhook.create(gpu_pod()))["message"]


async def test_an_annotation_of_a_waiting_pod_changes_to_good_values_only(webhook: Scene) -> None:
    """The author of a waiting pod learns at once of a value that cannot work."""
    await webhook.create(gpu_pod())
    path = f"/api/v1/namespaces/{webhook.namespace}/pods/p"
    for value, status in (("60", 200), ("lots", 400), ("20", 400), ("100", 200)):
        body = {"metadata": {"annotations": {"plimsoll.dev/gpu-share-limit": value}}}
        answer = await webhook.api.call("PATCH", path, body)
        assert answer.status == status, (value, answer.body)
    for name in ("gpu-model", "policy", "gpu-id", "cpu-affinity", "affinity", "nonsense"):
        answer = await webhook.api.call(
            "PATCH", path, {"metadata": {"annotations": {f"plimsoll.dev/{name}": ""}}}
        )
        assert answer.status == 400, (name, answer.body)
    assert (await webhook.api.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_an_ephemeral_container_sees_no_gpu(webhook: Scene) -> None:
    """`kubectl debug` into a pod with GPUs gives a container that sees none; the second changes no first one."""
    await webhook.create(gpu_pod())
    path = f"/api/v1/namespaces/{webhook.namespace}/pods/p/ephemeralcontainers"
    for at in range(2):
        body = {"spec": {"ephemeralContainers": [{"name": f"debug-{at}", "image": "cuda"}]}}
        answer = await webhook.api.call(
            "PATCH", path, body, content_type="application/strategic-merge-patch+json"
        )
        assert answer.status == 200, answer.body
        containers = answer.body["spec"]["ephemeralContainers"]
        assert len(containers) == at + 1
        for one in containers:
            assert one["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


async def test_an_outage_stops_no_pod_without_gpus(apiserver: ApiServer, namespace: str) -> None:
    """While nothing listens, a pod with GPUs is refused by the webhook's name, and every other pod is stored.

    That includes pods of our scheduler and pods of hundreds of containers. A waiting pod's annotations may change, as
    the placer reads them again.
    """
    async with scene(apiserver, namespace, runs=False) as outage:

        async def in_force() -> bool:
            return "failed calling webhook" in (await outage.create(gpu_pod(), dry=True)).get("message", "")

        await until(in_force)
        refused = await outage.create(gpu_pod())
        assert refused["code"] == 500
        assert 'failed calling webhook "gpus.plimsoll.dev"' in refused["message"]
        ours = await outage.create(pod(container(limits={"cpu": "1"}), annotations={"mine": "x"}))
        assert ours["kind"] == "Pod", ours
        many = [
            container(f"c{at}", limits={f"example.com/r{of}": 1 for of in range(10)}) for at in range(300)
        ]
        other = {"metadata": {"name": "other"}, "spec": {"containers": many}}
        assert (await outage.create(other))["kind"] == "Pod"
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        for annotations in ({"mine": "y"}, {"plimsoll.dev/policy": "headroom"}):
            answer = await apiserver.call("PATCH", path, {"metadata": {"annotations": annotations}})
            assert answer.status == 200, answer.body
        assert (await apiserver.call("DELETE", f"{path}?gracePeriodSeconds=0")).status == 200


async def test_a_namespace_may_be_left_out(webhook: Scene) -> None:
    """Pods of a namespace with the label bring their own mounts, and the webhook is not asked."""
    path = f"/api/v1/namespaces/{webhook.namespace}"
    await webhook.api.must("PATCH", path, {"metadata": {"labels": {"plimsoll.dev/webhook": "off"}}})

    async def left_out() -> bool:
        stored = await webhook.create(gpu_pod(), dry=True)
        return "volumes" not in stored["spec"]

    await until(left_out)


async def test_the_largest_pod_is_answered(webhook: Scene) -> None:
    """A pod near the API server's 3 MiB is injected like any other."""
    big = [{"name": f"V{at}", "value": "x" * 1000} for at in range(2800)]
    path = f"/api/v1/namespaces/{webhook.namespace}/pods?dryRun=All"
    headers = {**webhook.api.authorization(), "Content-Type": "application/json"}
    body = io.BytesIO(json.dumps(gpu_pod(env=big)).encode())
    async with webhook.api.http.post(path, data=body, headers=headers) as answer:
        stored = await answer.json()
    assert stored["kind"] == "Pod", stored
    assert len(stored["spec"]["containers"][0]["env"]) == 2802


async def test_health_and_metrics(webhook: Scene) -> None:
    """A webhook that is trusted is ready, and counts its answers by outcome."""
    await webhook.create(gpu_pod())
    assert await webhook.text("/readyz") == "ok\n"
    metrics = await webhook.text("/metrics")
    assert re.search(r'plimsoll_webhook_reviews_total{outcome="patched"} [1-9]', metrics)
    assert "plimsoll_webhook_certificate_expiry_timestamp_seconds 1." in metrics


async def test_other_schedulers_pods_are_translated_with_a_warning(
    apiserver: ApiServer,
    namespace: str,
    runtime_class: None,  # noqa: ARG001 - must be there
) -> None:
    """With its dialects on, the API server stores HAMi's, gpushare's and KAI's pods as ours, and tells kubectl so."""
    files = ("webhook.yaml", "webhook-dialects.yaml")
    async with scene(apiserver, namespace, files=files, hami=True, gpushare="GiB", kai=True) as found:
        annotations = {"gpu-memory": "4096"}
        kai = {"metadata": {"name": "kai", "annotations": annotations}, "spec": {"containers": [container()]}}
        hami = pod(
            container(limits={"nvidia.com/gpumem": 4096, "nvidia.com/gpu": 1}), schedulerName="hami-scheduler"
        )
        gpushare = pod(container(limits={"aliyun.com/gpu-mem": 4}), schedulerName="default-scheduler")
        hami["metadata"]["name"], gpushare["metadata"]["name"] = "hami", "gpushare"

        async def in_force() -> bool:
            return bool((await found.create(kai, dry=True))["spec"]["schedulerName"] == "plimsoll")

        await until(in_force)
        for given in (kai, hami, gpushare):
            path = f"/api/v1/namespaces/{namespace}/pods"
            async with apiserver.http.post(path, json=given, headers=apiserver.authorization()) as answer:
                stored = await answer.json()
                assert "became plimsoll.dev/gpu" in answer.headers["Warning"]
            [main] = stored["spec"]["containers"]
            assert main["resources"]["requests"]["plimsoll.dev/gpu"] == "1"
            assert main["resources"]["limits"][MEMORY] in {"4Gi", "4096Mi"}
            assert stored["spec"]["schedulerName"] == "plimsoll"
            assert [one["name"] for one in main["env"]] == ["NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"]
        whole = {
            "metadata": {"name": "whole"},
            "spec": {"containers": [container(limits={"nvidia.com/gpu": 1})]},
        }
        assert (await found.create(whole))["spec"]["schedulerName"] == "default-scheduler"
        assert "plimsoll_webhook_translated_total 0" not in await found.text("/metrics")
