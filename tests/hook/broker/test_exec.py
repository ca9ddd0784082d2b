"""The memory of a program is freed when its process becomes another program by an exec, and not before."""

import asyncio
import time
from pathlib import Path

import pytest

from hook.broker.core.audit.measuring import Absences
from hook.broker.core.ids import ContainerKey, Process
from hook.broker.core.instructions import VacateSlots
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, MeasuredProcess, Register
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.part.processes import read_stat
from tests.hook.broker.conftest import GIB, MAIN, POD, Broker, until
from tests.hook.lib.program import MIB, SUCCESS, Node, Program, compiled

CONTEXT_MIB = 64
HELD = 128 * MIB
HERE = ContainerKey(POD, MAIN)
ONE, TWO = ProcessKey(1, 11), ProcessKey(2, 22)


def _measured(*listed: ProcessKey, gpu: str = "GPU-a") -> Measured:
    about = MeasuredGpu(gpu=GpuUuid(gpu), usable_bytes=8 * GIB, used_bytes=0)
    return Measured(
        began_ns=time.monotonic_ns(),
        gpus=(about,),
        processes=tuple(
            MeasuredProcess(pid=key.pid, start_ticks=key.start_ticks, gpu=about.gpu, used_bytes=HELD)
            for key in listed
        ),
    )


def test_who_holds_words_and_is_not_listed_twice_running_is_looked_at() -> None:
    """A process with words that two measurements in a row do not list is examined.

    A listing in between starts the count again, and a process without words is left alone.
    """
    absences = Absences()
    holders = {(HERE, ONE): 101, (HERE, TWO): 102}
    assert absences.take(_measured(TWO), holders) == []
    assert absences.take(_measured(ONE), holders) == []
    assert absences.take(_measured(TWO), holders) == []
    assert absences.take(_measured(), holders) == [VacateSlots(HERE, Process(ONE, 101))]
    assert absences.take(_measured(), {(HERE, TWO): 102}) == [VacateSlots(HERE, Process(TWO, 102))]
    assert absences.take(_measured(), {}) == []


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    return Node(tmp_path, gpu_count=1, memory_mib=2048, context_mib=CONTEXT_MIB)


@pytest.fixture(name="asker", scope="module")
def _asker() -> Path:
    return compiled("asker")


async def _begin(broker: Broker, node: Node, asker: Path) -> Program:
    """Start a program of the container that holds memory, and wait for its greeting."""
    lines = (Line(gpu=GpuUuid(node.uuids[0]), line_bytes=GIB),)
    container = ContainerLines(name=MAIN, lines=lines)
    await broker.client.register(
        Register(pod=POD, namespace="default", name="train", containers=(container,))
    )
    place = {
        LIMITS_DIR_VARIABLE: str(broker.limits_dir()),
        COUNTS_DIR_VARIABLE: str(broker.counts_dir()),
    }
    program = node.run(asker, place)
    await asyncio.to_thread(program.start)
    assert (await asyncio.to_thread(program.alloc, HELD // MIB))[0] == SUCCESS
    await broker.announced(2)
    return program


async def _look(broker: Broker, node: Node, *programs: Program, times: int) -> None:
    """Send this many measurements that list only these programs."""
    stats = [(program.pid, read_stat(program.pid)) for program in programs]
    keys = [ProcessKey(pid, stat.start_ticks) for pid, stat in stats if stat is not None]
    for _ in range(times):
        await broker.client.measure(_measured(*keys, gpu=node.uuids[0]))


def _held_bytes(broker: Broker) -> int:
    return sum(int(slot.used_bytes[0]) for slot in broker.counts().slots)


async def test_an_exec_of_a_program_without_cuda_gives_back(broker: Broker, node: Node, asker: Path) -> None:
    """After two measurements without the process its memory is no longer counted, though it lives."""
    with await _begin(broker, node, asker) as program:
        await _look(broker, node, program, times=2)
        program.tell("exec /bin/cat")
        assert await asyncio.to_thread(program.answer) == ["0"]

        async def is_another() -> bool:
            return await asyncio.to_thread(Path(f"/proc/{program.pid}/comm").read_text) == "cat\n"

        await until(is_another, "the exec")
        assert _held_bytes(broker) == HELD
        await _look(broker, node, times=1)
        assert _held_bytes(broker) == HELD
        await _look(broker, node, times=1)
        assert _held_bytes(broker) == 0
        assert broker.owners() == []
        assert await broker.process_count() == 1


async def test_a_program_that_maps_counts_keeps_its_words(broker: Broker, node: Node, asker: Path) -> None:
    """A program that maps `counts` keeps its words without any listing, as NVML may not show its memory."""
    with await _begin(broker, node, asker) as program:
        await _look(broker, node, times=4)
        assert _held_bytes(broker) == HELD
        assert [int(slot.is_vacating) for slot in broker.counts().slots[:1]] == [0]
        await _look(broker, node, program, times=1)


async def test_an_exec_of_a_cuda_program_is_not_vacated(broker: Broker, node: Node, asker: Path) -> None:
    """A new program with CUDA takes over its process's slot and keeps its memory there."""
    with await _begin(broker, node, asker) as program:
        await _look(broker, node, times=1)
        program.tell(f"exec {asker}")
        assert await asyncio.to_thread(program.answer) == ["0"]
        await asyncio.to_thread(program.start)
        assert (await asyncio.to_thread(program.alloc, 32))[0] == SUCCESS
        await _look(broker, node, times=3)
        assert _held_bytes(broker) == 32 * MIB
