"""Memory that graphs allocate counts from their launch, when the driver takes it, until it is trimmed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script


@pytest.fixture(name="script")
def _script(node: Node, container: Container, tmp_path: Path) -> Iterator[Script]:
    with Script(node, container.environment, tmp_path) as script:
        script.use("graphs")
        yield script


def _agree(script: Script, node: Node, container: Container, mib: int) -> None:
    assert container.used_bytes() == node.held_bytes({script.pid}) == mib * MIB


@pytest.mark.parametrize("kind", ["by_hand", "captured"])
def test_a_graph_counts_from_its_launch_to_the_trim(
    script: Script, node: Node, container: Container, kind: str
) -> None:
    """Making and instantiating a graph costs nothing, its launch costs the mapped memory, and a trim frees all."""
    script.do(f"whole, address = {kind}(100 * MIB)")
    _agree(script, node, container, 64)
    assert script.get("launch(whole)") == SUCCESS
    _agree(script, node, container, 64 + 100)
    assert script.get("launch(whole)") == SUCCESS
    script.do("must('cuStreamSynchronize', stream); must('cuGraphExecDestroy', whole)")
    _agree(script, node, container, 64 + 100)
    script.do("must('cuDeviceGraphMemTrim', 0)")
    _agree(script, node, container, 64)


@pytest.mark.parametrize("start", ["launch(whole)", "call('cuGraphUpload', whole, stream)"])
def test_a_graph_past_the_line_does_not_run(
    script: Script, node: Node, container: Container, start: str
) -> None:
    """The launch or upload of a captured or hand-made graph past the line is out of memory."""
    for kind in ("by_hand", "captured"):
        script.do(f"whole, address = {kind}(300 * MIB)")
        assert script.get(start) == OUT_OF_MEMORY
        _agree(script, node, container, 64)
    script.do("whole, address = by_hand(256 * MIB)")
    assert script.get(start) == SUCCESS
    _agree(script, node, container, 64 + 256)


def test_a_line_full_of_one_graph_runs_it_again_and_again(
    script: Script, node: Node, container: Container
) -> None:
    """A graph that is launched again, also before it is done, needs no more memory."""
    script.do("whole, address = by_hand(256 * MIB)")
    assert script.get("[launch(whole) for _ in range(20)]") == [SUCCESS] * 20
    _agree(script, node, container, 64 + 256)


def test_graphs_that_share_memory_are_counted_once(script: Script, node: Node, container: Container) -> None:
    """Memory that the driver maps for two graphs in turn counts once, and an ended graph's memory serves another."""
    script.do("one, _ = by_hand(100 * MIB); two, _ = by_hand(100 * MIB)")
    assert script.get("[launch(one), launch(two), launch(one)]") == [SUCCESS] * 3
    _agree(script, node, container, 64 + 100)
    script.do("must('cuStreamSynchronize', stream); large, _ = by_hand(256 * MIB)")
    assert script.get("launch(large)") == SUCCESS
    _agree(script, node, container, 64 + 256)


def test_an_allocation_takes_precedence_over_idle_graphs(
    script: Script, node: Node, container: Container
) -> None:
    """Idle memory of graphs is trimmed before an allocation is refused."""
    script.do("whole, _ = by_hand(200 * MIB); launch(whole); must('cuStreamSynchronize', stream)")
    script.do("must('cuGraphExecDestroy', whole)")
    assert script.get("alloc(200 * MIB)[0]") == SUCCESS
    _agree(script, node, container, 64 + 200)


def test_what_a_graph_left_alive_stays_counted(script: Script, node: Node, container: Container) -> None:
    """An allocation that is freed outside its graph counts until then, through any destroy or trim."""
    script.do("whole, address = by_hand(100 * MIB, freed=False)")
    assert script.get("launch(whole)") == SUCCESS
    script.do("must('cuStreamSynchronize', stream); must('cuGraphExecDestroy', whole)")
    script.do("must('cuDeviceGraphMemTrim', 0)")
    _agree(script, node, container, 64 + 100)
    script.do("large, _ = by_hand(160 * MIB)")
    assert script.get("launch(large)") == OUT_OF_MEMORY
    script.do("free(address, stream); must('cuStreamSynchronize', stream); must('cuDeviceGraphMemTrim', 0)")
    _agree(script, node, container, 64)


def test_a_graph_is_charged_to_the_gpu_of_its_nodes(script: Script, node: Node, container: Container) -> None:
    """A node on the second GPU is charged there, though the graph runs in a stream of the first."""
    script.do("context(1); context(0); whole, _ = by_hand(100 * MIB, device=1)")
    assert script.get("launch(whole)") == SUCCESS
    assert (container.used_bytes(0), container.used_bytes(1)) == (64 * MIB, 164 * MIB)
    assert node.held_bytes({script.pid}, 1) == 164 * MIB


def test_a_reset_ends_what_graphs_hold(script: Script, node: Node, container: Container) -> None:
    """The pool for graphs goes with the primary context."""
    script.do("whole, _ = by_hand(100 * MIB); launch(whole); must('cuStreamSynchronize', stream)")
    script.do("must('cuDevicePrimaryCtxReset_v2', 0)")
    _agree(script, node, container, 0)
