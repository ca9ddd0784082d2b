"""Programs on an emulated node, for the tests of its NVML.

What always holds: each is a process of its own, with the emulator's libraries on its path from the start, as
on a node. The real `pynvml` reads; `libcuda.so.1` is driven through ctypes. A test sends Python to evaluate and
gets JSON back.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import pytest

ROOT: Final = Path(__file__).parents[2]
LIBRARIES: Final = ROOT / "build" / "emulator"

NODE: Final = """
driver = 570.124.06
cuda = 12.8
sample = 50ms
copy = 64Mi              # slow, so that a small copy keeps the GPU busy for long
[gpu 0]
uuid = GPU-5a1c0d2e-0000-0000-0000-000000000001
model = NVIDIA L4
memory = 24Gi
reserved = 512Mi
context = 300Mi
compute = 8.9
sms = 58
pci = 0000:17:00.0
numa = 0
cpus = 0-3
[gpu 1]
uuid = GPU-5a1c0d2e-0000-0000-0000-000000000002
model = NVIDIA A100-SXM4-80GB
memory = 80Gi
reserved = 1Gi
context = 400Mi
compute = 8.0
sms = 108
pci = 0001:65:00.0
numa = 0
cpus = 4-7,68
[gpu 2]
uuid = GPU-5a1c0d2e-0000-0000-0000-000000000003
model = NVIDIA A100-SXM4-80GB
memory = 80Gi
compute = 8.0
pci = 0001:b3:00.0
numa = 1
cpus = 8-15
[link 0 1]
path = PXB
[link 1 2]
path = NV4
"""

MIB: Final = 1 << 20
COPY_BYTES_PER_S: Final = 64 * MIB


class NvmlRefusedError(Exception):
    """NVML answered with an error.

    Attributes:
        code: the nvmlReturn_t.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


def environment(node_file: Path) -> dict[str, str]:
    """The environment of a process on the emulated node."""
    return os.environ | {"PLIMSOLL_EMULATOR": str(node_file), "LD_LIBRARY_PATH": str(LIBRARIES)}


class Program:
    """A Python process on an emulated node; `n` is pynvml, `gpu(i)` a handle, `Cuda` the driver.

    The value of an expression must be JSON; a statement gives None. Where NVML refuses, `NvmlRefusedError` is raised
    here.
    """

    def __init__(self, node_file: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.emulator.programs.nvml"],
            cwd=ROOT,
            env=environment(node_file),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def __call__(self, code: str) -> Any:  # noqa: ANN401 - JSON
        """Evaluate `code` there and return its value."""
        self.send(code)
        return self.receive()

    def send(self, code: str) -> None:
        """Start an evaluation without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:  # noqa: ANN401 - JSON
        """The value of the evaluation that was sent last."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        reply = json.loads(line)
        assert "failure" not in reply, reply["failure"]
        if "nvml_error" in reply:
            raise NvmlRefusedError(reply["nvml_error"])
        return reply["value"]

    def kill(self) -> None:
        """End it by SIGKILL; it is gone when this returns."""
        self.process.kill()
        self.process.wait()


def tool(node_file: Path, *arguments: str) -> None:
    """Run the emulator's book tool, which injects what hardware does by itself."""
    subprocess.run([LIBRARIES / "book", *arguments], env=environment(node_file), check=True)


def refusal(program: Program, code: str) -> int:
    """The nvmlReturn_t with which NVML refuses."""
    with pytest.raises(NvmlRefusedError) as refused:
        program(code)
    return refused.value.code
