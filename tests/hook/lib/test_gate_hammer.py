"""For any work of many threads under a gate that changes at random, nothing hangs, breaks or races."""

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib import sanitized
from tests.hook.lib.container import Container, Line
from tests.hook.lib.gate import GateWriter, until
from tests.hook.lib.program import MIB, Node

GATE = GATE_SHUT


SECONDS = 8
THREADS = 6
STATES = (GATE_OPEN, GATE_METERED, GATE_SHUT)


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    """Contexts cost little, so that there may be many of them."""
    return Node(tmp_path, gpu_count=1, memory_mib=2048, context_mib=16)


@pytest.fixture(name="lines")
def _lines(node: Node) -> list[Line]:
    return [Line(node.uuids[0], 1024 * MIB, 16 * MIB)]


@pytest.fixture(name="swinging")
def _swinging(gate: GateWriter) -> Iterator[None]:
    """The gate changes at random, and more or fewer share, until the test ends."""
    is_over, drawn = Event(), random.Random()  # noqa: S311 - not secret

    def swing() -> None:
        while not is_over.wait(drawn.choice((0.0002, 0.002, 0.02))):
            gate.share_with(drawn.choice((1, 2, 5)))
            gate.set(drawn.choice(STATES))
            gate.beat()

    thread = Thread(target=swing)
    thread.start()
    yield
    is_over.set()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", sanitized.RUNTIMES)
@pytest.mark.usefixtures("swinging")
def test_sanitizers_find_nothing(node: Node, container: Container, sanitizer: str) -> None:
    """Launches, waits, captures, blocked streams, and contexts that come and go end well at a swinging gate."""
    built = sanitized.built(sanitizer)
    preload = " ".join(map(str, built.preload))
    seed = str(random.SystemRandom().randrange(1 << 20))
    arguments = [seed, str(SECONDS), str(THREADS)]
    with node.run(
        built.folder / "gate_hammer",
        container.environment,
        sanitized.ENVIRONMENT,
        preload=preload,
        arguments=arguments,
    ) as program:
        word, launches = program.answer()
        assert word == "settled"
        assert int(launches) > 0
        slot = container.slot_of(program.pid)
        until(lambda: (work := container.counts().works[slot].gpus[0]).launched_ns == work.standing == 0)
        assert program.end() == 0, program.errors()
    assert "ERROR" not in program.errors(), program.errors()
