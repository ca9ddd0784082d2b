"""The demo's cluster, with one node."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp

from plimsoll.ids import NodeName
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster
from tests.placer.local.world import REPOSITORY
from tests.servers.waiting import PATIENCE_S, until_true

NODE = EmulatedNode(NodeName("n1"), (EmulatedGpu("NVIDIA L4", "24Gi"),))


async def test_the_address_of_the_live_page_leads_to_it(tmp_path: Path) -> None:
    """The address that the demo prints is that of the placer's page."""
    async with LocalCluster(tmp_path, (NODE,)) as cluster:
        nodes = str(await cluster.write_local_nodes())
        part = await cluster.placer(http_port="0", local_nodes=nodes)
        async with aiohttp.request("GET", await cluster.page_url(part)) as answer:
            assert answer.status == 200
            assert "<title>Plimsoll</title>" in await answer.text()


async def test_a_demo_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends a demo with 143; its servers and its folder are gone then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "demo"),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    await until_true(lambda: any(tmp_path.glob("plimsoll-demo-*/*")))
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        _, said = await process.communicate()
    assert (process.returncode, said) == (143, b"")
    assert await asyncio.to_thread(lambda: list(tmp_path.glob("plimsoll-demo-*"))) == []
