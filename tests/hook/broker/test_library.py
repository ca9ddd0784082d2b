"""The real library under the real broker, over the emulated driver."""

from pathlib import Path

import pytest

from plimsoll.broker.announcements import Denied
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid
from tests.hook.broker.conftest import GIB, MAIN, POD, Broker, Process, gpu_of

BUILD = Path(__file__).resolve().parents[3] / "build"
LIBRARY, DRIVER = BUILD / "hook/libplimsoll.so", BUILD / "emulator/libcuda.so.1"
GPU = GpuUuid("GPU-5a1c0d2e-0000-4000-8000-000000000000")
OUT_OF_MEMORY = "2"
MIB = 1 << 20


def emulated_node(directory: Path) -> Path:
    """One emulated GPU of 8 GiB, described in `directory`."""
    assert LIBRARY.exists(), "run `make native` first"
    assert DRIVER.exists(), "run `make native` first"
    node = directory / "node"
    node.write_text(f"[gpu 0]\nuuid = {GPU}\nmemory = 8Gi\ncontext = 64Mi\n")
    return node


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Path:
    return emulated_node(tmp_path)


async def test_the_library_is_held_to_registered_lines(broker: Broker, node: Path) -> None:
    """A program allocates up to its line and is refused past it. The broker announces, describes, and frees."""
    await broker.client.register(one_gpu(GIB))
    program = await start_program(broker, node)
    assert await program.do("begin") == "0 0 0"
    assert await program.do("total") == f"0 {GIB}"
    assert await program.do(f"alloc {512 * MIB}") == "0"
    assert await program.do(f"alloc {768 * MIB}") == OUT_OF_MEMORY
    entries = await broker.announced(3)
    assert [(entry.what, entry.pid, gpu_of(entry)) for entry in entries] == [
        ("hello", program.pid, None),
        ("context", program.pid, GPU),
        ("denied", program.pid, GPU),
    ]
    denied = entries[2]
    assert isinstance(denied, Denied)
    assert denied.requested_bytes == 768 * MIB
    assert denied.line_bytes == GIB
    held = (await broker.client.describe()).containers[0].processes[0]
    assert held.used_bytes[0] >= 512 * MIB
    assert held.denied_count == 1
    await program.kill()
    assert (await broker.announced(4))[3].what == "exited"
    await broker.until_vacant()


async def test_the_first_context_counts_before_the_first_allocation(tmp_path: Path, node: Path) -> None:
    """Under a broker that has measured no context yet, the first program gets its line less its own context."""
    driver = {"PLIMSOLL_EMULATOR": str(node), "LD_LIBRARY_PATH": str(DRIVER.parent)}
    broker = Broker(tmp_path / "root", {}, driver)
    await broker.start(measure="true")
    try:
        await broker.client.register(one_gpu(GIB))
        program = await start_program(broker, node)
        assert await program.do("begin") == "0 0 0"
        assert await program.do(f"alloc {GIB - 62 * MIB}") == OUT_OF_MEMORY
        assert await program.do(f"alloc {GIB - 64 * MIB}") == "0"
    finally:
        await broker.close()


async def test_a_raised_line_reaches_a_running_program(broker: Broker, node: Path) -> None:
    """An allocation that the old line refused is granted after a registration with a higher one."""
    await broker.client.register(one_gpu(GIB))
    program = await start_program(broker, node)
    await program.do("begin")
    assert await program.do(f"alloc {2 * GIB}") == OUT_OF_MEMORY
    await broker.client.register(one_gpu(4 * GIB))
    assert await program.do(f"alloc {2 * GIB}") == "0"
    assert await program.do("total") == f"0 {4 * GIB}"


async def test_a_program_runs_on_while_the_broker_is_away(broker: Broker, node: Path) -> None:
    """Limits hold without a broker, and the next one adopts the program, also one that started meanwhile."""
    await broker.client.register(one_gpu(GIB))
    early = await start_program(broker, node)
    await early.do("begin")
    before = await broker.announced(2)
    await broker.kill()
    assert await early.do(f"alloc {2 * GIB}") == OUT_OF_MEMORY
    assert await early.do(f"alloc {128 * MIB}") == "0"
    late = await start_program(broker, node)
    assert await late.do("begin") == "0 0 0"
    assert await late.do(f"alloc {64 * MIB}") == "0"
    await broker.start()
    entries = await broker.announced(4)
    assert entries[:2] == before
    assert [(entry.what, entry.pid) for entry in entries[2:]] == [
        ("hello", late.pid),
        ("context", late.pid),
    ]
    await early.kill()
    await late.kill()
    exits = (await broker.announced(6))[4:]
    assert {(entry.what, entry.pid) for entry in exits} == {("exited", early.pid), ("exited", late.pid)}
    await broker.until_vacant()


def one_gpu(line_bytes: int) -> Register:
    """A pod of one container with a line on the emulated GPU."""
    container = ContainerLines(name=MAIN, lines=(Line(gpu=GPU, line_bytes=line_bytes),))
    return Register(pod=POD, namespace="default", name="train", containers=(container,))


async def start_program(broker: Broker, node: Path) -> Process:
    """Start the CUDA program in the pod's container."""
    settings = {
        "LD_PRELOAD": str(LIBRARY),
        "LD_LIBRARY_PATH": str(DRIVER.parent),
        "PLIMSOLL_EMULATOR": str(node),
        LIMITS_DIR_VARIABLE: str(broker.limits_dir()),
        COUNTS_DIR_VARIABLE: str(broker.counts_dir()),
    }
    wrapper = ["env", *(f"{name}={value}" for name, value in settings.items())]
    return await broker.spawn(*wrapper, module="tests.hook.broker.cudaprogram")
