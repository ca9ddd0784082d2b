"""Kubernetes' own tools for extended resources work with ours: quotas, limit ranges, `kubectl describe node`."""

from pathlib import Path

from plimsoll.dialects import Json
from tests.placer.webhook.core.pods import GPU, MEMORY, SHARE, container, pod
from tests.placer.webhook.scene import Scene
from tests.servers.controllers import controllers
from tests.servers.objects import create_node
from tests.servers.waiting import until


def named(name: str, **limits: str) -> Json:
    """A pod of one container with these limits of ours: `memory`, `share`, `count`."""
    keys = {"memory": MEMORY, "share": SHARE, "count": GPU}
    made = pod(container(limits={keys[key]: value for key, value in limits.items()}))
    made["metadata"]["name"] = name
    return made


async def test_a_quota_counts_what_the_webhook_fills_in(webhook: Scene, tmp_path: Path) -> None:
    """Bytes, percent and GPUs of a namespace add up, and a pod past any of them is refused by that name."""
    hard = {f"requests.{MEMORY}": "10Gi", f"requests.{SHARE}": "70", f"requests.{GPU}": "3"}
    path = f"/api/v1/namespaces/{webhook.namespace}/resourcequotas"
    async with controllers(webhook.api.plane, ["resourcequota-controller"], tmp_path):
        await webhook.api.must("POST", path, {"metadata": {"name": "team"}, "spec": {"hard": hard}})

        async def in_force() -> bool:
            return bool((await webhook.api.get(f"{path}/team")).get("status", {}).get("hard") == hard)

        await until(in_force)
        for name, asked in (("a", {"memory": "4Gi", "share": "30"}), ("b", {"memory": "4Gi"})):
            assert (await webhook.create(named(name, **asked)))["kind"] == "Pod"
        used = (await webhook.api.get(f"{path}/team"))["status"]["used"]
        assert used == {f"requests.{MEMORY}": "8Gi", f"requests.{SHARE}": "30", f"requests.{GPU}": "2"}
        for asked, of in (
            ({"memory": "3Gi"}, f"requests.{MEMORY}=3Gi, used: requests.{MEMORY}=8Gi"),
            ({"memory": "1Gi", "share": "50"}, f"requests.{SHARE}=50, used: requests.{SHARE}=30"),
            ({"memory": "2Gi", "count": "2"}, f"requests.{GPU}=2, used: requests.{GPU}=2"),
        ):
            refused = await webhook.create(named("c", **asked))
            assert f"exceeded quota: team, requested: {of}" in refused["message"]
        assert (await webhook.create(named("c", memory="2Gi", share="40")))["kind"] == "Pod"


async def test_a_limit_range_bounds_a_containers_lines(webhook: Scene) -> None:
    """The most and the least bytes of a container. Values from the webhook are held to them too."""
    path = f"/api/v1/namespaces/{webhook.namespace}/limitranges"
    limits = [{"type": "Container", "max": {MEMORY: "8Gi", GPU: "1"}, "min": {MEMORY: "1Gi"}}]
    await webhook.api.must("POST", path, {"metadata": {"name": "lines"}, "spec": {"limits": limits}})

    async def message(**asked: str) -> str:
        path = f"/api/v1/namespaces/{webhook.namespace}/pods?dryRun=All"
        return str((await webhook.api.call("POST", path, named("a", **asked))).body.get("message", ""))

    async def in_force() -> bool:
        return f"maximum {MEMORY} usage per Container is 8Gi, but limit is 16Gi" in await message(
            memory="16Gi"
        )

    await until(in_force)
    assert f"minimum {MEMORY} usage per Container is 1Gi" in await message(memory="512Mi")
    assert f"maximum {GPU} usage per Container is 1, but limit is 2" in await message(memory="8Gi", count="2")
    assert await message(memory="8Gi") == ""


async def test_describing_a_node_adds_up_its_pods(webhook: Scene) -> None:
    """`kubectl describe node` names capacity, and what the node's pods have of it."""
    total = {MEMORY: "46Gi", SHARE: "200", GPU: "60"}
    await create_node(webhook.api, "n1", total)
    for name in ("a", "b"):
        assert (await webhook.create(named(name, memory="4Gi", share="30")))["kind"] == "Pod"
        path = f"/api/v1/namespaces/{webhook.namespace}/pods/{name}/binding"
        await webhook.api.must("POST", path, {"metadata": {"name": name}, "target": {"name": "n1"}})
    lines = [line.split() for line in (await webhook.api.kubectl("describe", "node", "n1")).splitlines()]
    for resource, amount in total.items():
        assert lines.count([f"{resource}:", amount]) == 2, "capacity and allocatable"
    for row in ([MEMORY, "8Gi", "8Gi"], [SHARE, "60", "60"], [GPU, "2", "2"]):
        assert row in lines
