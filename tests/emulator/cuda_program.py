"""CUDA programs on an emulated node: `busy`, and the functions in `programs`, which call the driver over ctypes.

What always holds: each is a process of its own, since the driver's state belongs to a process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tests.servers.waiting import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
LIBRARIES: Final = ROOT / "build" / "emulator"
BUSY: Final = ROOT / "build" / "bin" / "busy"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
CONTEXT_BYTES: Final = 300 * MIB

NODE: Final = """
driver = 570.124.06
cuda = 12.8
[gpu 0]
uuid = GPU-5a1c0d2e-0000-0000-0000-000000000001
model = Test GPU
memory = 8Gi
context = 300Mi
[gpu 1]
uuid = GPU-6b1c0d2e-0000-0000-0000-000000000002
memory = 4Gi
reserved = 1Gi
context = 300Mi
"""


def _command(program: str, *arguments: object) -> list[str]:
    module, function = program.split(".")
    run = [sys.executable, "-m", "tests.programs.run", f"tests.emulator.programs.{module}"]
    return [*run, function, json.dumps(arguments)]


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the state waited for never came"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated node in a folder of its own."""

    config: Path

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a program on this node."""
        return {
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "PLIMSOLL_EMULATOR": str(self.config),
            "LD_LIBRARY_PATH": str(LIBRARIES),
            **more,
        }

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Starts `busy`."""
        return subprocess.Popen(
            [BUSY, *options],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def busy(self, *options: str) -> tuple[int, list[dict[str, Any]]]:
        """Runs `busy` to its end: exit code and phases."""
        done = subprocess.run(
            [BUSY, *options],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def python(self, program: str, *arguments: object, **more: str) -> Any:  # noqa: ANN401 - JSON of any shape
        """Runs a program, named as `module.function`, in an environment with more: what it returned."""
        done = subprocess.run(
            _command(program, *arguments),
            cwd=ROOT,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def background(self, program: str, *arguments: object) -> subprocess.Popen[str]:
        """Starts a program, named as `module.function`, and waits for its first line."""
        process = subprocess.Popen(
            _command(program, *arguments),
            cwd=ROOT,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline(), "the program ended before its first line"
        return process

    @property
    def tool(self) -> Path:
        """The program that prints the book."""
        return LIBRARIES / "book"

    def book(self) -> list[dict[str, Any]]:
        """The emulator's own book, per GPU."""
        done = subprocess.run([self.tool], env=self.environment(), capture_output=True, text=True, check=True)
        return cast("list[dict[str, Any]]", json.loads(done.stdout)["gpus"])

    def used_bytes(self, gpu: int = 0) -> int:
        """The bytes that living processes hold on a GPU."""
        return cast("int", self.book()[gpu]["used_bytes"])
