"""A fresh emulated node for each test."""

from pathlib import Path

import pytest

from tests.emulator.cuda_program import NODE, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node of two GPUs: 8 GiB, and 4 GiB of which the driver keeps one."""
    config = tmp_path / "node.conf"
    config.write_text(NODE)
    return Node(config)
