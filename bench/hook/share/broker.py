"""The broker's cost of compute shares: the CPU time of its process while many containers share eight GPUs.

No machine at hand runs 240 programs on eight GPUs, so `pages` simulates them; broker and pages are real. A
broker that learns of work by messages, as the broker did when shares went by turns, finds no work here.
"""

import asyncio
import json
import os
import sys
import uuid
from typing import Final

from bench.hook.share.figures import parts_of
from bench.hook.share.shared_node import SharedNode, broker_cpu_s
from bench.hook.share.tenants import PATIENCE_S, Json, NoAnswerError
from plimsoll.broker.pages import GATE_NAME, GATE_SHUT, GATE_STATES, Gate
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from tests.hook.broker.conftest import MAIN
from tests.hook.lib.program import MIB

GPUS: Final = 8
CLIENTS: Final = 30
SORTS: Final = ("greedy", "light")
SECONDS, QUICK_SECONDS = 10.0, 5.0
SETTLE_S: Final = 1.0
"""The time from the first words to the span in which the broker's CPU time is measured."""


async def measure(here: SharedNode, *, quick: bool) -> Json:
    """Let all containers work, half of them greedily."""
    pods = [pod for gpu in range(GPUS) for pod in await _registered(here, gpu)]
    orders = [
        (str(here.broker.limits_dir(pod)), str(here.broker.counts_dir(pod)), SORTS[number % len(SORTS)])
        for number, pod in enumerate(pods)
    ]
    seconds = QUICK_SECONDS if quick else SECONDS
    player = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.hook.share.pages", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    try:
        await _ready(player, orders)
        await asyncio.sleep(SETTLE_S)
        before_s = broker_cpu_s(here.broker)
        await asyncio.sleep(seconds)
        spent_s = broker_cpu_s(here.broker) - before_s
        shut = sum(_is_shut(here, pod) for pod in pods)
    finally:
        await _end(player)
    return {
        "case": "broker/8gpus",
        "containers": len(pods),
        "shut_gates": shut,
        "broker_core_pct_8gpus": round(100 * spent_s / seconds, 2),
        "load": round(os.getloadavg()[0], 2),
    }


async def _registered(here: SharedNode, gpu: int) -> list[PodUid]:
    """Containers of one GPU, whose requests sum to 100."""
    pods = []
    for request_pct in parts_of(100, CLIENTS):
        pod = PodUid(str(uuid.uuid4()))
        line = Line(gpu=GpuUuid(f"GPU-{gpu:08d}"), line_bytes=512 * MIB, share_pct=request_pct, limit_pct=100)
        container = ContainerLines(name=MAIN, lines=(line,))
        await here.broker.client.register(
            Register(pod=pod, namespace="bench", name=f"played-{gpu}", containers=(container,))
        )
        pods.append(pod)
    return pods


async def _ready(player: asyncio.subprocess.Process, orders: list[tuple[str, str, str]]) -> None:
    assert player.stdin is not None
    assert player.stdout is not None
    player.stdin.write(json.dumps(orders).encode() + b"\n")
    async with asyncio.timeout(PATIENCE_S):
        if not await player.stdout.readline():
            raise NoAnswerError(f"the player of pages ended with {await player.wait()}")


def _is_shut(here: SharedNode, pod: PodUid) -> bool:
    gate = Gate.from_buffer_copy((here.broker.limits_dir(pod) / GATE_NAME).read_bytes())
    return int(gate.word) & GATE_STATES == GATE_SHUT


async def _end(player: asyncio.subprocess.Process) -> None:
    assert player.stdin is not None
    player.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        await player.wait()
