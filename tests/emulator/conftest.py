"""A fresh emulated node for each test, and programs on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.cuda_program import NODE, Node
from tests.emulator.nvml_program import NODE as NVML_NODE
from tests.emulator.nvml_program import Program


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node of two GPUs: 8 GiB, and 4 GiB of which the driver keeps one."""
    config = tmp_path / "node.conf"
    config.write_text(NODE)
    return Node(config)


@pytest.fixture
def node_file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file of a fresh emulated node; a module of tests may have a `NODE` of its own for it."""
    path = tmp_path / "node"
    path.write_text(getattr(request.module, "NODE", NVML_NODE))
    return path


@pytest.fixture
def nvml(node_file: Path) -> Iterator[Program]:
    """A program that has initialised NVML and holds no context."""
    with Program(node_file) as program:
        program("n.nvmlInit()")
        yield program
