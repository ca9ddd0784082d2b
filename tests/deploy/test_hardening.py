"""The rights of the chart's pods, as a real API server judges them. docs/security.md has the reason of each right."""

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.deploy.rendering import CASES, Object, objects, templates
from tests.servers.apiserver import ApiServer

PLAIN: Object = {"gpuAccess": "default-runtime", "priorityClass": {"create": False, "name": ""}}
"""Pods that need no object of the cluster beside them."""

NODE_PARTS = {
    "plimsoll-monitor": {
        *("host namespaces", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"),
    },
    "plimsoll-broker": {
        *("host namespaces", "restricted volume types", "runAsNonRoot != true"),
        *("privileged", "allowPrivilegeEscalation != false", "unrestricted capabilities", "seccompProfile"),
    },
}  # fmt: skip
"""The parts on GPU nodes, with all that Pod Security's `restricted` finds in them."""


def pods(values: Object) -> Iterator[tuple[str, Object]]:
    """Each workload's name and a pod of its template."""
    for name, template in templates(values):
        metadata = {"generateName": f"{name}-", "labels": template["metadata"]["labels"]}
        yield name, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.fixture
async def restricted(apiserver: ApiServer) -> AsyncIterator[str]:
    """A namespace with Pod Security's strictest standard in force."""
    name = f"restricted-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    await apiserver.must("DELETE", f"/api/v1/namespaces/{name}")


async def test_only_node_parts_are_more_than_restricted(apiserver: ApiServer, restricted: str) -> None:
    """Pod Security admits all other pods, and finds in broker and monitor what the document gives reasons for."""
    found: dict[str, set[str]] = {}
    path = f"/api/v1/namespaces/{restricted}/pods?dryRun=All"
    for name, pod in pods(PLAIN):
        answer = await apiserver.call("POST", path, _with_claims(pod))
        assert answer.status in {201, 403}, answer.body
        if answer.status == 403:
            found[name] = violations(answer.body["message"])
    assert found == NODE_PARTS


def _with_claims(pod: Object) -> Object:
    """The pod with a volume for each claim that its StatefulSet would make."""
    mounted = {mount["name"] for one in pod["spec"]["containers"] for mount in one.get("volumeMounts", ())}
    volumes = pod["spec"].get("volumes", [])
    missing = mounted - {volume["name"] for volume in volumes}
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in missing]
    return {**pod, "spec": {**pod["spec"], "volumes": [*volumes, *claims]}}


def violations(message: str) -> set[str]:
    """The findings of Pod Security: `host namespaces (hostPID=true), …`, without the details in parentheses."""
    told = message.partition('violates PodSecurity "restricted:latest": ')[2]
    while "(" in told:
        told = re.sub(r"\s*\([^()]*\)", "", told)
    return {one.strip() for one in told.split(",")}


def _account(name: str) -> str:
    """The account of a part. The brokers of all node pools have one, and each pool's objects have its name behind."""
    return "plimsoll-broker" if name.startswith("plimsoll-broker-") else name


@pytest.mark.parametrize("case", CASES)
def test_every_container_has_a_read_only_root(case: str) -> None:
    """No program of a part can write into its image; /tmp is a small volume of its own."""
    for name, pod in pods(dict(CASES[case])):
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
        for volume in pod["spec"].get("volumes", ()):
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"], name


@pytest.mark.parametrize("case", CASES)
def test_every_container_without_privilege_drops_all(case: str) -> None:
    """All capabilities are dropped, none comes back by another program, and the runtime's seccomp profile is on.

    The broker alone is privileged, and only for the volumes. Without these it adds five capabilities.
    """
    for name, pod in pods(dict(CASES[case])):
        for container in pod["spec"]["containers"]:
            context: dict[str, Any] = {
                **pod["spec"].get("securityContext", {}),
                **container["securityContext"],
            }
            if context.get("privileged"):
                assert (_account(name), CASES[case].get("csi")) == ("plimsoll-broker", None)
                continue
            added = (
                {"DAC_OVERRIDE", "FOWNER", "CHOWN", "SYS_PTRACE", "KILL"}
                if _account(name) == "plimsoll-broker"
                else set()
            )
            assert context["capabilities"]["drop"] == ["ALL"], name
            assert set(context["capabilities"].get("add", ())) == added, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name


@pytest.mark.parametrize("case", CASES)
def test_only_parts_that_ask_the_api_server_have_a_token(case: str) -> None:
    """NATS, Redis and the alerts have no account, and every other part has its own."""
    for name, pod in pods(dict(CASES[case])):
        if name in {"plimsoll-nats", "plimsoll-redis", "plimsoll-alerts"}:
            assert pod["spec"]["automountServiceAccountToken"] is False
        else:
            assert pod["spec"]["serviceAccountName"] == _account(name)


def test_the_monitor_cannot_write_the_brokers_files() -> None:
    """It reaches the broker's socket by a read-only mount; a program that takes the monitor over changes no page."""
    for name, pod in pods({}):
        if name == "plimsoll-monitor":
            [container] = pod["spec"]["containers"]
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            assert mounts["broker"]["readOnly"] is True
            paths = {volume["name"] for volume in pod["spec"]["volumes"] if "hostPath" in volume}
            assert paths == {"broker", "state"}


def test_nobody_connects_but_those_who_must() -> None:
    """Each pod of ours has a policy of the network, and NATS and Redis take their own clients alone."""
    policies = {one["metadata"]["name"]: one["spec"] for one in objects({}) if one["kind"] == "NetworkPolicy"}
    for name, pod in pods({}):
        spec = policies[name]
        assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert spec["policyTypes"] == ["Ingress"]
        for rule in spec["ingress"]:
            open_ports = {port["port"] for port in rule["ports"]}
            assert rule.get("from") or open_ports == {"reviews"}, name
    [clients] = policies["plimsoll-redis"]["ingress"]
    assert clients["from"] == [{"podSelector": {"matchLabels": {"app": "plimsoll-placer"}}}]
    [clients] = policies["plimsoll-nats"]["ingress"]
    [expression] = clients["from"][0]["podSelector"]["matchExpressions"]
    assert expression == {"key": "app", "operator": "In", "values": ["plimsoll-placer", "plimsoll-monitor"]}
