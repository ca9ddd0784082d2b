"""Nothing gets past the gate: every function that launches waits there, and its time is metered."""

import ctypes
from collections.abc import Iterator
from time import sleep

import pytest

from plimsoll.layout import GATE_METERED, GATE_SHUT, Counts, Slot
from tests.hook.lib.launches import hooks_of, newer_driver
from tests.hook.lib.program import SUCCESS
from tests.hook.lib.stage import Stage, staged

LAUNCHES, SYNCS = hooks_of("LAUNCH"), hooks_of("SYNC")
ROUNDS = 3
TRIES = 10
WAITS = 20
DOZING_S = 0.02
"""How long a launch that has said it waits is watched doing so."""


@pytest.fixture(name="stage", scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("launches")
    with staged(root, GATE_METERED, newer_driver(root)) as stage:
        yield stage


def test_every_launch_and_every_wait_has_a_case(stage: Stage) -> None:
    """A function that hooks.h calls a launch or a synchronisation is called below, or this fails."""
    assert sorted(stage.script.get("list(launches)")) == sorted(LAUNCHES)
    assert sorted(stage.script.get("list(syncs)")) == sorted(SYNCS)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_waits_while_the_gate_is_shut(stage: Stage, name: str) -> None:
    """Under a shut gate the call does not come back and the GPU gets nothing; opened, it does what it does."""
    for stream in stage.script.get(f"streams_of({name!r})"):
        stage.keeper.set(GATE_METERED)
        before_ns, _ = stage.settle()
        shut = stage.keeper.set(GATE_SHUT)
        stage.script.do(
            f"codes = []; thread = threading.Thread(target=lambda: codes.append(launch({name!r}, {stream!r})))\n"
            "thread.start()"
        )
        stage.listener.wanted(shut)
        sleep(DOZING_S)
        assert stage.script.get("codes") == []
        assert stage.unfinished_ns == before_ns
        stage.keeper.set(GATE_METERED)
        assert stage.script.get("thread.join(60) or codes") == [SUCCESS]
        assert stage.settle()[0] > before_ns + 1_000_000


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_metered_by_its_time(stage: Stage, name: str) -> None:
    """Under a metered gate the library counts the time that the device was busy with it, and hardly more."""
    stage.keeper.set(GATE_METERED)
    for stream in stage.script.get(f"streams_of({name!r})"):
        over_ns = [_over_ns(stage, name, stream)]
        # Who waits within the call is seen to be done when it comes back.
        while stream != "none" and over_ns[-1] > 1_000_000:
            assert len(over_ns) < TRIES, f"metered that much more than the device had: {over_ns}"
            over_ns.append(_over_ns(stage, name, stream))


def _over_ns(stage: Stage, name: str, stream: str) -> float:
    """Launch some: by how much more than the device's time and a tenth they are metered, and never by much less.

    Where the launching thread loses the processor between an event of the library and the launch, that time counts.
    """
    unfinished_ns, busy_ns = stage.settle()
    assert stage.script.get(f"[launch({name!r}, {stream!r}) for _ in range({ROUNDS})]") == [SUCCESS] * ROUNDS
    true_ns, metered_ns = (
        after - before for after, before in zip(stage.settle(), (unfinished_ns, busy_ns), strict=True)
    )
    assert true_ns > ROUNDS * 1_000_000
    assert metered_ns > true_ns * 0.9
    return metered_ns - true_ns * 1.1


@pytest.mark.parametrize("name", SYNCS)
def test_waiting_for_work_ends_the_burst(stage: Stage, name: str) -> None:
    """When a call that waits comes back, or one that asks says yes, the work is on the books already."""
    stage.keeper.set(GATE_METERED)
    stage.settle()
    slot = stage.container.slot_of(stage.script.pid)
    word = Counts.slots.offset + slot * ctypes.sizeof(Slot) + Slot.busy_since_ns.offset
    closed = stage.script.do(f"""
        closed, since = [], word_of_counts({word})
        for _ in range({WAITS}):
            wait_by({name!r})
            closed.append(since.value == 0)
        answer = sum(closed)
    """)
    assert closed > WAITS / 2
