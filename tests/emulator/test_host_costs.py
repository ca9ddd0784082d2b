"""Calls cost the host as much as the node file says, as they keep the CPU busy on a real driver too."""

import pytest

from tests.emulator.cuda_program import NODE, Node


def test_calls_last_as_long_as_the_node_file_says(node: Node) -> None:
    """Launches, records and queries each keep the program busy for their time."""
    node.config.write_text(f"launch-us = 3000\nevent-us = 2000.5\nquery-us = 1000.25\n{NODE}")
    launch, graph, record, query, stream_query = node.python("host_costs.calls")
    assert min(launch, graph) >= 3000
    assert record >= 2000.5
    assert min(query, stream_query) >= 1000.25


def test_costs_can_be_switched_off(node: Node) -> None:
    """With a cost of 0 a call lasts only as long as its work, which is less than a millisecond."""
    node.config.write_text(f"launch-us = 0\nevent-us = 0.0\nquery-us = 0\n{NODE}")
    assert min(node.python("host_costs.calls")) < 1000


@pytest.mark.parametrize("value", ["", "-1", "1.2345", ".5", "2us", "10001", "1.", "1e3"])
def test_a_bad_cost_is_refused(node: Node, value: str) -> None:
    """A cost is a number of microseconds with at most three places."""
    node.config.write_text(f"launch-us = {value}\n{NODE}")
    assert node.python("host_costs.start") == "CUDA_ERROR_SYSTEM_NOT_READY"
