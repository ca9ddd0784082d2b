"""Programs that hand memory to each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, Node
from tests.hook.lib.script import Script

Agree = Callable[[int], None]
SHARING = "from tests.programs.sharing import *"


@contextmanager
def sharing(node: Node, container: Container, root: Path) -> Iterator[Script]:
    """A program in a container with a context on the first GPU, that can share memory with others."""
    with Script(node, container.environment, root) as script:
        script.do(SHARING)
        yield script


def assert_agree(script: Script, node: Node, container: Container, mib: int) -> None:
    """The word and the emulator's own book say this."""
    assert container.used_bytes() == node.held_bytes({script.pid}) == mib * MIB
