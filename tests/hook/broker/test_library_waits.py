"""The real library under the real broker on an emulated GPU that is promised twice over."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, Register
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import GIB, MAIN, Broker, Process, until
from tests.hook.broker.test_library import DRIVER, GPU, LIBRARY, MIB

A, B = PodUid("pod-a"), PodUid("pod-b")


@pytest.fixture(name="crowded")
async def _crowded(tmp_path: Path) -> AsyncIterator[Broker]:
    """One emulated GPU of 1 GiB, promised whole to each of two pods."""
    (tmp_path / "node").write_text(f"[gpu 0]\nuuid = {GPU}\nmemory = 1Gi\ncontext = 64Mi\n")
    broker = Broker(tmp_path / "root", {"audit_s": "3600", "overcommit": "true"})
    gpu = MeasuredGpu(gpu=GPU, usable_bytes=GIB, used_bytes=0)
    try:
        await broker.start()
        await broker.client.measure(Measured(began_ns=time.monotonic_ns(), gpus=(gpu,), processes=()))
        for pod in (A, B):
            container = ContainerLines(name=MAIN, lines=(Line(gpu=GPU, line_bytes=GIB),))
            await broker.client.register(
                Register(pod=pod, namespace="default", name=pod, containers=(container,))
            )
        yield broker
    finally:
        await broker.close()


async def _start(broker: Broker, pod: PodUid) -> Process:
    settings = {
        "LD_PRELOAD": str(LIBRARY),
        "LD_LIBRARY_PATH": str(DRIVER.parent),
        "PLIMSOLL_EMULATOR": str(broker.root.parent / "node"),
        LIMITS_DIR_VARIABLE: str(broker.limits_dir(pod)),
        COUNTS_DIR_VARIABLE: str(broker.counts_dir(pod)),
    }
    wrapper = ["env", *(f"{name}={value}" for name, value in settings.items())]
    program = await broker.spawn(*wrapper, pod=pod, module="tests.hook.broker.cudaprogram")
    assert await program.do("begin") == "0 0 0"
    return program


@pytest.mark.parametrize("is_broker_killed", [False, True])
async def test_a_program_waits_for_what_a_killed_one_held(
    crowded: Broker,
    is_broker_killed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """An allocation on a full GPU is paused, over the broker's death too, and granted once the other program dies."""
    first, second = await _start(crowded, A), await _start(crowded, B)
    assert await first.do(f"alloc {600 * MIB}") == "0"
    waiting = asyncio.create_task(second.do(f"alloc {600 * MIB}"))
    await until(lambda: _is_told(crowded, "paused", 1), "the second waits")
    if is_broker_killed:
        await crowded.kill()
        await crowded.start()
        await until(lambda: _is_told(crowded, "paused", 2), "it waits at the next broker")
        gpu = MeasuredGpu(gpu=GPU, usable_bytes=GIB, used_bytes=0)
        await crowded.client.measure(Measured(began_ns=time.monotonic_ns(), gpus=(gpu,), processes=()))
    assert not waiting.done()
    await first.kill()
    assert await waiting == "0"
    await until(lambda: _is_told(crowded, "resumed", 1), "it is told to go on")


async def _is_told(broker: Broker, what: str, count: int) -> bool:
    return sum(entry.what == what for entry in broker.journaled()) >= count
