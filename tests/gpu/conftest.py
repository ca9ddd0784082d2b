"""The machine that `make gpu` runs on: its GPU, and an interpreter with PyTorch."""

import ctypes
import os
import subprocess
import sys

import pytest

from tests.gpu.facts import Facts, find

TORCH_PYTHON_VARIABLE = "PLIMSOLL_TORCH_PYTHON"


@pytest.fixture(name="surroundings", scope="session")
def _surroundings() -> dict[str, str]:
    """The environment of programs on this machine; fails where it has no driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.fail(f"this machine has no NVIDIA driver ({error}); run `make gpu` on one that has")
    return dict(os.environ)


@pytest.fixture(name="facts", scope="session")
def _facts(surroundings: dict[str, str]) -> Facts:
    return find(surroundings)


@pytest.fixture(name="torch_python", scope="session")
def _torch_python(surroundings: dict[str, str]) -> str:
    """An interpreter that has PyTorch.

    The fixture fails where there is none, as `make gpu` would pass without it.
    """
    if "PLIMSOLL_EMULATOR" in surroundings:
        pytest.skip("PyTorch's CUDA runtime starts on NVIDIA's own driver alone, and this is the emulator")
    python = os.environ.get(TORCH_PYTHON_VARIABLE, sys.executable)
    found = subprocess.run(
        [python, "-c", "import torch; assert torch.version.cuda, 'torch is built without CUDA'"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if found.returncode != 0:
        pytest.fail(
            f"there is a GPU, but {python} has no PyTorch for it: {found.stderr.strip()[-300:]}\n"
            f"set {TORCH_PYTHON_VARIABLE} to the Python of an environment that has, say of "
            "`uv venv /tmp/torch && uv pip install --python /tmp/torch/bin/python torch numpy`"
        )
    return python
