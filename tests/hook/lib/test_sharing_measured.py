"""The charge for memory whose exporter has freed it while another container still maps it."""

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hook.broker.core.audit.overheads import RUN
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, MeasuredProcess, Register
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.part.processes import read_stat
from tests.hook.broker.conftest import MAIN, POD, Broker
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
    """Tell the broker what NVML would show, as often as it takes to be believed."""
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
    for _ in range(RUN + 2):
        await broker.client.measure(
            Measured(began_ns=time.monotonic_ns(), gpus=(card,), processes=tuple(processes))
        )


async def test_what_an_exporter_let_go_of_is_taken_off_the_importers_line(
    broker: Broker, node: Node, tmp_path: Path
) -> None:
    """Memory that an exporter freed is taken off the importer's line by NVML's figure.

    A tenant cannot pass its line with memory that another one exports and frees.
    """
    with ExitStack() as stack:
        exporter, importer = (
            stack.enter_context(
                Script(
                    node,
                    {
                        LIMITS_DIR_VARIABLE: str(broker.limits_dir(pod)),
                        COUNTS_DIR_VARIABLE: str(broker.counts_dir(pod)),
                    },
                    tmp_path,
                )
            )
            for pod in (POD, OTHER)
        )
        for script in (exporter, importer):
            script.do(SHARING)
        pods = {exporter.pid: POD, importer.pid: OTHER}
        fd = exporter.do("handle = create(256 * MIB); answer = export(handle)")
        importer.do(f"at = map_in(brought(fetched({exporter.pid}, {fd})), 256 * MIB)")
        await _measure(broker, node, pods)
        context_bytes = broker.limits(OTHER).gpus[0].excess_bytes  # older than its measurement
        assert broker.limits(POD).gpus[0].excess_bytes == context_bytes
        exporter.do(f"release(handle); os.close({fd})")
        await _measure(broker, node, pods)
        assert broker.limits(POD).gpus[0].excess_bytes == context_bytes
        assert broker.limits(OTHER).gpus[0].excess_bytes == context_bytes + 256 * MIB
        assert importer.get("alloc(256 * MIB)[0]") == OUT_OF_MEMORY
        assert exporter.get("alloc(256 * MIB)[0]") == SUCCESS
