"""The emulated node, a container on it, and the compiled programs that run under the preload."""

import importlib.util
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import GateWriter, beating
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import EMULATOR, LIBRARY, MIB, ROOT, Node, Program

PROGRAMS = Path(__file__).parent / "programs"
CONTEXT_MIB = 64
LINE_MIB = 320


@pytest.fixture(name="compiled", scope="session")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the test programs, built for an old glibc as user programs may be."""
    assert LIBRARY.exists(), "run `make native` first"
    assert (EMULATOR / "libcuda.so.1").exists(), "run `make native` first"
    folder = tmp_path_factory.mktemp("programs")
    compile_asker(folder / "asker")
    compile_c([PROGRAMS / "linked.c"], folder / "linked", [f"-L{EMULATOR}", "-l:libcuda.so.1"])
    compile_c([PROGRAMS / "plain.c"], folder / "plain", [])
    return folder


@pytest.fixture(name="asker")
def _asker(compiled: Path) -> Path:
    return compiled / "asker"


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


def compile_asker(target: Path) -> None:
    """Compile the program that obeys a test."""
    sources = [PROGRAMS / f"asker{part}.c" for part in ("", "_memory")]
    compile_c(sources, target, ["-ldl", "-lpthread"])


def compile_c(sources: list[Path], target: Path, options: list[str], glibc: str = "2.17") -> None:
    """Compile with the project's own compiler, or the machine's `cc` and headers where that is not installed.

    So it is on a GPU machine without network, to which only the built libraries and some wheels are carried.
    """
    headers = ROOT.glob(".venv/lib/python3.*/site-packages/nvidia/cuda_runtime/include")
    includes = [word for folder in headers for word in ("-isystem", folder)]
    command = ["cc"]
    if importlib.util.find_spec("ziglang"):
        triple = f"{platform.machine()}-linux-gnu.{glibc}"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", triple]
    warnings = [
        "-std=c11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wshadow",
        "-Wconversion",
        "-Werror",
    ]
    subprocess.run(
        [*command, *warnings, *includes, *sources, *options, "-o", target], check=True, timeout=300
    )
