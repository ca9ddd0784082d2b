"""A CUDA program in Python that runs what a test sends it, piece by piece, under the real preload.

For what needs structures or threads: the driver's functions are called by ctypes, which looks each up by dlsym as
any program does. Names that a piece defines stay for the next; `programs.calls` has those that are there at first,
and `use` brings those of another module of `programs`.
"""

import json
import select
import subprocess
import sys
import textwrap
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.hook.lib.program import ROOT, Node
from tests.servers.waiting import PATIENCE_S


class Script:
    """One such program; a context manager that ends it."""

    def __init__(self, node: Node, container: dict[str, str], root: Path) -> None:
        self._errors = root / "script-errors"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hook.lib.programs.script"],
                cwd=ROOT,
                env=node.environment(container),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        assert self._line() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # a thread of it never comes back; it shall not outlive the test
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def use(self, module: str) -> None:
        """Have the names of a module of `programs` for all later pieces."""
        self.do(f"from tests.hook.lib.programs.{module} import *")

    def do(self, source: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Run one piece; returns what it left in `answer`.

        Raises:
            AssertionError: it failed, or has not ended within `PATIENCE_S`.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(textwrap.dedent(source)) + "\n")
        return json.loads(self._line())

    def get(self, expression: str) -> Any:  # noqa: ANN401 - likewise
        """The value of an expression."""
        return self.do(f"answer = {expression}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"no answer; standard error: {self._errors.read_text()}"
        return line
