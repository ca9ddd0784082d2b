"""`plimsoll resize` refuses bad requests before it connects; the ways to a pod have tests of their own."""

import asyncio
import sys

import pytest

from plimsoll.broker.wire import Line
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api.rpc import Resize, Resizing
from plimsoll.quantity import GIB
from plimsoll_cli.resize_pod import Confirmed
from tests.servers.waiting import PATIENCE_S


def test_a_change_is_shown_with_what_the_container_holds() -> None:
    """Each GPU has a line with the changed values alone; where the container holds too much, the broker's reason."""
    node, pod, main, held = NodeName("n.1"), PodUid("u"), ContainerName("main"), "holds 3.1Gi now: growth"
    limits = tuple(
        Limit(
            node=node,
            gpu=GpuUuid(gpu),
            pod=pod,
            container=main,
            used_bytes=GIB,
            line_bytes=3 * GIB,
            reason=text,
        )
        for gpu, text in (("GPU-A", ""), ("GPU-B", held))
    )
    before, after = (
        tuple(Line(gpu=GpuUuid(gpu), line_bytes=gib * GIB) for gpu in ("GPU-A", "GPU-B")) for gib in (4, 3)
    )
    asked = Resizing(node=node, pod=pod, container=main, before=before, after=after)
    assert list(Confirmed(Resize(pod="p", gpu_memory="6Gi"), asked, limits).lines()) == [
        "GPU-A on n.1: line 4Gi -> 3Gi, holds 1Gi now",
        f"GPU-B on n.1: line 4Gi -> 3Gi, {held}",
    ]
    shares = Confirmed(Resize(pod="p", gpu_share="0"), asked, limits).lines()
    assert next(iter(shares)) == "GPU-A on n.1: share 0 % -> 0 %"


@pytest.mark.parametrize("namespace", ["default", "plimsoll-run"])
async def test_a_resize_that_asks_nothing_is_refused(namespace: str) -> None:
    """The refusal comes before any connection, and names the possible changes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "resize", "p", "-n", namespace),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    message = "nothing is to be changed; give at least one of --gpu-memory, --gpu-share, --gpu-share-limit"
    assert (process.returncode, message in output.decode()) == (2, True), output.decode()
