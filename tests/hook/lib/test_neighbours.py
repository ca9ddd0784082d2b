"""Each of two containers on a node sees only its own GPUs and processes through NVML."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.broker.pages import FLAG_WHOLE_GPUS, LIMITS_NAME
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, ROOT, SUCCESS, Node, Program, look_command
from tests.servers.waiting import PATIENCE_S

INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, NOT_READY = 7, 2, 3, 6, 27
"""Results of NVML."""

CONTEXT_MIB = 64
NO_INSTANCE = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A container with a program on one of its GPUs."""

    container: Container
    program: Program


def look(node: Node, container: Container | None, what: str, *arguments: object) -> Any:  # noqa: ANN401 - what JSON holds
    """The view of `programs.looks` by the real pynvml."""
    done = subprocess.run(
        look_command(what, *arguments),
        cwd=ROOT,
        env=node.environment(container.environment if container else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
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
    first, second, third = node.uuids
    assert look(node, red.container, "names") == [[first, 0, 320 * MIB], [third, 1, 320 * MIB]]
    assert look(node, blue.container, "names") == [[second, 0, 320 * MIB], [third, 1, 320 * MIB]]


@pytest.mark.parametrize("version", ["", "_v2"])
def test_no_index_leads_past_the_containers_gpus(red: Neighbour, node: Node, version: str) -> None:
    """Count and handles by index are narrowed in both versions; the index after the last is none."""
    wrong = INVALID_ARGUMENT
    assert look(node, red.container, "indices", version) == [2, 0, 0, 0, wrong, wrong, wrong, wrong]


def test_anothers_gpu_is_not_found_by_name(red: Neighbour, node: Node) -> None:
    """A look-up by UUID or address finds only the container's own GPUs, with their numbers."""
    addresses = look(node, None, "addresses")
    found = look(node, red.container, "by_name", node.uuids, addresses)
    assert found == [[0, -NOT_FOUND, 1], [0, -NOT_FOUND, 1], [0, NOT_FOUND, 0], [-NOT_FOUND]]


def test_neither_sees_the_others_processes(red: Neighbour, blue: Neighbour, node: Node, asker: Path) -> None:
    """On the shared GPU each container lists its own processes with their counted memory, and no others."""
    assert red.program.alloc(100)[0] == SUCCESS
    assert blue.program.alloc(50)[0] == SUCCESS
    with node.run(asker, red.container.environment) as other:
        other.start(2)
        mine = sorted([[red.program.pid, 164 * MIB], [other.pid, 64 * MIB]])
        assert look(node, red.container, "processes") == [[], mine]
        assert look(node, blue.container, "processes") == [[], [[blue.program.pid, 114 * MIB]]]
    everyone = look(node, None, "processes")
    assert {pid for pid, _ in everyone[2]} >= {red.program.pid, blue.program.pid}


def test_the_processes_memory_sums_up_to_the_used_memory(red: Neighbour, node: Node, asker: Path) -> None:
    """Contexts that no word has are part of the processes that have one, and the dead are in no list."""
    lines = [replace(line, excess_bytes=101) for line in _lines(node, 2, 0)]
    with node.run(asker, red.container.environment) as other:
        other.start(2)
        red.container.rewrite(lines)
        assert look(node, red.container, "sums")[1] == [128 * MIB + 101] * 2
        assert sorted(mib for _, mib in look(node, red.container, "processes")[1]) == [
            64 * MIB + 50,
            64 * MIB + 51,
        ]
    assert look(node, red.container, "processes")[1] == [[red.program.pid, 64 * MIB + 101]]
    assert look(node, red.container, "sums")[1] == [64 * MIB + 101] * 2


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_a_list_keeps_nvmls_rule_for_its_room(red: Neighbour, node: Node, asker: Path, version: str) -> None:
    """Too little room is an error with the needed number. Enough room is filled, and the rest stays untouched."""
    with node.run(asker, red.container.environment) as other:
        other.start(2)
        nobody, both = [0, 0], [[red.program.pid, 64 * MIB], [other.pid, 64 * MIB]]
        assert look(node, red.container, "rooms", version) == [
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
    mine = [red.program.pid, 64 * MIB, NO_INSTANCE, NO_INSTANCE]
    assert look(node, red.container, "instances") == [mine, mine]


@pytest.mark.parametrize("sort", ["Graphics", "MPSCompute"])
@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_there_are_no_graphics_and_no_mps_clients(
    red: Neighbour, node: Node, sort: str, version: str
) -> None:
    """The lists of graphics and MPS clients exist and are empty."""
    assert look(node, red.container, "count_of", sort, version) == [0, 0]


def test_how_busy_strangers_are_is_not_told(red: Neighbour, node: Node) -> None:
    """NVML's utilisation of processes would name every container's, so a shared card returns none."""
    assert look(node, red.container, "utilization") == NOT_SUPPORTED


def test_a_context_of_unknown_cost_is_listed_while_it_lives(red: Neighbour, node: Node, asker: Path) -> None:
    """A process whose context's cost is not measured yet has the word 0, and is listed until its context ends."""
    red.container.rewrite([replace(line, context_bytes=0) for line in _lines(node, 2, 0)])
    with node.run(asker, red.container.environment) as program:
        program.start(0)
        _, context = program.ask("create 0")
        assert look(node, red.container, "processes")[0] == [[program.pid, 0]]
        assert program.ask("release 0") == [SUCCESS]
        assert look(node, red.container, "processes")[0] == [[program.pid, 0]]
        assert program.ask(f"destroy {context}") == [SUCCESS]
        assert look(node, red.container, "processes")[0] == []


def test_a_container_with_whole_gpus_sees_the_drivers_answers(red: Neighbour, node: Node) -> None:
    """A container that owns its GPUs gets the driver's answers."""
    red.container.rewrite(_lines(node, 2, 0), flags=FLAG_WHOLE_GPUS)
    assert look(node, red.container, "processes") == look(node, None, "processes")


def test_a_container_with_a_mig_instance_sees_what_its_runtime_shows(red: Neighbour, node: Node) -> None:
    """A MIG instance is in no list of cards, so the cards stay as they are."""
    instance = "MIG-5a1c0d2e-0000-4000-8000-00000000000a"
    red.container.write(limits_of([Line(instance, 320 * MIB)]))
    assert look(node, red.container, "indexed_processes") == [[0, []], [1, []], [2, []]]


@pytest.mark.parametrize(
    "call",
    [("nvmlDeviceGetCount",), ("nvmlDeviceGetHandleByIndex", 0), ("nvmlDeviceGetHandleByUUID", None)],
)
def test_before_the_limits_no_gpu_is_shown(red: Neighbour, node: Node, call: tuple[object, ...]) -> None:
    """A program that queries before its container's limits are there gets an error to retry."""
    (red.container.limits_dir / LIMITS_NAME).unlink()
    arguments = [node.uuids[0] if one is None else one for one in call]
    assert look(node, red.container, "called", *arguments) == NOT_READY
