"""A reservation's first container names its only GPU, over the emulated driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitor.emulated import GPU_0, NODE, write_node
from tests.servers.waiting import PATIENCE_S

ONE = NODE.partition("[gpu 1]")[0]


def card(directory: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code and the termination message."""
    message = directory / "message"
    code = f"import pathlib, sys; from placer.pool.card import main; sys.exit(main(pathlib.Path({str(message)!r})))"
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, check=False, timeout=PATIENCE_S
    )
    return ended.returncode, message.read_text()


def test_the_only_gpu_is_named(tmp_path: Path) -> None:
    """By NVML, whatever the environment says of it."""
    environment = write_node(tmp_path)
    (tmp_path / "node.conf").write_text(ONE)
    assert card(tmp_path, environment) == (0, GPU_0)


@pytest.mark.parametrize(("gpus", "said"), [(2, "sees 2 GPUs"), (0, "runtime class")])
def test_anything_else_is_a_failure_with_its_reason(tmp_path: Path, gpus: int, said: str) -> None:
    """Two GPUs, or no driver."""
    environment = write_node(tmp_path) if gpus else {"LD_LIBRARY_PATH": ""}
    status, message = card(tmp_path, environment)
    assert status == 1
    assert said in message
