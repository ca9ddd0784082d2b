"""A program that launches kernels of known length under a gate that the test writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plimsoll.broker.pages import Work
from tests.hook.lib.container import Container
from tests.hook.lib.program import Node
from tests.hook.lib.script import Script
from tests.servers.waiting import PATIENCE_S


class Launcher(Script):
    """Such a program."""

    def __init__(self, node: Node, container: Container, root: Path) -> None:
        super().__init__(node, container.environment, root)
        self._node, self._container = node, container
        self.use("launching")

    def _booked(self, gpu: int) -> dict[str, Any]:
        processes = self._node.book()["gpus"][gpu]["processes"]
        return next(process for process in processes if process["pid"] == self.pid)

    def ended(self) -> int:
        """Let it come to its end; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def launches(self, gpu: int = 0) -> int:
        """Kernels that the driver was given, by its own book."""
        return int(self._booked(gpu)["launches"])

    def executed_ns(self, gpu: int = 0) -> int:
        """For how long the GPU executed its work, by the driver's own book."""
        return int(self._booked(gpu)["busy_ns"])

    def waited_for_cpu_ns(self) -> int:
        """How long its threads were ready to run while the cores did other work, by the kernel's count."""
        delays = (path.read_text().split()[1] for path in Path(f"/proc/{self.pid}/task").glob("*/schedstat"))
        return sum(map(int, delays))

    def work(self, gpu: int = 0) -> Work:
        """The words in which the library records its work there."""
        work: Work = self._container.counts().works[self._container.slot_of(self.pid)].gpus[gpu]
        return work

    def stands_idle(self, threads: int = 1, gpu: int = 0) -> bool:
        """Whether this many threads stand while nothing executes; in one copy, as a burst may begin in between."""
        work = self.work(gpu)
        return (work.launched_ns, work.standing) == (0, threads)

    def told_ns(self, gpu: int = 0) -> int:
        """How long the GPU executed its ended bursts, as the library reports it."""
        work = self.work(gpu)
        return int(work.sure_ns + work.sliced_ns)


@contextmanager
def launching(node: Node, container: Container, root: Path) -> Iterator[Launcher]:
    """A launcher with a context on the first GPU."""
    with Launcher(node, container, root) as launcher:
        yield launcher
