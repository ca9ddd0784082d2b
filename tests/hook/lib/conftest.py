"""The emulated node, a container on it, and the programs that run under the preload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import GateWriter, beating
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import MIB, Node, Program, compiled

CONTEXT_MIB = 64
LINE_MIB = 320


@pytest.fixture(name="asker", scope="session")
def _asker() -> Path:
    """The program that obeys a test."""
    return compiled("asker")


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    """Two GPUs of 2 GiB, whose contexts cost 64 MiB."""
    return Node(tmp_path, gpu_count=2, memory_mib=2048, context_mib=CONTEXT_MIB)


@pytest.fixture(name="lines")
def _lines(node: Node) -> list[Line]:
    """320 MiB of each GPU: one context, and two allocations of 128 MiB."""
    return [Line(uuid, LINE_MIB * MIB, CONTEXT_MIB * MIB) for uuid in node.uuids]


@pytest.fixture(name="container")
def _container(tmp_path: Path, lines: list[Line]) -> Container:
    container = Container(tmp_path / "container")
    container.write(limits_of(lines))
    return container


@pytest.fixture(name="program")
def _program(node: Node, container: Container, asker: Path) -> Iterator[Program]:
    """A program in the container with a context on the first GPU."""
    with node.run(asker, container.environment) as program:
        program.start()
        yield program


@pytest.fixture(name="launcher")
def _launcher(node: Node, container: Container, gate: GateWriter, tmp_path: Path) -> Iterator[Launcher]:
    """A program in the container that launches, behind the gate that its file of tests sets up."""
    with beating(gate), launching(node, container, tmp_path) as launcher:
        yield launcher
