"""The demo's cluster, with one node."""

from pathlib import Path

import aiohttp

from plimsoll.cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster
from plimsoll.ids import NodeName

NODE = EmulatedNode(NodeName("n1"), (EmulatedGpu("NVIDIA L4", "24Gi"),))


async def test_the_address_of_the_live_page_leads_to_it(tmp_path: Path) -> None:
    """The address that the demo prints is that of the placer's page."""
    async with LocalCluster(tmp_path, (NODE,)) as cluster:
        nodes = str(await cluster.write_local_nodes())
        part = await cluster.placer(http_port="0", local_nodes=nodes, kubernetes="off")
        async with aiohttp.request("GET", await cluster.page_url(part)) as answer:
            assert answer.status == 200
            assert "<title>Plimsoll</title>" in await answer.text()
