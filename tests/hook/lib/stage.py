"""A program at a gate that the test opens and shuts, with both books on what it does."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plimsoll.broker.pages import Work
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import GateWriter, beating, until
from tests.hook.lib.launches import slow_node
from tests.hook.lib.program import MIB, Node
from tests.hook.lib.script import Script


@dataclass(frozen=True, slots=True)
class Stage:
    """A program that can make every call, its gate, and the books on it."""

    node: Node
    container: Container
    gate: GateWriter
    script: Script

    @property
    def executed_ns(self) -> int:
        """For how long the GPU has executed work of the program, by the emulator's book."""
        (process,) = self.node.book()["gpus"][0]["processes"]
        return int(process["busy_ns"])

    @property
    def work(self) -> Work:
        """The words in which the library records the program's work."""
        work: Work = self.container.counts().works[self.container.slot_of(self.script.pid)].gpus[0]
        return work

    @property
    def told_ns(self) -> int:
        """The same as `executed_ns` by the library, once nothing is under way any more."""
        until(lambda: self.work.launched_ns == 0)
        work = self.work
        return int(work.sure_ns + work.sliced_ns)

    def settle(self) -> tuple[int, int]:
        """Let all work end; returns what both books say then."""
        self.script.do("sync()")
        return self.executed_ns, self.told_ns


@contextlib.contextmanager
def staged(root: Path, state: int, extra: dict[str, str] | None = None) -> Iterator[Stage]:
    """A program that has made its contexts and cases, its gate in this state."""
    node = slow_node(root)
    container = Container(root / "container")
    container.write(limits_of([Line(node.uuids[0], 1024 * MIB)]))
    gate = GateWriter(container, state)
    environment = container.environment | (extra or {})
    with beating(gate), Script(node, environment, root) as script:
        script.use("cases")
        yield Stage(node, container, gate, script)
