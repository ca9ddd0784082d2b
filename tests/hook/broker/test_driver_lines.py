"""The line in the driver, over the emulated driver and real control groups: no program escapes it."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from plimsoll.broker.announcements import Denied
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid
from tests.hook.broker.cgroups import cgroup_tree, inside, make_pod_group
from tests.hook.broker.conftest import MAIN, POD, Broker, Process, gpu_of, until
from tests.hook.broker.test_metrics import read_samples

BUILD: Final = Path(__file__).resolve().parents[3] / "build"
GPUS: Final = tuple(GpuUuid(f"GPU-5a1c0d2e-0000-4000-8000-00000000000{n}") for n in range(2))
MIB: Final = 1 << 20
GIB: Final = 1 << 30
ROOM: Final = 512 * MIB
CONTEXT: Final = 300 * MIB
OUT_OF_MEMORY: Final = "2"
NEW_DRIVER: Final = "615.71.09"
OLD_DRIVER: Final = "570.124.06"
SOON: Final = "0.05"


@dataclass
class Machine:
    """A node with an emulated driver, a pod's control group, and a broker that is not started yet."""

    broker: Broker
    group: Path
    node: Path

    async def program(self, *, hooked: bool = False) -> Process:
        """A CUDA program in the pod's group. Without the library it is as one that is linked statically."""
        settings = {"LD_LIBRARY_PATH": str(BUILD / "emulator"), "PLIMSOLL_EMULATOR": str(self.node)}
        if hooked:
            settings |= {
                "LD_PRELOAD": str(BUILD / "hook/libplimsoll.so"),
                LIMITS_DIR_VARIABLE: str(self.broker.limits_dir()),
                COUNTS_DIR_VARIABLE: str(self.broker.counts_dir()),
            }
        wrapper = (*inside(self.group), "env", *(f"{name}={value}" for name, value in settings.items()))
        return await self.broker.spawn(*wrapper, module="tests.hook.broker.cudaprogram")

    async def operator(self) -> Process:
        """A tool that reads and sets the driver's limits."""
        wrapper = ("env", f"LD_LIBRARY_PATH={BUILD / 'emulator'}", f"PLIMSOLL_EMULATOR={self.node}")
        return await self.broker.spawn(*wrapper, module="tests.hook.broker.driverlimits")

    async def limit(self, gpu: int = 0) -> int | None:
        """The limit of the pod's group, as the driver says."""
        answer = await (await self.operator()).do(f"get {gpu} {self.group}")
        return None if answer == "None" else int(answer)

    async def until_limit(self, hard_bytes: int | None) -> None:
        """Wait until the pod's group has this limit."""
        operator = await self.operator()

        async def holds() -> bool:
            return await operator.do(f"get 0 {self.group}") == str(hard_bytes)

        await until(holds, f"a limit of {hard_bytes}")

    async def enforcement(self) -> dict[GpuUuid, tuple[str, str]]:
        """The enforcement that the broker claims, and its reason for not offering more."""

        async def is_known() -> bool:
            return bool((await self.broker.client.describe()).enforcement)

        await until(is_known, "what the node does is known")
        found = (await self.broker.client.describe()).enforcement
        return {one.gpu: (one.enforcement, one.reason) for one in found}


def describe_node(node: Path, driver: str = NEW_DRIVER, first_gpu: str = "") -> None:
    """Write the node file: two GPUs of 8 GiB."""
    gpus = "".join(
        f"[gpu {n}]\nuuid = {gpu}\nmemory = 8Gi\ncontext = {CONTEXT}\n{'' if n else first_gpu}\n"
        for n, gpu in enumerate(GPUS)
    )
    node.write_text(f"driver = {driver}\n{gpus}")


def registration(line_bytes: int = GIB, *, whole: bool = False, gpu: GpuUuid = GPUS[0]) -> Register:
    """The pod with a line on one GPU."""
    container = ContainerLines(name=MAIN, lines=(Line(gpu=gpu, line_bytes=line_bytes),), whole=whole)
    return Register(pod=POD, namespace="default", name="train", containers=(container,))


@pytest.fixture(name="groups")
def _groups() -> Iterator[Path]:
    with cgroup_tree() as root:
        yield root


@pytest.fixture(name="machine")
async def _machine(groups: Path, tmp_path: Path) -> AsyncIterator[Machine]:
    node = tmp_path / "node"
    describe_node(node)
    found = {"LD_LIBRARY_PATH": str(BUILD / "emulator"), "PLIMSOLL_EMULATOR": str(node)}
    settings = {"audit_s": "3600", "cgroup_root": str(groups)}
    broker = Broker(tmp_path / "root", settings, node=found)
    try:
        yield Machine(broker, make_pod_group(groups, POD), node)
    finally:
        await broker.close()


async def test_a_program_without_the_library_meets_the_line(machine: Machine) -> None:
    """All processes of the pod together, contexts and all, hold no more than the line and its margin."""
    await machine.broker.start()
    await machine.broker.client.register(registration(GIB))
    await machine.until_limit(GIB + ROOM)
    program, second = await machine.program(), await machine.program()
    assert await program.do("begin") == "0 0 0"
    assert await program.do("total") == f"0 {GIB + ROOM}", "the driver shows the limit in place of the card"
    assert await program.do(f"alloc {GIB}") == "0"
    assert await program.do(f"alloc {ROOM - CONTEXT + 2 * MIB}") == OUT_OF_MEMORY
    assert (await second.do("begin")).split()[1] == OUT_OF_MEMORY, "a second context has no room"
    assert await program.do("free") == "0"
    assert (await second.do("begin")).split()[1] == "0"


async def test_a_program_with_the_library_meets_the_librarys_line_first(machine: Machine) -> None:
    """An allocation past the line is refused by the library, which counts and announces it."""
    await machine.broker.start()
    await machine.broker.client.register(registration(GIB))
    program = await machine.program(hooked=True)
    assert await program.do("begin") == "0 0 0"
    assert await program.do("total") == f"0 {GIB}"
    assert await program.do(f"alloc {GIB}") == "0", (
        "the first context, whose cost is not known, takes no room"
    )
    assert await program.do(f"alloc {2 * MIB}") == OUT_OF_MEMORY
    denied = (await machine.broker.announced(3))[2]
    assert isinstance(denied, Denied)
    assert (gpu_of(denied), denied.requested_bytes) == (GPUS[0], 2 * MIB)


async def test_a_resize_reaches_a_program_without_the_library(machine: Machine) -> None:
    """A raised line is free to use at once. A line below the use stops growth, and follows the use down."""
    await machine.broker.start(audit_s=SOON)
    await machine.broker.client.register(registration(GIB))
    program = await machine.program()
    await program.do("begin")
    assert await program.do(f"alloc {2 * GIB}") == OUT_OF_MEMORY
    await machine.broker.client.register(registration(3 * GIB))
    assert await machine.limit() == 3 * GIB + ROOM
    assert await program.do(f"alloc {2 * GIB}") == "0"
    await machine.broker.client.register(registration(GIB))
    assert await machine.limit() == 2 * GIB + CONTEXT, "the driver takes no limit below the use"
    assert await program.do(f"alloc {2 * MIB}") == OUT_OF_MEMORY
    [*_, last] = machine.broker.log("driver_line_set")
    assert "follows its use down" in last["problem"]
    await program.do("free")
    await machine.until_limit(GIB + ROOM)
    assert await program.do(f"alloc {2 * GIB}") == OUT_OF_MEMORY


async def test_lines_are_set_again_by_the_next_broker(machine: Machine) -> None:
    """A limit holds without a broker. The next one sets due limits and removes others."""
    await machine.broker.start()
    await machine.broker.client.register(registration(GIB))
    await machine.until_limit(GIB + ROOM)
    await machine.broker.kill()
    assert await machine.limit() == GIB + ROOM
    assert await (await machine.operator()).do(f"remove 0 {machine.group}") == "removed"
    await machine.broker.start()
    await machine.until_limit(GIB + ROOM)
    await machine.broker.stop()
    await machine.broker.start(enforcement="preload")
    await machine.until_limit(None)


async def test_a_control_group_that_comes_late_gets_its_line_at_the_next_audit(machine: Machine) -> None:
    """A pod that is registered before the kubelet has made its group is not forgotten."""
    machine.group.rmdir()
    await machine.broker.start(audit_s=SOON)
    await machine.broker.client.register(registration(GIB))
    machine.group.mkdir()
    await machine.until_limit(GIB + ROOM)


async def test_a_pod_that_owns_its_gpus_has_no_limit(machine: Machine) -> None:
    """A container with whole GPUs may use all of their memory."""
    await machine.broker.start(audit_s=SOON)
    await machine.broker.client.register(registration(GIB, whole=True))
    await machine.broker.client.register(registration(GIB, whole=True))
    assert await machine.limit() is None


async def test_the_driver_alone_holds_the_line_and_the_library_still_counts(machine: Machine) -> None:
    """Under `driver` the library refuses nothing; the driver does."""
    await machine.broker.start(enforcement="driver")
    await machine.broker.client.register(registration(GIB))
    assert await machine.enforcement() == dict.fromkeys(GPUS, ("driver", ""))
    program = await machine.program(hooked=True)
    assert await program.do("begin") == "0 0 0"
    assert await program.do("total") == f"0 {GIB + ROOM}"
    assert await program.do(f"alloc {GIB + 100 * MIB}") == "0"
    assert await program.do(f"alloc {GIB}") == OUT_OF_MEMORY
    assert [entry.what for entry in await machine.broker.announced(2)] == ["hello", "context"]
    held = (await machine.broker.client.describe()).containers[0].processes[0]
    assert (held.denied_count, held.used_bytes[0] >= GIB) == (0, True)


async def test_none_holds_nothing(machine: Machine) -> None:
    """Under `none` a program takes what the card has; the broker still counts it."""
    await machine.broker.start(enforcement="none")
    await machine.broker.client.register(registration(GIB))
    assert (await machine.enforcement())[GPUS[0]] == ("none", "")
    program = await machine.program(hooked=True)
    await program.do("begin")
    assert await program.do(f"alloc {6 * GIB}") == "0"
    assert await machine.limit() is None
    held = (await machine.broker.client.describe()).containers[0]
    assert held.processes[0].used_bytes[0] >= 6 * GIB
    assert held.container.lines[0].line_bytes == GIB, "the declaration stands"


FIRST_VERSION: Final = next(Path("/sys/fs/cgroup").glob("memory/"), None)
"""A hierarchy of version 1, where this machine has one."""

INSTANCE: Final = GpuUuid("MIG-5a1c0d2e-0000-4000-8000-000000000011")
WHY_NOT: Final = {
    "an old driver": ("driver 570.124.06 has no such limits: install 615 or newer", OLD_DRIVER, ""),
    "MIG": ("MIG mode", NEW_DRIVER, f"mig = yes\n[mig 0 0]\nprofile = 4g.6gb\nuuid = {INSTANCE}"),
}


@pytest.mark.parametrize("which", WHY_NOT)
async def test_what_the_driver_cannot_do_is_named(machine: Machine, which: str) -> None:
    """`both` goes on with the library where the driver cannot help, and says why; `driver` ends, and says why."""
    cause, driver, first_gpu = WHY_NOT[which]
    describe_node(machine.node, driver, first_gpu)
    await machine.broker.start()
    gpu = INSTANCE if which == "MIG" else GPUS[0]
    await machine.broker.client.register(registration(GIB, gpu=gpu))
    said = await machine.enforcement()
    assert said[gpu][0] == "preload"
    assert cause in said[gpu][1]
    assert said[GPUS[1]][0] == ("both" if which == "MIG" else "preload")
    program = await machine.program(hooked=True)
    await program.do("begin")
    assert await program.do(f"alloc {2 * GIB}") == OUT_OF_MEMORY
    assert any(cause in line["driver_cannot"] for line in machine.broker.log("enforcement"))
    await machine.broker.stop()
    await machine.broker.launch(enforcement="driver")
    assert await machine.broker.wait() == 2
    assert cause in machine.broker.log_path.read_text().splitlines()[-1]


async def test_control_groups_of_version_1_are_named(machine: Machine) -> None:
    """Without control groups of version 2 the library alone holds the line, and `driver` ends with the reason."""
    root = FIRST_VERSION or machine.node.parent
    await machine.broker.start(cgroup_root=str(root))
    await machine.broker.client.register(registration(GIB))
    [(said, reason)] = (await machine.enforcement()).values()
    assert (said, f"{root} has no control groups of version 2" in reason) == ("preload", True)
    await machine.broker.stop()
    await machine.broker.launch(cgroup_root=str(root), enforcement="driver")
    assert await machine.broker.wait() == 2
    last = machine.broker.log_path.read_text().splitlines()[-1]
    assert "has no control groups of version 2" in last


async def test_metrics_show_what_the_node_does(machine: Machine) -> None:
    """A series says who holds lines of memory on each GPU, and another has the limit of each pod in the driver."""
    await machine.broker.start(http_port="0")
    await machine.broker.client.register(registration(GIB))
    await machine.until_limit(GIB + ROOM)
    found = await read_samples(machine.broker)
    assert found["plimsoll_hook_driver_limit_bytes", GPUS[0]] == GIB + ROOM
    assert ("plimsoll_hook_driver_limit_bytes", GPUS[1]) not in found
    assert found["plimsoll_broker_enforcement_info", GPUS[1]] == 1


async def test_the_room_is_a_contexts_cost_once_it_is_known(machine: Machine) -> None:
    """After a context was measured, the driver's line lies above the declared line by just its cost."""
    await machine.broker.start(audit_s=SOON, measure="true")
    await machine.broker.client.register(registration(GIB))
    program = await machine.program(hooked=True)
    await program.do("begin")
    await machine.until_limit(GIB + CONTEXT)
    assert await program.do(f"alloc {GIB}") == OUT_OF_MEMORY, "the library counts the context"
    assert await program.do(f"alloc {GIB - CONTEXT}") == "0"


async def test_two_containers_share_the_pods_line(machine: Machine) -> None:
    """The pod's group gets the sum of the lines, each with its margin."""
    await machine.broker.start()
    first, second = (
        ContainerLines(name=ContainerName(name), lines=(Line(gpu=GPUS[0], line_bytes=size),))
        for name, size in (("a", GIB), ("b", 2 * GIB))
    )
    both = Register(pod=POD, namespace="default", name="train", containers=(first, second))
    await machine.broker.client.register(both)
    await machine.until_limit(3 * GIB + 2 * ROOM)
