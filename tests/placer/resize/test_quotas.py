"""A raise keeps to the quotas and limit ranges of the pod's namespace, and the pod's event says who resized it."""

from collections.abc import Callable
from typing import Any

import pytest

from placer.core.resize.change import NotNowError
from placer.scheduler.quotas import applies
from plimsoll.kube.models import Container, Pod, PodSpec, ResourceRequirements
from plimsoll.kube.quota_models import QuotaSpec, ResourceQuota, ScopeRequirement, ScopeSelector
from plimsoll.kube.transport import Query, TransientError, Transport
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.resize_pod import resize_pod
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import World
from tests.placer.resize.pods import counted, one_gpu, placed, resize
from tests.placer.resize.test_tickets import Brokers
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until


async def rule(world: World, kind: str, name: str, spec: dict[str, Any]) -> None:
    """Make a quota or a limit range."""
    path = f"/api/v1/namespaces/{world.namespace}/{kind}"
    await world.api.must("POST", path, {"metadata": {"name": name}, "spec": spec})


async def test_a_raise_keeps_to_the_quota_of_what_is_promised(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Percentages, earlier resizes and admitted pods that wait count; other scopes and lowerings do not."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        hard = {f"requests.{MEMORY}": "12Gi", f"requests.{SHARE}": "60"}
        await rule(world, "resourcequotas", "team", {"hard": hard})
        urgent = {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]
        }
        await rule(
            world,
            "resourcequotas",
            "urgent",
            {"hard": {f"requests.{MEMORY}": "1Gi"}, "scopeSelector": urgent},
        )
        await placed(world, "a", "4Gi", 30)
        with pytest.raises(InputError) as refused:
            await resize(world, "a", "20Gi")
        assert str(refused.value) == (
            f"gpu-memory: '20Gi' makes 20Gi of the pod, past the ResourceQuota team of namespace {namespace}: "
            f"requests.{MEMORY} has hard 12Gi, and 0 are promised to its other pods; "
            "give less, lower another pod, or have the quota raised"
        )
        with pytest.raises(InputError, match=f"requests.{SHARE} has hard 60"):
            await resize(world, "a", share="70")
        await resize(world, "a", "12Gi")
        await resize(world, "a", "2Gi")
        await placed(world, "b", "3Gi")
        # A quarter of 24Gi, of which the API server knows nothing.
        percent = pod_manifest("c", {SHARE: "10"}, annotations={"plimsoll.dev/gpu-memory-percent": "25"})
        await create_pod(world.api, namespace, percent)
        await world.until_bound("c")
        with pytest.raises(InputError, match="and 9Gi are promised"):
            await resize(world, "a", "4Gi")
        await resize(world, "a", "3Gi")
        await resize(world, "b", "1Gi")
        waits = pod_manifest("waits", {MEMORY: "2Gi"})
        waits["spec"]["nodeSelector"] = {"no": "node"}
        await create_pod(world.api, namespace, waits)
        await world.until_refused("waits", "didn't match")
        with pytest.raises(InputError, match="and 9Gi are promised"):
            await resize(world, "a", "4Gi")
        assert (await counted(world, "a")).line_gib == 3


async def test_a_new_pod_waits_for_a_quota_that_a_raise_used_up(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Kubernetes admits by its own count, which knows no raise; pods that wait do not count against each other."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await rule(world, "resourcequotas", "team", {"hard": {f"requests.{MEMORY}": "12Gi"}})
        await placed(world, "a", "4Gi")
        await placed(world, "b", "1Gi")
        await resize(world, "a", "9Gi")
        for name in ("c", "d"):  # 9 of 12 by Kubernetes' count
            await create_pod(world.api, namespace, pod_manifest(name, {MEMORY: "3Gi"}))
            await world.until_refused(
                name,
                f"Pod waits for ResourceQuota team of namespace {namespace}: requests.{MEMORY} has hard 12Gi, 10Gi "
                "are promised to its pods after raises, and this pod asks for 3Gi.",
            )
        await create_pod(world.api, namespace, pod_manifest("small", {MEMORY: "1Gi"}))
        await world.until_bound("small")
        await resize(world, "a", "6Gi")  # still more than it asked for
        [bound] = await until(lambda: _bound(world, "c", "d"))
        waits = ({"c", "d"} - {bound}).pop()
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
        await world.api.must("PATCH", path, {"spec": {"hard": {f"requests.{MEMORY}": "20Gi"}}})
        await world.until_bound(waits)


async def test_after_a_lowering_kubernetes_own_count_holds(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Kubernetes counts no percentage, so a pod that has one never has more than was counted."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await rule(world, "resourcequotas", "team", {"hard": {f"requests.{MEMORY}": "6Gi"}})
        percent = pod_manifest("p", {SHARE: "10"}, annotations={"plimsoll.dev/gpu-memory-percent": "25"})
        await create_pod(world.api, namespace, percent)
        await world.until_bound("p")
        await resize(world, "p", "5Gi")
        await create_pod(world.api, namespace, pod_manifest("c", {MEMORY: "3Gi"}))
        await world.until_bound("c")


async def _bound(world: World, *names: str) -> list[str]:
    """Those of these pods that have a node."""
    return [name for name in names if (await world.pod(name))["spec"].get("nodeName")]


@pytest.mark.parametrize("kind", ["Container", "Pod"])
async def test_a_raise_keeps_to_the_limit_range(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, kind: str
) -> None:
    """The most that a container, or a pod, may have is the most that a resize gives it."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await placed(world, "a", "4Gi")
        await rule(world, "limitranges", "lines", {"limits": [{"type": kind, "max": {MEMORY: "6Gi"}}]})
        with pytest.raises(InputError, match=f"the LimitRange lines allows {MEMORY}: 6Gi"):
            await resize(world, "a", "7Gi")
        await resize(world, "a", "6Gi")
        assert (await counted(world, "a")).line_gib == 6


async def test_the_event_says_who_resized_the_pod_from_what_to_what(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The author of the ticket stands in the event by the name that the API server knows."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        world.parts.doors.tickets.confirmations = Brokers()
        await placed(world, "p", "4Gi", 30)
        asked = Resize(pod="p", namespace=namespace, gpu_memory="6Gi", gpu_share="40")
        await resize_pod(asked, Cluster(str(apiserver.kubeconfig())), 60.0)
        [event] = await world.events("p", "Resized")
        assert event["type"] == "Normal"
        assert event["note"] == (
            "Container main resized by admin: line 4Gi -> 6Gi, share 30 % -> 40 % on GPU-n1-0"
        )


class _NoQuotas:
    """A transport that cannot read quotas now."""

    def __init__(self, real: Transport) -> None:
        self.real = real

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Fail for quotas."""
        if path.endswith("/resourcequotas"):
            raise TransientError("the API server is away")
        return await self.real.get(path, query)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the real one's
        return getattr(self.real, name)


async def test_without_an_answer_about_quotas_nothing_is_raised(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Quotas that cannot be read now may forbid the raise."""
    wrap: Callable[[Transport], Transport] = _NoQuotas
    async with one_gpu(apiserver, valkey, namespace, wrap=wrap) as world:
        await placed(world, "a", "4Gi")
        with pytest.raises(NotNowError, match=f"the quotas of {namespace} cannot be read"):
            await resize(world, "a", "6Gi")
        assert (await counted(world, "a")).line_gib == 4


def _pod(*, cpu: str = "0", **spec: Any) -> Pod:  # noqa: ANN401 - any field
    main = Container("main", resources=ResourceRequirements(requests={"cpu": cpu, MEMORY: "1Gi"}))
    return Pod(spec=PodSpec(containers=[main], **spec))


@pytest.mark.parametrize(
    ("scope", "operator", "values", "pod", "is_counted"),
    [
        ("Terminating", "Exists", [], _pod(activeDeadlineSeconds=5), True),
        ("Terminating", "Exists", [], _pod(), False),
        ("NotTerminating", "Exists", [], _pod(), True),
        ("BestEffort", "Exists", [], _pod(), True),
        ("BestEffort", "Exists", [], _pod(cpu="1"), False),
        ("NotBestEffort", "Exists", [], _pod(cpu="1"), True),
        ("PriorityClass", "In", ["a", "b"], _pod(priorityClassName="b"), True),
        ("PriorityClass", "In", ["a"], _pod(), False),
        ("PriorityClass", "NotIn", ["a"], _pod(priorityClassName="b"), True),
        ("PriorityClass", "NotIn", ["a"], _pod(priorityClassName="a"), False),
        ("PriorityClass", "Exists", [], _pod(priorityClassName="a"), True),
        ("PriorityClass", "DoesNotExist", [], _pod(priorityClassName="a"), False),
        ("CrossNamespacePodAffinity", "Exists", [], _pod(), False),
        ("OfNextYear", "Exists", [], _pod(), True),
        ("PriorityClass", "Near", [], _pod(), True),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(
    scope: str, operator: str, values: list[str], pod: Pod, *, is_counted: bool
) -> None:
    """As Kubernetes counts them; a scope that is not known counts every pod."""
    selector = ScopeSelector([ScopeRequirement(scope, operator, values)])
    assert applies(ResourceQuota(spec=QuotaSpec(scopeSelector=selector)), pod) is is_counted
    if operator == "Exists":
        assert applies(ResourceQuota(spec=QuotaSpec(scopes=[scope])), pod) is is_counted
