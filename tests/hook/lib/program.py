"""A CUDA program that obeys a test, line by line, under the real preload and over the emulated driver."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "build/hook/libplimsoll.so"
EMULATOR = ROOT / "build/emulator"

SUCCESS, OUT_OF_MEMORY, NOT_INITIALIZED, NOT_FOUND, NOT_READY = 0, 2, 3, 500, 802
"""Results of the CUDA driver."""

MIB = 1 << 20


def compiled(name: str) -> Path:
    """A program that `make native` compiled for tests and benchmarks (`tests/build.mk`)."""
    program = ROOT / "build/programs" / name
    assert program.exists(), f"{program} is missing: run `make native` first"
    return program


def look_command(what: str, *arguments: object) -> list[str]:
    """The program that prints a look at NVML, to be run in `ROOT`."""
    return [sys.executable, "-m", "tests.hook.lib.programs.looks", what, json.dumps(arguments)]


class Program:
    """One running `asker`; a context manager that ends it."""

    def __init__(
        self, path: Path, environment: dict[str, str], errors: Path, arguments: Sequence[str] = ()
    ) -> None:
        self._errors = errors
        self._heard = b""  # what the program wrote past the last answer
        with errors.open("wb") as error_file:
            self._process = subprocess.Popen(
                [path, *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error_file,
                bufsize=0,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def tell(self, command: str) -> None:
        """Give a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")

    def answer(self) -> list[str]:
        """The words of the next answer."""
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
            assert ready, f"no answer within {PATIENCE_S} s; standard error: {self.errors()}"
            words = os.read(self._process.stdout.fileno(), 1 << 16)
            assert words, f"the program ended with {self._process.wait()}; standard error: {self.errors()}"
            self._heard += words
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode().split()

    def words(self, command: str) -> list[str]:
        """Give a command and return the words of its answer."""
        self.tell(command)
        return self.answer()

    def ask(self, command: str) -> list[int]:
        """Give a command and return the numbers of its answer."""
        return [int(word) for word in self.words(command)]

    def start(self, gpu: int = 0) -> None:
        """Load the driver, initialise it and make a primary context current."""
        assert self.ask("load") == [0]
        assert self.ask("init")[0] == SUCCESS
        assert self.ask(f"retain {gpu}") == [SUCCESS]

    def alloc(self, mib: int, function: str = "cuMemAlloc_v2", rest: str = "") -> tuple[int, int]:
        """Allocate; returns the result and the pointer or handle."""
        result, handle, _ = self.ask(f"alloc {function} {mib * MIB} {rest}")
        return result, handle

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def errors(self) -> str:
        """The text on its standard error so far."""
        return self._errors.read_text()

    def kill(self) -> None:
        """End it by SIGKILL and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Close its input and wait; returns its exit code."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()  # it shall not outlive the test
            raise
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code


class Node:
    """An emulated node, and how to start a program on it."""

    def __init__(self, root: Path, gpu_count: int, memory_mib: int, context_mib: int) -> None:
        self._root = root
        self.file = root / "node"
        self.uuids = [f"GPU-5a1c0d2e-0000-4000-8000-{index:012x}" for index in range(gpu_count)]
        sections = [
            f"[gpu {index}]\nuuid = {uuid}\nmemory = {memory_mib}Mi\nreserved = 64Mi\ncontext = {context_mib}Mi\n"
            for index, uuid in enumerate(self.uuids)
        ]
        self.file.write_text("\n".join(sections))
        self._started = 0

    def environment(self, *sources: dict[str, str], preload: str | None = str(LIBRARY)) -> dict[str, str]:
        """The environment of a program on this node; without `preload` it is not hooked."""
        environment = {
            "PATH": os.environ["PATH"],
            "PLIMSOLL_EMULATOR": str(self.file),
            "LD_LIBRARY_PATH": str(EMULATOR),
        }
        if preload is not None:
            environment["LD_PRELOAD"] = preload
        for source in sources:
            environment |= source
        return environment

    def run(
        self,
        path: Path,
        *sources: dict[str, str],
        preload: str | None = str(LIBRARY),
        arguments: Sequence[str] = (),
    ) -> Program:
        """Start an `asker`, or another program of its kind."""
        self._started += 1
        errors = self._root / f"errors-{self._started}"
        return Program(path, self.environment(*sources, preload=preload), errors, arguments)

    def book(self) -> dict[str, Any]:
        """The emulator's own book: what every process really holds."""
        output = subprocess.run(
            [EMULATOR / "book"],
            env=self.environment(preload=None),
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        book: dict[str, Any] = json.loads(output)
        return book

    def held_bytes(self, pids: set[int], gpu: int = 0) -> int:
        """The bytes that these processes together really hold on a GPU, contexts included."""
        processes = self.book()["gpus"][gpu]["processes"]
        return sum(int(process["used_bytes"]) for process in processes if process["pid"] in pids)
