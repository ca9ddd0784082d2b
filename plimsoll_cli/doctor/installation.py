"""The checks of what the chart installs: pods, rights, webhook, policies, runtime class, and nodes' resources.

What always holds: names are those of the chart, which are fixed, as a cluster has one release.
"""

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from plimsoll.contract import GPU_MEMORY
from plimsoll.kube.client import KubeClient
from plimsoll.kube.transport import NotFoundError
from plimsoll.pool import DEVICE
from plimsoll_cli.doctor.finding import Finding, failed, listed, ok, skipped, warning

PARTS: Final = {
    "deployments": ("plimsoll-placer", "plimsoll-webhook"),
    "daemonsets": ("plimsoll-monitor", "plimsoll-broker"),
}
"""The workloads that a release has; the brokers of node pools have names that begin so."""

RIGHTS: Final = {
    "plimsoll-placer": (
        *(("", "pods", verb) for verb in ("get", "list", "watch", "patch", "delete")),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        *(("", kind, "list") for kind in ("resourcequotas", "limitranges")),
        *(("", kind, verb) for kind in ("nodes", "namespaces") for verb in ("list", "watch")),
        *(
            ("", kind, verb)
            for kind in ("persistentvolumeclaims", "persistentvolumes")
            for verb in ("list", "watch", "patch")
        ),
        *(
            ("storage.k8s.io", kind, verb)
            for kind in (
                *("storageclasses", "csinodes", "csidrivers"),
                *("csistoragecapacities", "volumeattachments"),
            )
            for verb in ("list", "watch")
        ),
        *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
        *(("policy", "poddisruptionbudgets", verb) for verb in ("list", "watch")),
    ),
    "plimsoll-monitor": (("", "nodes", "get"), ("", "nodes/status", "patch")),
}
"""By service account: API group, resource, and verb, cluster-wide, as in the chart's ClusterRoles."""

POLICIES: Final = ("plimsoll-annotations", "plimsoll-monitor")
WEBHOOK: Final = "plimsoll-webhook"
POOL: Final = "plimsoll-pool"
"""The Deployment of the pool's controller."""

SOON_S: Final = 24 * 3600.0
"""An authority is replaced long before its last day, so one that ends within a day is not being replaced."""


async def workloads(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether every part is installed, and all of its pods are ready."""
    findings: list[Finding] = []
    there = []
    for kind, names in PARTS.items():
        items = await _items(
            client, f"/apis/apps/v1/namespaces/{namespace}/{kind}", "app.kubernetes.io/name=plimsoll"
        )
        for name in names:
            found = [one for one in items if one["metadata"]["name"].startswith(name)]
            if not found:
                remedy = (
                    f"run `helm install plimsoll deploy/chart -n {namespace}` (docs/install.md), or name the "
                    "release's namespace with --namespace"
                )
                findings.append(failed("parts", f"{name} is not in namespace {namespace}", remedy))
            for one in found:
                finding = _readiness(kind, one, namespace)
                findings += [finding] if finding else []
                there += [] if finding else [one["metadata"]["name"]]
    return [*([ok("parts", f"ready: {listed(there)}")] if there else []), *findings]


def _readiness(kind: str, workload: dict[str, Any], namespace: str) -> Finding | None:
    """The fault of one workload; None if all its pods are ready."""
    name, status = workload["metadata"]["name"], workload.get("status", {})
    if kind == "daemonsets":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        if not wanted:
            remedy = (
                f"compare the labels of your GPU nodes with `kubectl -n {namespace} get ds {name} -o yaml`"
            )
            return failed("parts", f"{name} is wanted on no node", remedy)
    else:
        wanted, ready = workload["spec"].get("replicas", 1), status.get("readyReplicas", 0)
        if not wanted:
            remedy = f"run `kubectl -n {namespace} scale deploy {name} --replicas 1`"
            return failed("parts", f"{name} is scaled to 0", remedy)
    if ready >= wanted:
        return None
    selector = workload["spec"]["selector"].get("matchLabels", {}).items()
    labels = ",".join(f"{key}={value}" for key, value in selector)
    remedy = (
        f"see `kubectl -n {namespace} describe pods -l {labels}` and `kubectl -n {namespace} logs` of them"
    )
    finding = warning if ready else failed
    return finding("parts", f"{name}: {ready} of {wanted} pods are ready", remedy)


async def missing_rights(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether the parts' service accounts have the rights that the chart gives them, as the API server judges."""
    asked = [(account, right) for account, rights in RIGHTS.items() for right in rights]
    answers = await asyncio.gather(*(_may(client, namespace, account, right) for account, right in asked))
    refused: dict[str, list[str]] = {}
    for (account, (group, resource, verb)), is_allowed in zip(asked, answers, strict=True):
        if not is_allowed:
            refused.setdefault(account, []).append(f"{verb} {resource}{f'.{group}' if group else ''}")
    if not refused:
        return [ok("rights", f"{' and '.join(RIGHTS)} have all theirs")]
    remedy = (
        "run `helm upgrade` with this version's chart, which restores the ClusterRole and its binding; or name the "
        "release's namespace with --namespace"
    )
    return [
        failed("rights", f"service account {account} of {namespace} may not {listed(rights)}", remedy)
        for account, rights in refused.items()
    ]


async def _may(client: KubeClient, namespace: str, account: str, right: tuple[str, str, str]) -> bool:
    group, resource, verb = right
    kind, _, part = resource.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    attributes = {"group": group, "resource": kind, "subresource": part, "verb": verb}
    spec = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": groups,
        "resourceAttributes": attributes,
    }
    answer = msgspec.json.decode(
        await client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    )
    return bool(answer["status"]["allowed"])


async def webhook(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether the API server asks the webhook, trusts it, and finds a process behind it."""
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK}"
    logs = f"see `kubectl -n {namespace} logs deploy/{WEBHOOK}`"
    try:
        configuration = await _object(client, path)
    except NotFoundError:
        text = "the API server asks no webhook, so pods get no library: nothing holds them to their lines"
        return [failed("webhook", text, "apply deploy/webhook.yaml, or install the chart")]
    entries, findings = configuration.get("webhooks", []), []
    # Its entries have one authority and one service in common: one finding is enough for all of them.
    for bundle in {one["clientConfig"].get("caBundle", ""): None for one in entries}:
        findings += await asyncio.to_thread(
            _authority, bundle, f"{logs}; it writes the authority at its start"
        )
    services = [one["clientConfig"].get("service") for one in entries]
    for namespace_, name in {(one["namespace"], one["name"]): None for one in services if one}:
        if not await _endpoints(client, namespace_, name):
            text = f"pods with GPUs are refused: no pod is ready behind Service {namespace_}/{name}"
            findings.append(
                failed("webhook", text, f"{logs}, and `kubectl -n {namespace} describe deploy/{WEBHOOK}`")
            )
    return findings or [ok("webhook", "the API server asks it, trusts it, and a pod answers")]


def _authority(bundle: str, remedy: str) -> list[Finding]:
    """Whether the API server can trust a webhook with this bundle, and for how long."""
    from cryptography import x509  # noqa: PLC0415 - takes a tenth of a second, and only this check needs it

    refused = "pods with GPUs are refused: the webhook's authority in its caBundle"
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        return [failed("webhook", f"{refused} is missing", remedy)]
    left_s = max((one.not_valid_after_utc - datetime.now(UTC)).total_seconds() for one in authorities)
    if left_s < 0:
        return [failed("webhook", f"{refused} has expired", remedy)]
    if left_s < SOON_S:
        hours = f"{left_s / 3600:.0f}"
        text = f"pods are accepted for {hours} h more: the webhook's authority expires, and was not replaced"
        return [warning("webhook", text, remedy)]
    return []


async def _endpoints(client: KubeClient, namespace: str, service: str) -> int:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await _items(client, path, f"kubernetes.io/service-name={service}")
    ends = [end for one in slices for end in one.get("endpoints") or []]
    return sum(end.get("conditions", {}).get("ready") is not False for end in ends)


async def policies(client: KubeClient, _: str) -> list[Finding]:
    """Whether the admission policies are there that keep tenants from writing decisions."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    bindings = {
        one["spec"]["policyName"]
        for one in await _items(client, f"{path.removesuffix('policies')}policybindings")
    }
    names = {one["metadata"]["name"] for one in await _items(client, path)}
    if lacking := [name for name in POLICIES if name not in names]:
        remedy = "run `helm upgrade` with this version's chart, or apply deploy/annotations-policy.yaml"
        text = f"tenants can change decisions: the API server has no policy {listed(lacking)}"
        return [warning("policies", text, remedy)]
    if unbound := [name for name in POLICIES if name not in bindings]:
        text = f"tenants can change decisions: policies without a binding: {listed(unbound)}"
        return [warning("policies", text, "run `helm upgrade` with this version's chart")]
    return [ok("policies", f"{len(POLICIES)} admission policies are bound")]


async def gpu_access(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether the runtime class exists that the webhook gives to pods."""
    try:
        deployment = await _object(client, f"/apis/apps/v1/namespaces/{namespace}/deployments/{WEBHOOK}")
    except NotFoundError:
        return [
            skipped(
                "gpu-access", "there is no webhook that would name a runtime class", "install the webhook"
            )
        ]
    containers: Sequence[Any] = deployment["spec"]["template"]["spec"]["containers"]
    settings = {each["name"]: each.get("value", "") for one in containers for each in one.get("env", [])}
    if settings.get("PLIMSOLL_WEBHOOK_GPU_ACCESS") != "runtime-class":
        return [ok("gpu-access", "pods need no runtime class here")]
    name = settings.get("PLIMSOLL_WEBHOOK_RUNTIME_CLASS", "")
    try:
        await client.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
    except NotFoundError:
        remedy = (
            "install NVIDIA's container toolkit or GPU operator, which bring it; or install the chart with "
            "gpuAccess=default-runtime, where NVIDIA's is the nodes' default runtime"
        )
        return [failed("gpu-access", f"pods with GPUs are refused: there is no RuntimeClass {name}", remedy)]
    return [ok("gpu-access", f"RuntimeClass {name} is there")]


async def nodes(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether nodes show the resources that pods ask for."""
    shown, twice = list[str](), list[str]()
    resource, more = GPU_MEMORY, ""
    while True:
        query = [("limit", "500"), *([("continue", more)] if more else [])]
        page = msgspec.json.decode(await client.get("/api/v1/nodes", query))
        offers = {
            node["metadata"]["name"]: node.get("status", {}).get("allocatable", {}) for node in page["items"]
        }
        shown += [name for name, offered in offers.items() if resource in offered]
        twice += [
            name
            for name, offered in offers.items()
            if resource in offered and offered.get(DEVICE, "0") != "0"
        ]
        more = page["metadata"].get("continue", "")
        if not more:
            break
    if shown:
        doubled = await _doubled(client, namespace, twice)
        return [ok("nodes", f"nodes with {resource}: {len(shown)}"), *doubled]
    remedy = f"see `kubectl -n {namespace} logs ds/plimsoll-monitor`: it writes the resource to its node"
    return [failed("nodes", f"no node shows {resource}, so no pod fits anywhere", remedy)]


async def _doubled(client: KubeClient, namespace: str, names: Sequence[str]) -> list[Finding]:
    """Whether NVIDIA's device plugin gives out GPUs of these nodes beside us, and no pool keeps the two apart."""
    if not names:
        return []
    with contextlib.suppress(NotFoundError):
        await client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{POOL}")
        return []
    text = f"NVIDIA's device plugin gives out the same GPUs on {len(names)} nodes: {listed(names)}"
    remedy = "install the chart with pool.enabled=true (docs/pool.md), or keep the plugin off these nodes"
    return [warning("nodes", text, remedy)]


async def _object(client: KubeClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await client.get(path))
    return found


async def _items(client: KubeClient, path: str, selector: str = "") -> list[dict[str, Any]]:
    query = [("labelSelector", selector)] if selector else []
    found: list[dict[str, Any]] = msgspec.json.decode(await client.get(path, query))["items"]
    return found
