"""The emulated node, a container on it, and the programs that run under the preload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.broker.pages import GATE_METERED
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import GateWriter, beating
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import MIB, Node, Program, compiled
from tests.hook.lib.script import Script
from tests.hook.lib.shared import Agree, assert_agree

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


@pytest.fixture(name="script")
def _script(
    node: Node, container: Container, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Script]:
    """A script in the container that has the names of the modules in `USED` of its file of tests."""
    with Script(node, container.environment, tmp_path) as script:
        _use(script, request)
        yield script


@pytest.fixture(name="agree")
def _agree(script: Script, node: Node, container: Container) -> Agree:
    """Asserts that the word of the first GPU and the emulator's own book say this, in MiB."""
    return lambda mib: assert_agree(script, node, container, mib)


@pytest.fixture(name="gate")
def _gate(container: Container, request: pytest.FixtureRequest) -> GateWriter:
    """The container's gate: metered, or in the state `GATE` of its file of tests."""
    return GateWriter(container, getattr(request.module, "GATE", GATE_METERED))


@pytest.fixture(name="launcher")
def _launcher(
    node: Node, container: Container, gate: GateWriter, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Launcher]:
    """A script like `script` that launches, behind a gate whose broker lives."""
    with beating(gate), launching(node, container, tmp_path) as launcher:
        _use(launcher, request)
        yield launcher
        if request.session.testsfailed:
            launcher.kill()  # the threads of a failed test may never come back


def _use(script: Script, request: pytest.FixtureRequest) -> None:
    for module in getattr(request.module, "USED", ()):
        script.use(module)
