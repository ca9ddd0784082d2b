"""Compute shares on the machine's own GPU: what programs got done, by their own count.

A program that launches a kernel of 2 ms and waits for it, over and over, wants nearly all of a GPU. Its kernels spin
on the GPU's clock, so that two such programs without the library would each get nearly all done, taking turns within
one another's kernels: what comes to 100 together was kept apart.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from plimsoll.brokerwire import ContainerLines, Line, Register
from plimsoll.cli.local_cluster import HOOK_LIBRARY, PROGRAMS
from plimsoll.layout import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.names import ContainerName, GpuUuid, PodUid
from plimsoll.quantity import GIB
from tests.gpu.facts import Facts
from tests.monitor.test_hooked import BrokerProcess, brokering

pytestmark = pytest.mark.gpu

KERNEL_MS, SECONDS = 2, 6
COUNTED_PTS = 6
"""Programs start and end some tenths of a second apart, and between kernels they wait for one another's turns."""


async def work_pct(
    broker: BrokerProcess, gpu: str, surroundings: Mapping[str, str], request_pct: int, limit_pct: int = 100
) -> float:
    """Run such a program in a container of its own; how much of the time its kernels ran."""
    line = Line(gpu=GpuUuid(gpu), line_bytes=2 * GIB, share_pct=request_pct, limit_pct=limit_pct)
    lines = ContainerLines(name=ContainerName("main"), lines=(line,))
    pod = PodUid(str(uuid.uuid4()))
    request = Register(pod=pod, namespace="default", name=f"share-{request_pct}", containers=(lines,))
    (directories,) = (await broker.client.register(request)).containers
    busy = (str(PROGRAMS / "busy"), "--kernel-ms", str(KERNEL_MS), "--seconds", str(SECONDS))
    process = await asyncio.create_subprocess_exec(
        *busy,
        env={
            **surroundings,
            "CUDA_VISIBLE_DEVICES": gpu,
            "LD_PRELOAD": str(HOOK_LIBRARY),
            LIMITS_DIR_VARIABLE: directories.limits_dir,
            COUNTS_DIR_VARIABLE: directories.counts_dir,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return float(100 * json.loads(output.splitlines()[-1])["iterations"] * KERNEL_MS / 1000 / SECONDS)


async def test_a_limit_holds_one_that_is_alone(
    tmp_path: Path, surroundings: dict[str, str], facts: Facts
) -> None:
    """With a limit of 40 it gets 40 % of the GPU's time, though nobody wants the rest."""
    async with brokering(tmp_path / "broker") as broker:
        got = await work_pct(broker, facts.gpu, surroundings, 40, limit_pct=40)
    assert got == pytest.approx(40, abs=COUNTED_PTS)


async def test_two_that_want_all_get_what_they_asked_for(
    tmp_path: Path, surroundings: dict[str, str], facts: Facts
) -> None:
    """Of 30 and 70 each gets its part, and never both at once."""
    async with brokering(tmp_path / "broker") as broker:
        less, more = await asyncio.gather(
            *(work_pct(broker, facts.gpu, surroundings, request_pct) for request_pct in (30, 70))
        )
    assert less == pytest.approx(30, abs=COUNTED_PTS)
    assert more == pytest.approx(70, abs=COUNTED_PTS)
