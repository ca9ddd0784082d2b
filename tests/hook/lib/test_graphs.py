"""Memory that graphs allocate counts from their launch, when the driver takes it, until it is trimmed."""

import pytest

from tests.hook.lib.program import OUT_OF_MEMORY, SUCCESS
from tests.hook.lib.script import Script
from tests.hook.lib.shared import Agree

USED = ("graphs",)


@pytest.mark.parametrize("kind", ["by_hand", "captured"])
def test_a_graph_counts_from_its_launch_to_the_trim(script: Script, kind: str, agree: Agree) -> None:
    """Making and instantiating a graph costs nothing, its launch costs the mapped memory, and a trim frees all."""
    script.do(f"whole, address = {kind}(100 * MIB)")
    agree(64)
    assert script.get("launch(whole)") == SUCCESS
    agree(64 + 100)
    assert script.get("launch(whole)") == SUCCESS
    script.do("must('cuStreamSynchronize', stream); must('cuGraphExecDestroy', whole)")
    agree(64 + 100)
    script.do("must('cuDeviceGraphMemTrim', 0)")
    agree(64)


@pytest.mark.parametrize("start", ["launch(whole)", "call('cuGraphUpload', whole, stream)"])
def test_a_graph_past_the_line_does_not_run(script: Script, start: str, agree: Agree) -> None:
    """The launch or upload of a captured or hand-made graph past the line is out of memory."""
    for kind in ("by_hand", "captured"):
        script.do(f"whole, address = {kind}(300 * MIB)")
        assert script.get(start) == OUT_OF_MEMORY
        agree(64)
    script.do("whole, address = by_hand(256 * MIB)")
    assert script.get(start) == SUCCESS
    agree(64 + 256)


def test_graphs_that_share_memory_are_counted_once(script: Script, agree: Agree) -> None:
    """Memory that the driver maps for two graphs in turn counts once, and an ended graph's memory serves another."""
    script.do("one, _ = by_hand(100 * MIB); two, _ = by_hand(100 * MIB)")
    assert script.get("[launch(one), launch(two), launch(one)]") == [SUCCESS] * 3
    agree(64 + 100)
    script.do("must('cuStreamSynchronize', stream); large, _ = by_hand(256 * MIB)")
    assert script.get("launch(large)") == SUCCESS
    agree(64 + 256)


def test_an_allocation_takes_precedence_over_idle_graphs(script: Script, agree: Agree) -> None:
    """Idle memory of graphs is trimmed before an allocation is refused."""
    script.do("whole, _ = by_hand(200 * MIB); launch(whole); must('cuStreamSynchronize', stream)")
    script.do("must('cuGraphExecDestroy', whole)")
    assert script.get("alloc(200 * MIB)[0]") == SUCCESS
    agree(64 + 200)


def test_what_a_graph_left_alive_stays_counted(script: Script, agree: Agree) -> None:
    """An allocation that is freed outside its graph counts until then, through any destroy or trim."""
    script.do("whole, address = by_hand(100 * MIB, freed=False)")
    assert script.get("launch(whole)") == SUCCESS
    script.do("must('cuStreamSynchronize', stream); must('cuGraphExecDestroy', whole)")
    script.do("must('cuDeviceGraphMemTrim', 0)")
    agree(64 + 100)
    script.do("large, _ = by_hand(160 * MIB)")
    assert script.get("launch(large)") == OUT_OF_MEMORY
    script.do("free(address, stream); must('cuStreamSynchronize', stream); must('cuDeviceGraphMemTrim', 0)")
    agree(64)


def test_a_reset_ends_what_graphs_hold(script: Script, agree: Agree) -> None:
    """The pool for graphs goes with the primary context."""
    script.do("whole, _ = by_hand(100 * MIB); launch(whole); must('cuStreamSynchronize', stream)")
    script.do("must('cuDevicePrimaryCtxReset_v2', 0)")
    agree(0)
