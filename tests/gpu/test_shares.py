"""Compute shares on the machine's own GPU, by the programs' own measurements.

A program that launches a kernel and waits for it, over and over, wants nearly all of a GPU. Its kernels count the
time for which they have the GPU, and not that in which it is switched to another process.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.native import HOOK_LIBRARY, PROGRAMS
from plimsoll.quantity import GIB
from tests.gpu.facts import Facts
from tests.monitor.test_hooked import BrokerProcess, brokering

pytestmark = pytest.mark.gpu

KERNEL_MS, SECONDS = 10, 6
COUNTED_PTS = 6
"""Programs start and end some tenths of a second apart, and wait between kernels for one another's slices."""


async def work_pct(environment: Mapping[str, str], kernel_ms: int) -> float:
    """Run a greedy program; returns the percentage of the time in which its kernels ran."""
    busy = (str(PROGRAMS / "busy"), "--kernel-ms", str(kernel_ms), "--seconds", str(SECONDS))
    process = await asyncio.create_subprocess_exec(*busy, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return float(100 * json.loads(output.splitlines()[-1])["iterations"] * kernel_ms / 1000 / SECONDS)


async def shared_pct(
    broker: BrokerProcess, gpu: str, surroundings: Mapping[str, str], request_pct: int, limit_pct: int = 100
) -> float:
    """Run such a program in a container of its own; returns its percentage."""
    line = Line(gpu=GpuUuid(gpu), line_bytes=2 * GIB, share_pct=request_pct, limit_pct=limit_pct)
    lines = ContainerLines(name=ContainerName("main"), lines=(line,))
    pod = PodUid(str(uuid.uuid4()))
    request = Register(pod=pod, namespace="default", name=f"share-{request_pct}", containers=(lines,))
    (directories,) = (await broker.client.register(request)).containers
    environment = {
        **surroundings,
        "CUDA_VISIBLE_DEVICES": gpu,
        "LD_PRELOAD": str(HOOK_LIBRARY),
        LIMITS_DIR_VARIABLE: directories.limits_dir,
        COUNTS_DIR_VARIABLE: directories.counts_dir,
    }
    return await work_pct(environment, KERNEL_MS)


async def test_the_hardware_gives_processes_equal_slices(surroundings: dict[str, str], facts: Facts) -> None:
    """Without Plimsoll two processes get half of the GPU each for kernels of any length. Shares rely on that.

    Where this fails, the GPU is not in its default compute mode, an MPS server is between, or its policy gives
    processes slices of different lengths (`nvidia-smi compute-policy -l`).
    """
    environment = {**surroundings, "CUDA_VISIBLE_DEVICES": facts.gpu}
    halves = await asyncio.gather(*(work_pct(environment, kernel_ms) for kernel_ms in (10, 100)))
    assert halves == pytest.approx([50, 50], abs=COUNTED_PTS)


async def test_a_limit_holds_one_that_is_alone(
    tmp_path: Path, surroundings: dict[str, str], facts: Facts
) -> None:
    """A program alone with a limit of 40 gets 40 % of the GPU's time."""
    async with brokering(tmp_path / "broker") as broker:
        got = await shared_pct(broker, facts.gpu, surroundings, 40, limit_pct=40)
    assert got == pytest.approx(40, abs=COUNTED_PTS)


async def test_two_that_want_all_get_what_they_asked_for(
    tmp_path: Path, surroundings: dict[str, str], facts: Facts
) -> None:
    """Two greedy programs with requests of 30 and 70 get these parts of the GPU."""
    async with brokering(tmp_path / "broker") as broker:
        less, more = await asyncio.gather(
            *(shared_pct(broker, facts.gpu, surroundings, request_pct) for request_pct in (30, 70))
        )
    assert less == pytest.approx(30, abs=COUNTED_PTS)
    assert more == pytest.approx(70, abs=COUNTED_PTS)
