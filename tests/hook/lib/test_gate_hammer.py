"""Whatever many threads do while the gate changes at random, nothing hangs, breaks or races."""

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from plimsoll.layout import GATE_CONTENDED, GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib import sanitized
from tests.hook.lib.container import Container
from tests.hook.lib.gate import Keeper, Listener, until
from tests.hook.lib.program import Node

SECONDS = 8
THREADS = 6
STATES = (GATE_OPEN, GATE_METERED, GATE_METERED | GATE_CONTENDED, GATE_SHUT)


@pytest.fixture(name="swinging")
def _swinging(gate: Keeper, ear: Listener) -> Iterator[None]:
    """The gate changes at random, and now and then the broker hangs up, until the test ends."""
    is_over, drawn = Event(), random.Random()  # noqa: S311 - not secret

    def swing() -> None:
        hung_up = monotonic()
        while not is_over.wait(drawn.choice((0.0002, 0.002, 0.02))):
            gate.set(drawn.choice(STATES))
            gate.beat()
            if monotonic() - hung_up > 1:
                ear.hang_up()
                hung_up = monotonic()

    thread = Thread(target=swing)
    thread.start()
    yield
    is_over.set()
    thread.join()


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_SHUT)


@pytest.mark.parametrize("sanitizer", sanitized.OPTIONS)
@pytest.mark.usefixtures("swinging")
def test_sanitizers_find_nothing(node: Node, container: Container, tmp_path: Path, sanitizer: str) -> None:
    """Launches, waits, captures, contexts and streams that come and go: all end well at a gate that swings."""
    source = Path(__file__).parent / "programs/gate_hammer.c"
    built = sanitized.build(sanitizer, [source], tmp_path)
    preload = " ".join(map(str, built.preload))
    seed = str(random.SystemRandom().randrange(1 << 20))
    arguments = [seed, str(SECONDS), str(THREADS)]
    with node.run(
        built.program, container.environment, sanitized.ENVIRONMENT, preload=preload, arguments=arguments
    ) as program:
        word, launches = program.answer()
        assert word == "settled"
        assert int(launches) > 0
        slot = container.slot_of(program.pid)
        until(lambda: container.counts().slots[slot].busy_since_ns == 0)
        assert program.end() == 0, program.errors()
    assert "ERROR" not in program.errors(), program.errors()
