"""The gate does not affect stream captures: nothing waits inside, nothing is recorded, none is broken."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.gate import until
from tests.hook.lib.program import SUCCESS
from tests.hook.lib.stage import Stage, staged

SHORT_NS, LONG_NS = 50_000, 600_000_000
IN_ALL_NS = 34_000_000
TRIES = 10
"""A launching thread that loses the processor is metered meanwhile: not every attempt needs to be exact."""


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path, GATE_OPEN) as stage:
        stage.script.use("captures")
        yield stage


@pytest.mark.parametrize("state", [GATE_OPEN, GATE_METERED, GATE_SHUT])
def test_a_capture_goes_on_under_any_gate(stage: Stage, state: int) -> None:
    """A capture under any gate does not wait and has the same nodes, in every mode.

    Only the graph's launch waits.
    """
    stage.gate.set(GATE_METERED)
    before_ns, _ = stage.settle()
    stage.gate.set(state)
    for mode in range(3):
        for arguments in (f"stream, {mode}", f"None, {mode}, '_ptsz'"):
            assert stage.script.get(f"is_good(*capture({arguments}))")
    assert stage.executed_ns == before_ns
    stage.script.do("thread = launch_captured()")
    if state == GATE_SHUT:
        until(lambda: stage.work.waiting == 1)
        assert stage.script.get("ended") == []
        assert stage.executed_ns == before_ns
        stage.gate.set(GATE_METERED)
    assert stage.script.get("thread.join(60) or ended") == [SUCCESS]
    assert stage.settle()[0] >= before_ns + 4_000_000


def test_a_graph_is_metered_by_what_it_holds_now(stage: Stage) -> None:
    """A graph whose kernel is exchanged between launches is charged for each execution's own length."""
    stage.gate.set(GATE_METERED)
    stage.script.do("exchange = Exchange()")
    told_ns: list[int] = []
    while not told_ns or told_ns[-1] != pytest.approx(IN_ALL_NS, rel=0.1):
        assert len(told_ns) < TRIES, f"told {told_ns} for {IN_ALL_NS}"
        executed_ns, before_ns = stage.settle()
        stage.script.do("for ms in (1, 20, 2, 10, 1): exchange.launch(ms)")
        after_executed_ns, after_ns = stage.settle()
        assert after_executed_ns - executed_ns == IN_ALL_NS
        told_ns.append(after_ns - before_ns)


def test_a_gate_that_swings_breaks_no_capture(stage: Stage) -> None:
    """Captures begin and go on undisturbed while the library asks the driver about queued work."""
    stage.script.do("threads = [aside(draw), aside(work)]")
    for _ in range(150):
        for state in (GATE_OPEN, GATE_METERED, GATE_SHUT):
            stage.gate.set(state)
            sleep(0.004)
    stage.gate.set(GATE_OPEN)
    stage.script.do("over.set()\nfor thread in threads: thread.join(60)")
    assert stage.script.get("len(seen)") > 100
    assert stage.script.get("seen.count(False)") == 0


@pytest.mark.parametrize(
    "ending",
    [
        "assert is_good(*capture(stream, 0)); assert is_good(*capture(None, 0, '_ptsz'))",
        "begin(stream); must('cuStreamDestroy_v2', stream)",
        """
            assert call('cuStreamBeginCapture_v2', None, 0) != 0; begin(stream)
            assert call('cuStreamBeginCapture_v2', stream, 0) != 0; end(stream)
        """,
        "begin(blocking); assert call('cuStreamSynchronize', blocking) != 0; assert end(blocking) != 0",
        "assert end(stream) != 0; begin(stream); end(stream)",
        """
            extra = make('cuCtxCreate_v2', 0, 0); begin(make('cuStreamCreate', 1))
            must('cuCtxDestroy_v2', extra); must('cuCtxSetCurrent', here)
        """,
    ],
    ids=["ended", "destroyed", "refused", "broken", "never begun", "with its context"],
)
def test_a_capture_that_is_over_counts_no_more(stage: Stage, ending: str) -> None:
    """After a capture, however it ended, a long launch behind short ones is metered to its end."""
    stage.gate.set(GATE_METERED)
    stage.script.do(ending)
    stage.script.do(f"launch_rows({SHORT_NS}, {LONG_NS})")
    assert stage.told_ns == pytest.approx(LONG_NS, rel=0.1)


def test_waiting_elsewhere_breaks_no_capture(stage: Stage) -> None:
    """Work queued in the legacy stream before a capture is not followed up during that capture."""
    stage.gate.set(GATE_METERED)
    waits, good = stage.script.get("capture_while_another_waits(20)")
    assert waits == good == [True] * 20
