"""The node itself works: pods start, reach the API server, report, and end."""

import pytest

from tests.node.network import SERVICE_IP
from tests.node.node import Node, program_pod
from tests.node.progress import say

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


async def test_a_pod_runs_with_a_network_and_an_account_of_its_own(node: Node, space: str) -> None:
    """kube-scheduler places a pod, the kubelet starts it, `logs` and `exec` answer, and it ends."""
    await node.create(space, program_pod("plain", "sh", "-c", "echo hello; sleep 600"))
    pod = await node.until_ready(space, "plain")
    assert (await node.logs(space, "plain")).strip() == "hello"
    token = await node.run(space, "plain", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    assert token.strip() == space
    environment = await node.run(space, "plain", "env")
    assert f"KUBERNETES_SERVICE_HOST={SERVICE_IP}" in environment
    cgroup = await node.run(space, "plain", "cat", "/proc/self/cgroup")
    say("plain pod", ip=pod["status"]["podIP"], cgroup=cgroup.splitlines()[0])
    assert pod["metadata"]["uid"] in cgroup, "broker and monitor find a process's pod by its control group"
    await node.delete(space, "plain")
