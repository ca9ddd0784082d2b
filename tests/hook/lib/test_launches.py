"""Every function that launches waits at the gate, and its execution is metered."""

import ctypes
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_SHUT, Counts, SlotWork, Work
from tests.hook.lib.gate import until
from tests.hook.lib.launches import another_driver, hooks_of
from tests.hook.lib.program import SUCCESS
from tests.hook.lib.stage import Stage, staged

LAUNCHES, SYNCS = hooks_of("LAUNCH"), hooks_of("SYNC")
ROUNDS = 3
QUIET_S = 60.0
"""The longest wait for a moment in which the launching thread keeps its processor."""
WAITS = 20
DOZING_S = 0.02
"""The time for which a launch that must wait is watched."""


@pytest.fixture(name="stage", scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("launches")
    with staged(root, GATE_METERED, another_driver(root, "newer")) as stage:
        yield stage


def test_every_launch_and_every_wait_has_a_case(stage: Stage) -> None:
    """Each function that hooks.h calls a launch or a synchronisation has a case in this test."""
    assert sorted(stage.script.get("list(launches)")) == sorted(LAUNCHES)
    assert sorted(stage.script.get("list(syncs)")) == sorted(SYNCS)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_stands_while_the_gate_is_shut(stage: Stage, name: str) -> None:
    """Behind a shut gate the call does not return and the GPU gets no work. Once opened, the call has its effect."""
    for stream in stage.script.get(f"streams_of({name!r})"):
        stage.gate.set(GATE_METERED)
        before_ns, _ = stage.settle()
        stage.gate.set(GATE_SHUT)
        stage.script.do(
            f"codes = []; thread = threading.Thread(target=lambda: codes.append(launch({name!r}, {stream!r})))\n"
            "thread.start()"
        )
        until(lambda: stage.work.waiting == 1)
        sleep(DOZING_S)
        assert stage.script.get("codes") == []
        assert stage.executed_ns == before_ns
        stage.gate.set(GATE_METERED)
        assert stage.script.get("thread.join(60) or codes") == [SUCCESS]
        assert stage.settle()[0] > before_ns + 1_000_000


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_metered_by_what_it_executes(stage: Stage, name: str) -> None:
    """Behind a metered gate the page has the time in which the GPU executed the launch."""
    stage.gate.set(GATE_METERED)
    for stream in stage.script.get(f"streams_of({name!r})"):
        off, until_s = [_off(stage, name, stream)], monotonic() + QUIET_S
        while abs(off[-1]) > 0.1:
            assert monotonic() < until_s, f"told that much more than executed, each time: {off}"
            off.append(_off(stage, name, stream))


def _off(stage: Stage, name: str, stream: str) -> float:
    """Launch some kernels; returns by which part the recorded time exceeds the executed time.

    Where the launching thread loses the processor between an event of the library and the launch, that time counts.
    """
    executed_ns, told_ns = stage.settle()
    assert stage.script.get(f"[launch({name!r}, {stream!r}) for _ in range({ROUNDS})]") == [SUCCESS] * ROUNDS
    executed_ns, told_ns = (
        after - before for after, before in zip(stage.settle(), (executed_ns, told_ns), strict=True)
    )
    assert executed_ns > ROUNDS * 1_000_000
    return told_ns / executed_ns - 1


@pytest.mark.parametrize("name", SYNCS)
def test_waiting_for_work_ends_the_burst(stage: Stage, name: str) -> None:
    """After a call that waits, or a query that finds the work done, the page has no burst."""
    stage.gate.set(GATE_METERED)
    stage.settle()
    slot = stage.container.slot_of(stage.script.pid)
    word = (
        Counts.works.offset + slot * ctypes.sizeof(SlotWork) + SlotWork.gpus.offset + Work.launched_ns.offset
    )
    closed = stage.script.do(f"""
        closed, since = [], word_of_counts({word})
        for _ in range({WAITS}):
            wait_by({name!r})
            closed.append(since.value == 0)
        answer = sum(closed)
    """)
    assert closed > WAITS / 2
