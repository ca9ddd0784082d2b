"""A node whose monitor died gets no pod after three heartbeats, and is back with the monitor's first report."""

from pathlib import Path

from tests.e2e.cluster import ALPHA, NODES, KubeCluster, kube_cluster, place
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

HEARTBEAT_S = "2"


async def test_nodes_of_killed_monitors_are_no_candidates_until_they_report_again(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """The pod waits with a reason of its own and goes to the one node whose monitor is restarted."""
    async with kube_cluster(tmp_path, apiserver, namespace, quick={"heartbeat_s": HEARTBEAT_S}) as cluster:
        await cluster.submit("before", "20Gi")
        await cluster.until_bound("before")
        for node in NODES:
            await cluster.local.monitors[node].kill()
        waiting = "0/3 nodes are available: 3 node(s) had not reported for too long."

        async def refused() -> bool:
            tried.append(f"after-{len(tried)}")
            await cluster.submit(tried[-1], "100Mi")
            return await until(lambda: answer(cluster, tried[-1])) == waiting

        # A pod that arrives before all nodes are silent is bound, or refused for another reason.
        tried: list[str] = []
        await until(refused)
        await cluster.local.monitors[ALPHA].restart()
        assert (await cluster.until_bound(tried[-1]))[tried[-1]][0] == ALPHA


async def answer(cluster: KubeCluster, name: str) -> object:
    """A pod's place, or the reason why it has none; empty while it has neither."""
    pod = (await cluster.pods())[name]
    conditions = pod["status"].get("conditions", [])
    return place(pod) or next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
