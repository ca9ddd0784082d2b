"""Of two containers on a node, each sees only its own GPUs and processes through NVML."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.broker.pages import FLAG_WHOLE_GPUS, LIMITS_NAME
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, SUCCESS, Node, Program

INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, NOT_READY = 7, 2, 3, 6, 27
"""Results of NVML."""

CONTEXT_MIB = 64
NO_INSTANCE = 0xFFFF_FFFF

BEGIN = """
import ctypes, json, sys, pynvml as n
n.nvmlInit()
def raw(name, *arguments):
    return n._nvmlGetFunctionPointer(name)(*arguments)
def tried(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return error.value
def gpus():
    return [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
def used(handle, name="nvmlDeviceGetComputeRunningProcesses"):
    return sorted([p.pid, p.usedGpuMemory] for p in getattr(n, name)(handle))
"""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A container with a program on one of its GPUs."""

    container: Container
    program: Program


def look(node: Node, container: Container | None, code: str, *arguments: str) -> Any:  # noqa: ANN401 - what JSON holds
    """What the real pynvml answers in a process that never touches CUDA: what `code` gives to `show`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}\nshow = lambda it: print(json.dumps(it))\n{code}", *arguments],
        env=node.environment(container.environment if container else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    return Node(tmp_path, gpu_count=3, memory_mib=2048, context_mib=CONTEXT_MIB)


def _lines(node: Node, *gpus: int) -> list[Line]:
    return [Line(node.uuids[gpu], 320 * MIB, CONTEXT_MIB * MIB) for gpu in gpus]


def _neighbour(tmp_path: Path, name: str, node: Node, asker: Path, gpus: list[int]) -> Iterator[Neighbour]:
    container = Container(tmp_path / name)
    container.write(limits_of(_lines(node, *gpus)))
    with node.run(asker, container.environment) as program:
        program.start(2)
        yield Neighbour(container, program)


@pytest.fixture(name="red")
def _red(tmp_path: Path, node: Node, asker: Path) -> Iterator[Neighbour]:
    """The first and the last GPU, the last named first; a program on the last."""
    yield from _neighbour(tmp_path, "red", node, asker, [2, 0])


@pytest.fixture(name="blue")
def _blue(tmp_path: Path, node: Node, asker: Path) -> Iterator[Neighbour]:
    """The last two GPUs, and a program on the last."""
    yield from _neighbour(tmp_path, "blue", node, asker, [1, 2])


def test_each_sees_its_own_gpus_in_the_drivers_order(red: Neighbour, blue: Neighbour, node: Node) -> None:
    """A container's GPUs are numbered from 0 in NVML's order, whatever the order of its lines."""
    code = (
        "show([[n.nvmlDeviceGetUUID(g), n.nvmlDeviceGetIndex(g), n.nvmlDeviceGetMemoryInfo(g).total] "
        "for g in gpus()])"
    )
    first, second, third = node.uuids
    assert look(node, red.container, code) == [[first, 0, 320 * MIB], [third, 1, 320 * MIB]]
    assert look(node, blue.container, code) == [[second, 0, 320 * MIB], [third, 1, 320 * MIB]]


@pytest.mark.parametrize("version", ["", "_v2"])
def test_no_index_leads_past_the_containers_gpus(red: Neighbour, node: Node, version: str) -> None:
    """Count and handles by index are narrowed in both versions; the index after the last is none."""
    code = f"""
count, handle = ctypes.c_uint(), ctypes.c_void_p()
results = [raw("nvmlDeviceGetCount{version}", ctypes.byref(count))]
results += [raw("nvmlDeviceGetHandleByIndex{version}", i, ctypes.byref(handle)) for i in (0, 1, 2, 4294967295)]
results += [raw("nvmlDeviceGetHandleByIndex{version}", 0, None), raw("nvmlDeviceGetCount{version}", None)]
show([count.value, *results])
"""
    wrong = INVALID_ARGUMENT
    assert look(node, red.container, code) == [2, 0, 0, 0, wrong, wrong, wrong, wrong]


def test_anothers_gpu_is_not_found_by_name(red: Neighbour, node: Node) -> None:
    """A look-up by UUID or address finds only the container's own GPUs, with their numbers."""
    addresses = look(node, None, "show([n.nvmlDeviceGetPciInfo(g).busId for g in gpus()])")
    code = """
uuids, addresses = json.loads(sys.argv[1]), json.loads(sys.argv[2])
def number(call, name):
    found = tried(call, name)
    return -found if isinstance(found, int) else n.nvmlDeviceGetIndex(found)
first = ctypes.c_void_p()
show([[number(n.nvmlDeviceGetHandleByUUID, u) for u in uuids],
      [number(n.nvmlDeviceGetHandleByPciBusId, a) for a in addresses],
      [raw("nvmlDeviceGetHandleByPciBusId", a.encode(), ctypes.byref(first)) for a in addresses],
      [number(n.nvmlDeviceGetHandleByUUID, "GPU-nonsense")]])
"""
    found = look(node, red.container, code, json.dumps(node.uuids), json.dumps(addresses))
    assert found == [[0, -NOT_FOUND, 1], [0, -NOT_FOUND, 1], [0, NOT_FOUND, 0], [-NOT_FOUND]]


def test_neither_sees_the_others_processes(red: Neighbour, blue: Neighbour, node: Node, asker: Path) -> None:
    """On the shared GPU each container lists its own processes with their counted memory, and no others."""
    assert red.program.alloc(100)[0] == SUCCESS
    assert blue.program.alloc(50)[0] == SUCCESS
    code = "show([used(g) for g in gpus()])"
    with node.run(asker, red.container.environment) as other:
        other.start(2)
        mine = sorted([[red.program.pid, 164 * MIB], [other.pid, 64 * MIB]])
        assert look(node, red.container, code) == [[], mine]
        assert look(node, blue.container, code) == [[], [[blue.program.pid, 114 * MIB]]]
    everyone = look(node, None, code)
    assert {pid for pid, _ in everyone[2]} >= {red.program.pid, blue.program.pid}


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_a_list_keeps_nvmls_rule_for_its_room(red: Neighbour, node: Node, asker: Path, version: str) -> None:
    """Too little room is an error with the needed number. Enough room is filled, and the rest stays untouched."""
    code = f"""
class First(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]
Info = n.c_nvmlProcessInfo_v2_t if "{version}" else First
shared = gpus()[1]
def ask(room, size):
    count, infos = ctypes.c_uint(room), (Info * size)() if size else None
    result = raw("nvmlDeviceGetComputeRunningProcesses{version}", shared, ctypes.byref(count), infos)
    return [result, count.value, *([i.pid, i.usedGpuMemory] for i in infos or [])]
show([ask(0, 0), ask(1, 1), ask(2, 2), ask(3, 3), ask(3, 0),
      raw("nvmlDeviceGetComputeRunningProcesses{version}", shared, None, None),
      raw("nvmlDeviceGetComputeRunningProcesses{version}", None, ctypes.byref(ctypes.c_uint(0)), None)])
"""
    with node.run(asker, red.container.environment) as other:
        other.start(2)
        nobody, both = [0, 0], [[red.program.pid, 64 * MIB], [other.pid, 64 * MIB]]
        assert look(node, red.container, code) == [
            [INSUFFICIENT_SIZE, 2],
            [INSUFFICIENT_SIZE, 2, nobody],
            [0, 2, *both],
            [0, 2, *both, nobody],
            [INVALID_ARGUMENT, 3],
            INVALID_ARGUMENT,
            INVALID_ARGUMENT,
        ]


def test_the_newest_lists_know_no_mig_instance(red: Neighbour, node: Node) -> None:
    """Without MIG both instance numbers say so."""
    code = """
details = n.nvmlDeviceGetRunningProcessDetailList(gpus()[1], n.nvmlProcessDetailList_v1, 0)
entries = [*n.nvmlDeviceGetComputeRunningProcesses_v3(gpus()[1]), *details]
show([[p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId] for p in entries])
"""
    mine = [red.program.pid, 64 * MIB, NO_INSTANCE, NO_INSTANCE]
    assert look(node, red.container, code) == [mine, mine]


@pytest.mark.parametrize("sort", ["Graphics", "MPSCompute"])
@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_there_are_no_graphics_and_no_mps_clients(
    red: Neighbour, node: Node, sort: str, version: str
) -> None:
    """The lists of graphics and MPS clients exist and are empty."""
    code = f"""
count = ctypes.c_uint(0)
show([raw("nvmlDeviceGet{sort}RunningProcesses{version}", gpus()[1], ctypes.byref(count), None), count.value])
"""
    assert look(node, red.container, code) == [0, 0]


def test_how_busy_strangers_are_is_not_told(red: Neighbour, node: Node) -> None:
    """NVML's utilisation of processes would name every container's, so a shared card returns none."""
    code = "show(tried(n.nvmlDeviceGetProcessUtilization, gpus()[1], 0))"
    assert look(node, red.container, code) == NOT_SUPPORTED


def test_a_context_of_unknown_cost_is_listed_while_it_lives(red: Neighbour, node: Node, asker: Path) -> None:
    """A process whose context's cost is not measured yet has the word 0, and is listed until its context ends."""
    red.container.rewrite([replace(line, context_bytes=0) for line in _lines(node, 2, 0)])
    code = "show(used(gpus()[0]))"
    with node.run(asker, red.container.environment) as program:
        program.start(0)
        _, context = program.ask("create 0")
        assert look(node, red.container, code) == [[program.pid, 0]]
        assert program.ask("release 0") == [SUCCESS]
        assert look(node, red.container, code) == [[program.pid, 0]]
        assert program.ask(f"destroy {context}") == [SUCCESS]
        assert look(node, red.container, code) == []


def test_a_container_with_whole_gpus_sees_the_drivers_answers(red: Neighbour, node: Node) -> None:
    """A container that owns its GPUs gets the driver's answers."""
    red.container.rewrite(_lines(node, 2, 0), flags=FLAG_WHOLE_GPUS)
    code = "show([used(g) for g in gpus()])"
    assert look(node, red.container, code) == look(node, None, code)


def test_a_container_with_a_mig_instance_sees_what_its_runtime_shows(red: Neighbour, node: Node) -> None:
    """A MIG instance is in no list of cards, so the cards stay as they are."""
    instance = "MIG-5a1c0d2e-0000-4000-8000-00000000000a"
    red.container.write(limits_of([Line(instance, 320 * MIB)]))
    code = "show([[n.nvmlDeviceGetIndex(g), used(g)] for g in gpus()])"
    assert look(node, red.container, code) == [[0, []], [1, []], [2, []]]


@pytest.mark.parametrize(
    "call",
    ["n.nvmlDeviceGetCount", "n.nvmlDeviceGetHandleByIndex, 0", "n.nvmlDeviceGetHandleByUUID, sys.argv[1]"],
)
def test_before_the_limits_no_gpu_is_shown(red: Neighbour, node: Node, call: str) -> None:
    """A program that queries before its container's limits are there gets an error to retry."""
    (red.container.limits_dir / LIMITS_NAME).unlink()
    assert look(node, red.container, f"show(tried({call}))", node.uuids[0]) == NOT_READY
