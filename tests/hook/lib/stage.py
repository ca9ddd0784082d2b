"""A program at a gate that the test opens and shuts, with both books on what it does."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import Keeper, Listener, listening, until
from tests.hook.lib.launches import CASES, slow_node
from tests.hook.lib.program import MIB, Node
from tests.hook.lib.script import Script


@dataclass(frozen=True, slots=True)
class Stage:
    """A program that can make every call, its gate, and the books on it."""

    node: Node
    container: Container
    keeper: Keeper
    listener: Listener
    script: Script

    @property
    def unfinished_ns(self) -> int:
        """For how long the program has had unfinished work, by the emulator's book."""
        (process,) = self.node.book()["gpus"][0]["processes"]
        return int(process["unfinished_ns"])

    @property
    def busy_ns(self) -> int:
        """The same as the library has metered it, once nothing is under way any more."""
        slot = self.container.slot_of(self.script.pid)
        until(lambda: self.container.counts().slots[slot].busy_since_ns == 0)
        return int(self.container.counts().slots[slot].busy_ns)

    def settle(self) -> tuple[int, int]:
        """Let all work end; returns what both books say then."""
        self.script.do("sync()")
        return self.unfinished_ns, self.busy_ns


@contextlib.contextmanager
def beating(keeper: Keeper) -> Iterator[None]:
    """Show that the broker lives for the length of a block."""
    is_over = Event()

    def beat() -> None:
        while not is_over.wait(0.5):
            keeper.beat()

    thread = Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def staged(root: Path, state: int, extra: dict[str, str] | None = None) -> Iterator[Stage]:
    """A program that has made its contexts and cases, its gate in this state."""
    node = slow_node(root)
    container = Container(root / "container")
    container.write(limits_of([Line(node.uuids[0], 1024 * MIB)]))
    keeper = Keeper(container, state)
    environment = container.environment | (extra or {})
    with beating(keeper), listening(container) as listener, Script(node, environment, root) as script:
        script.do(CASES)
        yield Stage(node, container, keeper, listener, script)
