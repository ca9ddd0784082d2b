"""The checks of a cluster, on a real API server with the chart's objects, broken one after another."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plimsoll.kube.lease_rules import NOTE
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.doctor import cluster as checks
from plimsoll_cli.doctor.cluster import cluster
from plimsoll_cli.doctor.finding import Finding, Verdict
from plimsoll_cli.doctor.installation import RIGHTS
from tests.deploy import test_installed
from tests.deploy.accounts import RIGHTS as RIGHTS_KINDS
from tests.deploy.accounts import kubeconfig_of, rights_of
from tests.deploy.rendering import texts
from tests.plimsoll_cli.doctor.findings import found, of, verdicts
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, pod_manifest
from tools.chart import BASE, NAMESPACE

APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/plimsoll-placer"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/plimsoll-webhook"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
ALL_OK = dict.fromkeys(
    (
        "api-server",
        "parts",
        "leader",
        "clock",
        "other-leases",
        "rights",
        "webhook",
        "policies",
        "gpu-access",
        "nodes",
        "placing",
        "volumes",
    ),
    "ok",
)


def bundle(days: float) -> str:
    """An authority that is good for this many days more, as the API server has it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


async def examined(api: ApiServer, *, user: str = "admin", namespace: str = NAMESPACE) -> list[Finding]:
    """The findings for a user."""
    return await found(cluster(Cluster(str(api.kubeconfig(user))), namespace))


async def trust(api: ApiServer, authority: str) -> None:
    """Write an authority into the webhook's configuration."""
    configuration = await api.get(test_installed.CONFIGURATION)
    hooks = [
        {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": authority}
        for place in range(len(configuration["webhooks"]))
    ]
    answer = await api.call(
        "PATCH", test_installed.CONFIGURATION, hooks, content_type="application/json-patch+json"
    )
    assert answer.status == 200, answer.body


async def set_ready(api: ApiServer, kind: str, name: str, ready: int) -> None:
    """Say that this many pods of a workload are ready, as its controller does."""
    counts = (
        {"replicas": 2, "readyReplicas": ready}
        if kind == "deployments"
        else {
            "desiredNumberScheduled": 2,
            "currentNumberScheduled": 2,
            "numberMisscheduled": 0,
            "numberReady": ready,
        }
    )
    await api.must("PATCH", f"{APPS}/{kind}/{name}/status", {"status": counts})


async def set_endpoint(api: ApiServer, *, ready: bool) -> None:
    """Say whether the webhook's pod takes requests, as its controller does."""
    ends = [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]
    await api.must("PATCH", SLICE, {"endpoints": ends})


@contextlib.asynccontextmanager
async def leading(api: ApiServer, by: timedelta = timedelta(), lease: str = LEASE) -> AsyncIterator[None]:
    """Somebody renews the Lease until the context ends, by a clock that is wrong `by` this much."""

    async def renew() -> None:
        while True:
            now = (datetime.now(UTC) + by).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            await api.must("PATCH", lease, {"spec": {"holderIdentity": "placer-1", "renewTime": now}})
            await asyncio.sleep(0.2)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def release(apiserver: ApiServer) -> AsyncIterator[ApiServer]:
    """The chart's objects, as if all of its pods were ready; only the Lease is not renewed."""
    await apiserver.must("POST", RUNTIME, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    try:
        async with test_installed.of_a_release(apiserver):
            await apiserver.kubectl("apply", "--server-side", f"--kustomize={BASE}")
            await trust(apiserver, bundle(300))
            for kind, names in (
                ("deployments", ("plimsoll-placer", "plimsoll-webhook")),
                ("daemonsets", ("plimsoll-monitor", "plimsoll-broker")),
            ):
                for name in names:
                    await set_ready(apiserver, kind, name, 2)
            ends = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
            metadata = {
                "name": "plimsoll-webhook",
                "labels": {"kubernetes.io/service-name": "plimsoll-webhook"},
            }
            path = SLICE.rpartition("/")[0]
            await apiserver.must(
                "POST", path, {"metadata": metadata, "addressType": "IPv4", "endpoints": ends}
            )
            lease = {"metadata": {"name": "plimsoll-placer"}, "spec": {"holderIdentity": "placer-1"}}
            await apiserver.must("POST", LEASE.rpartition("/")[0], lease)
            await create_node(apiserver, "n1", {"plimsoll.dev/gpu-memory": "24Gi"})
            try:
                yield apiserver
            finally:
                await apiserver.call("DELETE", LEASE)
                await apiserver.call("DELETE", SLICE)
    finally:
        await apiserver.call("DELETE", f"{RUNTIME}/nvidia")


async def test_a_release_that_works_and_what_breaks(release: ApiServer) -> None:
    """All is well at first. Then each broken part is found, with the command that shows or mends it."""
    async with leading(release):
        findings = await examined(release)
        assert verdicts(findings) == ALL_OK, findings
        assert of(findings, "nodes").text == "nodes with plimsoll.dev/gpu-memory: 1"
        assert of(findings, "leader").text == "placer-1 leads"

        await set_ready(release, "deployments", "plimsoll-webhook", 0)
        await set_endpoint(release, ready=False)
        await set_ready(release, "daemonsets", "plimsoll-monitor", 1)
        status = {"allocatable": {"nvidia.com/gpu": "1"}, "capacity": {"nvidia.com/gpu": "1"}}
        await release.must("PATCH", "/api/v1/nodes/n1/status", {"status": status})
        [_, twice] = [one for one in await examined(release) if one.check == "nodes"]
        assert twice.text == "NVIDIA's device plugin gives out the same GPUs on 1 nodes: n1"
        assert "pool.enabled=true" in twice.remedy
        await release.must("DELETE", "/api/v1/nodes/n1?gracePeriodSeconds=0")
        await release.must("DELETE", f"{RUNTIME}/nvidia")
        binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/plimsoll-monitor"
        await release.must("DELETE", binding)
        policy = (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/plimsoll-annotations"
        )
        await release.must("DELETE", policy)
        findings = await examined(release)
        _, none_ready, some_ready = (one for one in findings if one.check == "parts")
        assert none_ready.text == "plimsoll-webhook: 0 of 2 pods are ready"
        assert f"kubectl -n {NAMESPACE} describe pods -l app=plimsoll-webhook" in none_ready.remedy
        assert (none_ready.verdict, some_ready.verdict) == (Verdict.FAILED, Verdict.WARNING)
        webhooks = [one.text for one in findings if one.check == "webhook"]
        assert all(
            "no pod is ready behind Service plimsoll-system/plimsoll-webhook" in one for one in webhooks
        )
        assert of(findings, "nodes").text == "no node shows plimsoll.dev/gpu-memory, so no pod fits anywhere"
        assert "there is no RuntimeClass nvidia" in of(findings, "gpu-access").text
        assert (
            "plimsoll-monitor of plimsoll-system may not get nodes, patch nodes/status"
            in of(findings, "rights").text
        )
        assert of(findings, "policies").text.endswith("policies without a binding: plimsoll-annotations")

        await set_endpoint(release, ready=True)
        for authority, verdict, problem in (
            (bundle(-1.0), Verdict.FAILED, "in its caBundle has expired"),
            (bundle(0.5), Verdict.WARNING, "pods are accepted for 12 h more"),
            (base64.b64encode(b"none").decode(), Verdict.FAILED, "in its caBundle is missing"),
        ):
            await trust(release, authority)
            [one] = [one for one in await examined(release) if one.check == "webhook"]
            assert (one.verdict, problem in one.text) == (verdict, True), one
        await release.must("DELETE", test_installed.CONFIGURATION)
        assert of(await examined(release), "webhook").text.startswith("the API server asks no webhook")


async def test_what_an_operator_took_out(release: ApiServer) -> None:
    """A pause is named with its reason, and a node whose broker left before its pods, which could not end."""
    pod = pod_manifest("left", scheduler="other")
    pod["spec"] |= {"nodeName": "n1", "volumes": [{"name": "plimsoll", "csi": {"driver": "plimsoll.dev"}}]}
    await release.must("POST", "/api/v1/namespaces/default/pods", pod)
    try:
        await release.kubectl("annotate", "namespace", NAMESPACE, "plimsoll.dev/paused=new cards")
        findings = await examined(release)
        assert of(findings, "placing").text == "placing is paused: new cards; no pod gets a node"
        assert (
            f"kubectl annotate namespace {NAMESPACE} plimsoll.dev/paused-" in of(findings, "placing").remedy
        )
        assert of(findings, "volumes").text.endswith("cannot end: n1 (1)")
    finally:
        await release.kubectl("annotate", "namespace", NAMESPACE, "plimsoll.dev/paused-")
        await release.must("DELETE", "/api/v1/namespaces/default/pods/left?gracePeriodSeconds=0")


async def test_no_placer_leads(release: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lease that nobody renews has a dead holder; without a Lease no placer has ever run there."""
    monkeypatch.setattr(checks, "LEASE_WAIT_S", 1.0)
    one = of(await examined(release), "leader")
    assert one.text == "no placer leads: the Lease plimsoll-placer is placer-1's and was not renewed in 1 s"
    assert "kubectl -n plimsoll-system logs deploy/plimsoll-placer" in one.remedy
    await release.must("DELETE", LEASE)
    assert of(await examined(release), "leader").text.startswith("no placer has ever led")


async def test_a_placer_with_another_lease(release: ApiServer) -> None:
    """A placer that leads by a second Lease is named, with the settings; a Lease that nobody renews is not."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"holderIdentity": "second-1", "leaseDurationSeconds": 1}
    lease = {"metadata": {"name": "second", "annotations": {NOTE: "0 {}"}}, "spec": spec}
    await release.must("POST", leases, lease)
    try:
        async with leading(release):
            assert of(await examined(release), "other-leases").verdict is Verdict.OK
            async with leading(release, lease=f"{leases}/second"):
                one = of(await examined(release), "other-leases")
        assert one.verdict is Verdict.FAILED
        assert "default/second (placer-1)" in one.text
        assert "PLIMSOLL_LEASE_NAMESPACE" in one.remedy
    finally:
        await release.call("DELETE", f"{leases}/second")


async def test_the_leaders_clock(release: ApiServer) -> None:
    """A clock that is an hour wrong is reported, in the right direction."""
    for by, text in ((timedelta(hours=1), "ahead of"), (timedelta(hours=-1), "behind")):
        async with leading(release, by):
            one = of(await examined(release), "clock")
            assert (one.verdict, text in one.text) == (Verdict.WARNING, True), one


async def test_an_account_without_rights_skips_and_never_passes(release: ApiServer) -> None:
    """An object that the account may not read is neither well nor broken, and the remedy asks for another account."""
    findings = await examined(release, user="somebody")
    assert verdicts(findings) == {
        "api-server": "ok",
        **dict.fromkeys(
            (
                *("parts", "leader", "other-leases", "rights", "webhook", "policies", "gpu-access", "nodes"),
                *("placing", "volumes"),
            ),
            "skipped",
        ),
    }
    assert all("another account" in one.remedy or "administrator" in one.remedy for one in findings[1:])


async def test_nothing_installed(apiserver: ApiServer) -> None:
    """In a cluster without a release, each missing part is named with the way to install it."""
    findings = await examined(apiserver)
    texts = [one.text for one in findings if one.check == "parts"]
    assert texts == [
        f"plimsoll-{part} is not in namespace {NAMESPACE}"
        for part in ("placer", "webhook", "monitor", "broker")
    ]
    assert {one.verdict for one in findings if one.check in {"leader", "rights", "webhook", "nodes"}} == {
        Verdict.FAILED
    }


async def test_no_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing fails; no file at all is skipped; a server that is away fails with its cause."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    [one] = await found(cluster(Cluster(), NAMESPACE))
    assert one.verdict is Verdict.SKIPPED
    [one] = await found(cluster(Cluster("/none"), NAMESPACE))
    assert (one.verdict, one.text) == (Verdict.FAILED, "--kubeconfig: '/none' does not exist")
    [one] = await found(cluster(Cluster("/none"), "Not A Name"))
    assert "cannot be a namespace" in one.text
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    [one] = await found(cluster(Cluster(str(config)), NAMESPACE))
    assert (one.verdict, "kubectl cluster-info" in one.remedy) == (Verdict.FAILED, True)


def test_the_rights_that_are_asked_for_are_those_of_the_chart() -> None:
    """A right that the chart gives by a ClusterRole is checked, and no other is."""
    for account, rights in RIGHTS.items():
        part = account.removeprefix("plimsoll-")
        given = {
            (group, resource, verb)
            for one in rights_of(NAMESPACE, part)
            if one["kind"] == "ClusterRole"
            for rule in one["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert set(rights) == given


async def test_the_account_of_helm_test_may_look_at_everything(release: ApiServer, tmp_path: Path) -> None:
    """`helm test` skips nothing for want of a right: its account has each that the checks need."""
    objects = list(yaml.safe_load_all((await asyncio.to_thread(texts, {}))["tests/doctor.yaml"]))
    rights = yaml.safe_dump_all([one for one in objects if one["kind"] in RIGHTS_KINDS])
    await release.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=rights)
    try:
        kubeconfig = await kubeconfig_of(release, NAMESPACE, "plimsoll-test", tmp_path)
        async with leading(release):
            assert verdicts(await found(cluster(Cluster(str(kubeconfig)), NAMESPACE))) == ALL_OK
    finally:
        await release.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=rights)
