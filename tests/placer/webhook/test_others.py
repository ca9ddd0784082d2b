"""Beside other webhooks and plugins of the API server, the webhook completes what they add."""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from placer.webhook.certificate import make_generation
from placer.webhook.core.judgement import GpuAccess
from placer.webhook.server import _context
from plimsoll.dialects import Json
from plimsoll.part.web import open_tcp, port_of, serving
from tests.placer.webhook.core.pods import MEMORY, container, gpu_pod, pod
from tests.placer.webhook.scene import ADMISSION, Scene, scene
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until


@asynccontextmanager
async def mesh(found: Scene) -> AsyncIterator[list[str]]:
    """Another webhook, asked after ours, that adds a sidecar and a preload to every pod; yields its calls."""
    calls: list[str] = []
    made = make_generation(frozenset({"127.0.0.1"}), 3600, time.time())

    async def review(request: web.Request) -> web.Response:
        asked = json.loads(await request.read())["request"]
        calls.append(asked["uid"])
        containers = asked["object"]["spec"]["containers"]
        response: Json = {"uid": asked["uid"], "allowed": True}
        if all(one["name"] != "mesh" for one in containers):
            patch: list[Json] = [{"op": "add", "path": "/spec/containers/-", "value": container("mesh")}]
            for at, variable in enumerate(containers[0].get("env", ())):
                if variable["name"] == "LD_PRELOAD":
                    value = "/mesh.so " + variable["value"]
                    patch.append(
                        {"op": "replace", "path": f"/spec/containers/0/env/{at}/value", "value": value}
                    )
            encoded = b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(body)

    context: ssl.SSLContext = await asyncio.to_thread(_context, made)
    listeners = await open_tcp("127.0.0.1", 0, "PORT")
    async with serving([web.post("/", review)], listeners, tls=context):
        name = f"z-mesh-{found.own}"
        label = {"scene": found.own.removeprefix("plimsoll-")}
        bundle = b64encode(made.authority.encode()).decode()
        asked = {
            "name": "mesh.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port_of(listeners)}/", "caBundle": bundle},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
            "namespaceSelector": {"matchLabels": label},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "reinvocationPolicy": "IfNeeded",
        }
        await found.api.must("POST", ADMISSION, {"metadata": {"name": name}, "webhooks": [asked]})
        try:

            async def in_force() -> bool:
                probe = {"metadata": {"name": "probe"}, "spec": {"containers": [container()]}}
                return len((await found.create(probe, dry=True))["spec"]["containers"]) == 2

            await until(in_force)
            yield calls
        finally:
            await found.api.must("DELETE", f"{ADMISSION}/{name}")


async def test_a_sidecar_that_another_webhook_adds_is_completed_too(webhook: Scene) -> None:
    """The API server asks ours again: the sidecar sees no GPU, the library stays preloaded, and then all is quiet."""
    async with mesh(webhook) as calls:
        calls.clear()
        stored = await webhook.create(gpu_pod())
        main, side = stored["spec"]["containers"]
        assert side["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        [preload] = [one["value"] for one in main["env"] if one["name"] == "LD_PRELOAD"]
        assert preload == "/mesh.so /run/plimsoll/lib/libplimsoll.so"
        assert [one["mountPath"] for one in main["volumeMounts"]] == ["/run/plimsoll", "/etc/ld.so.preload"]
        assert len(calls) <= 2


async def test_a_limit_range_gives_memory(webhook: Scene) -> None:
    """A namespace's default line, which a plugin of the API server sets first, is a request like any other."""
    path = f"/api/v1/namespaces/{webhook.namespace}/limitranges"
    limits = [{"type": "Container", "default": {MEMORY: "2Gi"}}]
    await webhook.api.must("POST", path, {"metadata": {"name": "lines"}, "spec": {"limits": limits}})

    async def defaulted() -> bool:
        stored = await webhook.create(pod(container()), dry=True)
        return bool(
            stored["spec"]["containers"][0].get("resources", {}).get("limits", {}).get(MEMORY) == "2Gi"
        )

    await until(defaulted)
    [main] = (await webhook.create(pod(container()), dry=True))["spec"]["containers"]
    assert main["resources"]["requests"] == {MEMORY: "2Gi", "plimsoll.dev/gpu": "1"}
    assert [one["name"] for one in main["env"]] == ["NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"]
    # The pod's author wrote nothing of a GPU, so the refusal of a pod for another scheduler names the cause.
    refused = await webhook.create(pod(container(), schedulerName="default-scheduler"), dry=True)
    assert f"a LimitRange of the namespace gave it {MEMORY} of container main" in refused["message"]
    assert f"kubectl -n {webhook.namespace} get limitranges" in refused["message"]


async def test_a_limit_range_gives_what_another_scheduler_reads(apiserver: ApiServer, namespace: str) -> None:
    """A default that stays in its namespace after a move: a pod gets it, asks for more itself, or asks for ours.

    The API server puts the default back after the translation, so it stays, as 0.
    """
    files = ("webhook.yaml", "webhook-dialects.yaml")
    theirs = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000", "aliyun.com/gpu-mem": "2"}
    access = GpuAccess.DEFAULT_RUNTIME
    async with scene(
        apiserver, namespace, files=files, hami=True, gpushare="GiB", gpu_access=access
    ) as webhook:
        path = f"/api/v1/namespaces/{namespace}/limitranges"
        for defaults in (("nvidia.com/gpu", "nvidia.com/gpumem"), ("aliyun.com/gpu-mem",)):
            default = {name: theirs[name] for name in defaults}
            limits = [{"type": "Container", "default": default}]
            await apiserver.must("POST", path, {"metadata": {"name": "lines"}, "spec": {"limits": limits}})

            memory = "2000Mi" if "nvidia.com/gpumem" in default else "2Gi"
            none = dict.fromkeys(default, "0")

            async def limits_of(scheduler: str, own: Json, found: Scene = webhook) -> Json:
                made = await found.create(pod(container(limits=own), schedulerName=scheduler), dry=True)
                assert made.get("message") is None
                assert made["spec"]["schedulerName"] == "plimsoll"
                return dict(made["spec"]["containers"][0]["resources"].get("limits", {}))

            async def is_in_force(limits_of: Callable[..., Awaitable[Json]] = limits_of) -> bool:
                return bool(await limits_of("plimsoll", {}))

            await until(is_in_force)
            assert (await limits_of("default-scheduler", {})).items() >= {MEMORY: memory, **none}.items()
            own = await limits_of("default-scheduler", dict.fromkeys(default, "1"))
            assert own.items() >= none.items()
            assert own[MEMORY] in {"1Mi", "1Gi"}
            assert (await limits_of("plimsoll", {MEMORY: "1Gi"})).items() >= {MEMORY: "1Gi", **none}.items()
            # A request that cannot be translated still names the cause.
            unlike = pod(container(limits={"nvidia.com/gpucores": "101"}))
            refused = await webhook.create(unlike, dry=True)
            assert "a LimitRange of the namespace gave it" in refused["message"]
            await apiserver.must("DELETE", f"{path}/lines")


async def test_hundreds_of_pods_at_once(webhook: Scene) -> None:
    """A burst is answered in full, while the Secret is deleted in the middle."""
    secret = f"/api/v1/namespaces/{webhook.own}/secrets/plimsoll-webhook-certificates"

    async def one(at: int) -> Json:
        if at == 100:
            await webhook.api.must("DELETE", secret)
        given = gpu_pod()
        given["metadata"]["name"] = f"p{at}"
        return await webhook.create(given, dry=True)

    found = await asyncio.gather(*(one(at) for at in range(300)))
    assert [one.get("message") for one in found if one["kind"] != "Pod"] == []
    await until(webhook.secret_exists)
