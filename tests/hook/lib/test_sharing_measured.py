"""Memory that crosses between processes, beside NVML's figures: counted once, whoever the driver names."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hook.broker.core.audit.audit import RUN
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, MeasuredProcess, Register
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.part.processes import read_stat
from tests.hook.broker.conftest import MAIN, POD, Broker, until
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script
from tests.hook.lib.shared import SHARING

LINE_MIB = 512
OTHER = PodUid("bbbbbbbb-0000-4000-8000-000000000002")


@pytest.fixture(name="broker")
async def _broker(tmp_path: Path, node: Node) -> AsyncIterator[Broker]:
    """A broker with two pods of one container each, on the same GPU."""
    broker = Broker(tmp_path / "root", {})
    await broker.start()
    for pod in (POD, OTHER):
        line = Line(gpu=GpuUuid(node.uuids[0]), line_bytes=LINE_MIB * MIB)
        container = ContainerLines(name=MAIN, lines=(line,))
        await broker.client.register(
            Register(pod=pod, namespace="default", name="train", containers=(container,))
        )
    yield broker
    await broker.close()


async def _measure(broker: Broker, node: Node, pods: dict[int, PodUid]) -> None:
    """Tell the broker what NVML shows, as often as it takes to be believed."""
    for _ in range(RUN + 2):
        await broker.client.measure(_measured(node, pods))


def _measured(node: Node, pods: dict[int, PodUid]) -> Measured:
    began_ns = time.monotonic_ns()
    gpu = GpuUuid(node.uuids[0])
    book = node.book()["gpus"][0]
    processes = []
    for process in book["processes"]:
        stat = read_stat(process["pid"])
        assert stat is not None
        processes.append(
            MeasuredProcess(
                pid=process["pid"],
                start_ticks=stat.start_ticks,
                gpu=gpu,
                used_bytes=process["used_bytes"],
                pod=pods[process["pid"]],
            )
        )
    card = MeasuredGpu(gpu=gpu, usable_bytes=2048 * MIB, used_bytes=book["used_bytes"])
    return Measured(began_ns=began_ns, gpus=(card,), processes=tuple(processes))


def _scripts(stack: ExitStack, broker: Broker, node: Node, root: Path, *pods: PodUid) -> list[Script]:
    """A program in each of these pods."""
    places = [
        {
            LIMITS_DIR_VARIABLE: str(broker.limits_dir(pod)),
            COUNTS_DIR_VARIABLE: str(broker.counts_dir(pod)),
        }
        for pod in pods
    ]
    scripts = [stack.enter_context(Script(node, place, root)) for place in places]
    for script in scripts:
        script.do(SHARING)
    return scripts


async def test_memory_from_outside_is_no_excess_whoever_holds_it(
    broker: Broker, node: Node, tmp_path: Path
) -> None:
    """An import from another pod counts in the importer's word, and NVML's figure adds nothing to it later."""
    with ExitStack() as stack:
        exporter, importer = _scripts(stack, broker, node, tmp_path, POD, OTHER)
        pods = {exporter.pid: POD, importer.pid: OTHER}
        await _measure(broker, node, pods)
        context_bytes = broker.limits(OTHER).gpus[0].excess_bytes  # older than its measurement
        assert broker.limits(POD).gpus[0].excess_bytes == context_bytes > 0
        fd = exporter.do("handle = create(256 * MIB); answer = export(handle)")
        importer.do(f"at = map_in(brought(fetched({exporter.pid}, {fd})), 256 * MIB)")
        await _measure(broker, node, pods)
        exporter.do(f"release(handle); os.close({fd})")
        await _measure(broker, node, pods)
        assert broker.limits(POD).gpus[0].excess_bytes == context_bytes
        assert broker.limits(OTHER).gpus[0].excess_bytes == context_bytes
        assert importer.get("alloc(256 * MIB)[0]") == OUT_OF_MEMORY
        assert exporter.get("alloc(256 * MIB)[0]") == SUCCESS


@pytest.mark.parametrize("measured", [False, True])
async def test_a_dead_exporters_memory_counts_once_for_its_container(
    broker: Broker, node: Node, tmp_path: Path, *, measured: bool
) -> None:
    """After the broker has cleared an exporter's slot, its memory is its importer's, for library and broker alike."""
    with ExitStack() as stack:
        exporter, importer = _scripts(stack, broker, node, tmp_path, POD, POD)
        pods = dict.fromkeys((exporter.pid, importer.pid), POD)
        fd = exporter.do("handle = create(256 * MIB); answer = export(handle)")
        importer.do(f"there = brought(fetched({exporter.pid}, {fd})); at = map_in(there, 256 * MIB)")
        await _measure(broker, node, pods)
        context_bytes = broker.limits().gpus[0].excess_bytes // 2
        exporter.kill()

        async def is_cleared() -> bool:
            return len(broker.owners()) == 1

        await until(is_cleared, "the broker clears the slot of the dead exporter")
        if measured:
            await _measure(broker, node, pods)
        assert broker.limits().gpus[0].excess_bytes == context_bytes
        [held] = [
            process
            for container in (await broker.client.describe()).containers
            for process in container.processes
        ]
        assert (held.used_bytes[0], held.excess_bytes[0]) == (256 * MIB + context_bytes, context_bytes)
        assert importer.get("cuda.info()[0]") == LINE_MIB * MIB - 256 * MIB - context_bytes
        assert importer.get("alloc(256 * MIB)[0]") == OUT_OF_MEMORY
        importer.do("unmap(at, 256 * MIB); release(there)")
        assert importer.get("cuda.info()[0]") == LINE_MIB * MIB - context_bytes


async def test_memory_of_unknown_size_is_measured_before_its_import_returns(
    broker: Broker, node: Node, tmp_path: Path
) -> None:
    """A process without addresses to find a handle's size is measured at each import, and refused past the line."""
    with ExitStack() as stack:
        exporter, importer = _scripts(stack, broker, node, tmp_path, POD, OTHER)
        pods = {exporter.pid: POD, importer.pid: OTHER}
        await _measure(broker, node, pods)
        context_bytes = broker.limits(OTHER).gpus[0].excess_bytes
        fds = exporter.do("made = [create(192 * MIB) for _ in range(2)]; answer = list(map(export, made))")
        importer.do(f"code, own = alloc(128 * MIB); fds = [fetched({exporter.pid}, fd) for fd in {fds}]")
        exporter.kill()
        importer.do(
            """
            import resource
            pages = int(open("/proc/self/statm").read().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 64 * MIB,) * 2)
            """
        )
        for outcome in ("brought", "OUT_OF_MEMORY"):
            importing = asyncio.create_task(
                asyncio.to_thread(
                    importer.do,
                    """
                    try:
                        brought(fds.pop()); answer = "brought"
                    except Exception as error:
                        answer = str(error)
                    """,
                )
            )
            while not importing.done():
                await _measure(broker, node, pods)
            assert outcome in await importing
            await _measure(broker, node, pods)
            in_word = 2 * MIB
            assert broker.limits(OTHER).gpus[0].excess_bytes == context_bytes + 192 * MIB - in_word
