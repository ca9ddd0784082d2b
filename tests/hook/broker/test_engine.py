"""The engine over real files reads each state for the core after it has written all earlier decisions."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hook.broker.core.codec import Numbers
from hook.broker.core.events import Event, HeldRead
from hook.broker.core.ids import ContainerKey, SlotMeasured
from hook.broker.core.instructions import Instruction
from hook.broker.core.journal import Journal
from hook.broker.core.memory.arbiter import MemoryArbiter
from hook.broker.core.memory.policies import wait_policy
from hook.broker.core.memory.requests import Overcommit
from hook.broker.core.node import Node
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.driver_lines import DriverLines
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.files.contexts import ContextsFile
from hook.broker.files.journal import JournalFile
from hook.broker.files.shared import SharedFiles
from hook.broker.files.work import BrokerFiles
from hook.broker.sockets.hook import bind_hook_socket
from plimsoll.broker.wire import ContainerLines, Measured, MeasuredGpu
from plimsoll.nvml.thread import DriverThread
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, registration
from tests.hook.broker.gateview import GateView


class Files(SharedFiles):
    """Files that record each change of a page, and whose writes can be made to fail."""

    written_s = 0.0
    is_full = False

    def set_limits(
        self,
        container: ContainerKey,
        lines: ContainerLines,
        numbers: Numbers,
        measured: Sequence[SlotMeasured] = (),
    ) -> None:
        """Write the page, or fail."""
        if self.is_full:
            raise OSError("No space left on device")
        super().set_limits(container, lines, numbers, measured)
        self.written_s = time.monotonic()


class RecordingNode(Node):
    """A core that records the held memory that it gets."""

    def __init__(self, files: Files) -> None:
        super().__init__(
            Journal((), 100), (), "boot", overcommit=Overcommit(MemoryArbiter(wait_policy("fifo", b"")))
        )
        self.heard: list[tuple[HeldRead, float]] = []
        self._files = files

    def handle(self, event: Event, now_s: float) -> list[Instruction]:
        """Record and handle the event."""
        if isinstance(event, HeldRead):
            self.heard.append((event, self._files.written_s))
        return super().handle(event, now_s)


class Bench:
    """An engine of a node that overcommits."""

    def __init__(self, root: Path, group: asyncio.TaskGroup) -> None:
        self.files = Files(root)
        self.node = RecordingNode(self.files)
        disk = BrokerFiles(self.files, JournalFile(root), ContextsFile(root, ""))
        self.thread = ThreadPoolExecutor(1)
        self.tasks: list[asyncio.Task[None]] = []

        def start_task(work: object, name: str) -> asyncio.Task[None]:
            self.tasks.append(group.create_task(work, name=name))  # type: ignore[arg-type] # a coroutine
            return self.tasks[-1]

        self.driver = DriverThread()
        lines = DriverLines(self.node, self.driver, root, "preload")
        self.engine = Engine(self.node, disk, self.thread, start_task, ShareSettings(), lines)


@pytest.fixture(name="bench")
async def _bench(tmp_path: Path) -> AsyncIterator[Bench]:
    tmp_path.joinpath("limits").mkdir()
    async with asyncio.TaskGroup() as group:
        bench = Bench(tmp_path, group)
        await bench.engine.start()
        yield bench
        for task in bench.tasks:
            task.cancel()
        bench.engine.close()
        await bench.driver.close()
    bench.thread.shutdown()


def measured(sizes: Sequence[int]) -> Measured:
    """Report this much memory on each GPU."""
    gpus = [
        MeasuredGpu(gpu=gpu, usable_bytes=size, used_bytes=0) for gpu, size in zip(GPUS, sizes, strict=True)
    ]
    return Measured(began_ns=time.monotonic_ns(), gpus=tuple(gpus), processes=())


async def test_each_look_is_later_than_what_the_look_before_it_changed(bench: Bench) -> None:
    """On two GPUs read in one turn, the core gets no reading older than the latest write of a page.

    An older reading proves nothing.
    """
    await bench.engine.take(registration(GIB))
    for sizes in ((GIB, GIB), (GIB // 2, GIB // 2), (GIB, GIB)):
        bench.node.heard.clear()
        await bench.engine.take(measured(sizes))
        assert {event.gpu for event, _ in bench.node.heard} == set(GPUS)
        assert [event.gpu for event, written_s in bench.node.heard if event.read_s < written_s] == []


async def test_nothing_is_read_until_a_page_that_could_not_be_written_was(bench: Bench) -> None:
    """After a failed write of a lower grant no memory is read, in that turn and in later ones.

    A grant that is not on its page binds no process.
    """
    await bench.engine.take(registration(GIB))
    await bench.engine.take(measured((GIB, GIB)))
    bench.files.is_full = True
    with pytest.raises(NotCarriedOutError, match="No space left"):
        await bench.engine.take(measured((GIB // 2, GIB // 2)))
    assert bench.engine.disk_failures > 0
    bench.files.is_full = False
    bench.node.heard.clear()
    await bench.engine.take(measured((GIB // 4, GIB // 4)))
    assert bench.node.heard == []
    await bench.engine.take(registration(GIB))
    await bench.engine.take(measured((GIB // 4, GIB // 4)))
    line = registration(GIB).containers[0].lines[0]
    assert bench.node.memory_requests.granted_bytes(ContainerKey(POD, MAIN), line) == GIB // 4


async def test_a_gate_has_no_beat_before_its_socket_listens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that finds the beat late and the socket refusing takes the broker for dead."""
    beats_ns: list[int] = []

    def bind(directory: Path) -> socket.socket:
        beats_ns.append(GateView(directory).page.beat_ns)
        return bind_hook_socket(directory)

    monkeypatch.setattr("hook.broker.engine.bind_hook_socket", bind)
    await bench.engine.take(registration(GIB))
    assert beats_ns == [0]
    assert GateView(bench.files.limits_dir(ContainerKey(POD, MAIN))).page.beat_ns > 0
