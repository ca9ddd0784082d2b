"""The gate does not affect stream captures: nothing stands inside, nothing is recorded, none is broken."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.gate import until
from tests.hook.lib.program import SUCCESS
from tests.hook.lib.stage import Stage, staged

NODES = 4
SHORT_NS, LONG_NS = 50_000, 600_000_000
IN_ALL_NS = 34_000_000
TRIES = 10
"""A launching thread that loses the processor is metered meanwhile: not every attempt needs to be exact."""

CAPTURING = f"""
FORK = make("cuEventCreate", 2)
JOIN = make("cuEventCreate", 2)
side = make("cuStreamCreate", 0)
blocking = make("cuStreamCreate", 0)


def nodes_of(graph):
    count = SIZE()
    must("cuGraphGetNodes", graph, None, byref(count))
    return count.value


def capture(on, mode, form=""):
    # Two kernels, a fill and a copy, over two streams.
    drawn = U64()
    codes = [call("cuStreamBeginCapture_v2" + form, on, mode),
             call("cuLaunchKernel" + form, busy, 1, 1, 1, 1, 1, 1, 0, on, TWO_MS, None),
             call("cuEventRecord" + form, FORK, on), call("cuStreamWaitEvent", side, FORK, 0),
             call("cuMemsetD8Async", U64(one), 1, SIZE(64), side),
             call("cuMemcpyDtoDAsync_v2", U64(other), U64(one), SIZE(64), side),
             call("cuEventRecord", JOIN, side), call("cuStreamWaitEvent" + form, on, JOIN, 0),
             call("cuLaunchKernel" + form, busy, 1, 1, 1, 1, 1, 1, 0, on, TWO_MS, None),
             call("cuStreamEndCapture" + form, on, byref(drawn))]
    return codes, drawn


def is_good(codes, drawn):
    return not any(codes) and nodes_of(drawn) == {NODES}
"""


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path, GATE_OPEN) as stage:
        stage.script.do(CAPTURING)
        yield stage


@pytest.mark.parametrize("state", [GATE_OPEN, GATE_METERED, GATE_SHUT])
def test_a_capture_goes_on_under_any_gate(stage: Stage, state: int) -> None:
    """A capture under any gate does not stand and has the same nodes, in every mode.

    Only the graph's launch stands.
    """
    stage.gate.set(GATE_METERED)
    before_ns, _ = stage.settle()
    stage.gate.set(state)
    for mode in range(3):
        for arguments in (f"stream, {mode}", f"None, {mode}, '_ptsz'"):
            assert stage.script.get(f"is_good(*capture({arguments}))")
    assert stage.executed_ns == before_ns
    stage.script.do("""
        exe = make("cuGraphInstantiateWithFlags", capture(stream, 0)[1], U64(0)); codes = []
        def run():
            must("cuCtxSetCurrent", here)
            codes.append(call("cuGraphLaunch", exe, stream))
        thread = threading.Thread(target=run); thread.start()
    """)
    if state == GATE_SHUT:
        until(lambda: stage.work.standing == 1)
        assert stage.script.get("codes") == []
        assert stage.executed_ns == before_ns
        stage.gate.set(GATE_METERED)
    assert stage.script.get("thread.join(60) or codes") == [SUCCESS]
    assert stage.settle()[0] >= before_ns + 4_000_000


def test_a_graph_is_metered_by_what_it_holds_now(stage: Stage) -> None:
    """A graph whose kernel is exchanged between launches is charged for each execution's own length."""
    stage.gate.set(GATE_METERED)
    stage.script.do("""
        class Kernel(ctypes.Structure):
            _fields_ = [("function", U64), ("sizes", UINT * 7), ("parameters", PTR), ("extra", PTR), ("kernel", PTR),
                        ("context", PTR)]
        def kernel_of(ns):
            parameters = length(ns)
            kept.append(parameters)
            return Kernel(busy.value, sizes, ctypes.addressof(parameters))
        drawn, point = make("cuGraphCreate", 0), U64()
        must("cuGraphAddKernelNode_v2", byref(point), drawn, None, SIZE(0), byref(kernel_of(1_000_000)))
        exe = make("cuGraphInstantiateWithFlags", drawn, U64(0))
    """)
    told_ns: list[int] = []
    while not told_ns or told_ns[-1] != pytest.approx(IN_ALL_NS, rel=0.1):
        assert len(told_ns) < TRIES, f"told {told_ns} for {IN_ALL_NS}"
        executed_ns, before_ns = stage.settle()
        stage.script.do("""
            for ms in (1, 20, 2, 10, 1):
                must("cuGraphExecKernelNodeSetParams_v2", exe, point, byref(kernel_of(ms * 1_000_000)))
                must("cuGraphLaunch", exe, stream)
        """)
        after_executed_ns, after_ns = stage.settle()
        assert after_executed_ns - executed_ns == IN_ALL_NS
        told_ns.append(after_ns - before_ns)


def test_a_gate_that_swings_breaks_no_capture(stage: Stage) -> None:
    """Captures begin and go on undisturbed while the library asks the driver about queued work."""
    stage.script.do("""
        is_over, seen = False, []
        def draw():
            must("cuCtxSetCurrent", here)
            while not is_over:
                seen.append(is_good(*capture(stream, 2)))
        def work():
            mine = make("cuStreamCreate", 1)
            must("cuCtxSetCurrent", here)
            while not is_over:
                must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, mine, length(100_000), None)
                must("cuStreamSynchronize", mine)
        must("cuCtxSetCurrent", here)
        threads = [threading.Thread(target=each) for each in (draw, work)]
        for thread in threads: thread.start()
    """)
    for _ in range(150):
        for state in (GATE_OPEN, GATE_METERED, GATE_SHUT):
            stage.gate.set(state)
            sleep(0.004)
    stage.gate.set(GATE_OPEN)
    stage.script.do("is_over = True\nfor thread in threads: thread.join(60)")
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
        "assert call('cuStreamEndCapture', stream, byref(drawn)) != 0; begin(stream); end(stream)",
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
    stage.script.do("""
        drawn = U64()
        def begin(on): must("cuStreamBeginCapture_v2", on, 0)
        def end(on): return call("cuStreamEndCapture", on, byref(drawn))
    """)
    stage.script.do(ending)
    stage.script.do(f"""
        mine, short, long = make("cuStreamCreate", 1), length({SHORT_NS}), length({LONG_NS})
        def launch_row(row):
            for each in row:
                must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, mine, each, None)
        launch_row([short] * 40)
        must("cuStreamSynchronize", mine)
        launch_row([short] * 5 + [long])
    """)
    assert stage.told_ns == pytest.approx(LONG_NS, rel=0.1)


def test_waiting_elsewhere_breaks_no_capture(stage: Stage) -> None:
    """Work queued in the legacy stream before a capture is not followed up during that capture."""
    stage.gate.set(GATE_METERED)
    stage.script.do("""
        done = make("cuEventCreate", 0)
        must("cuEventRecord", done, None)
        sync()
        short, waits = length(20_000), []
        def wait():
            must("cuCtxSetCurrent", here)
            waits.append(call("cuEventSynchronize", done))
        good = []
        for _ in range(20):
            for _ in range(40):
                must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, None, short, None)
            drawn = U64()
            must("cuStreamBeginCapture_v2", blocking, 1)
            thread = threading.Thread(target=wait); thread.start(); thread.join(60)
            codes = [call("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, blocking, short, None),
                     call("cuStreamEndCapture", blocking, byref(drawn))]
            good.append(not any(codes) and nodes_of(drawn) == 1)
            sync()
    """)
    assert stage.script.get("waits.count(0)") == 20
    assert stage.script.get("good.count(True)") == 20
