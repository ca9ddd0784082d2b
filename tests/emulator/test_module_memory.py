"""The cost of modules, if the node file has one, and contexts that are attached and detached."""

from pathlib import Path

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, MIB, NODE, Node


@pytest.fixture(name="costly")
def _costly(tmp_path: Path) -> Node:
    """The usual node, whose first GPU charges for modules in pieces of 2 MiB."""
    config = tmp_path / "costly.conf"
    config.write_text(NODE.replace("model = Test GPU", "model = Test GPU\nmodule = 2Mi"))
    return Node(config)


def test_a_module_costs_its_image_from_the_first_launch_to_the_unload(costly: Node) -> None:
    """Loading and look-ups cost nothing; the first launch costs the image once, and NVML's figure shows it."""
    seen, process = costly.python("module_memory.from_launch_to_unload", str(costly.tool))
    assert seen == [0, 0, 4, 1, 0, 4, 0]
    assert process["module_bytes"] == 4 * MIB
    assert process["used_bytes"] == CONTEXT_BYTES + 4 * MIB
    assert process["context_bytes"] == CONTEXT_BYTES


def test_eager_modules_cost_at_once_and_need_room(costly: Node) -> None:
    """With CUDA_MODULE_LOADING=EAGER a load without room fails; a lazy one fails at its launch."""
    eager = {"CUDA_MODULE_LOADING": "EAGER"}
    assert costly.python("module_memory.cost", **eager) == [4, 1]
    assert costly.python("module_memory.load_without_room", **eager) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert costly.python("module_memory.launch_without_room") == ["CUDA_ERROR_OUT_OF_MEMORY"] * 2


def test_modules_cost_nothing_by_default(node: Node) -> None:
    """Without `module` in the node file modules cost nothing, and a context takes its modules with it."""
    assert node.python("module_memory.launch_once") == [0, 1]


def test_a_context_takes_its_modules_with_it(costly: Node) -> None:
    """After a reset of the primary context none of its modules is charged."""
    assert costly.python("module_memory.reset") == 0


def test_the_last_detach_destroys_a_context(node: Node) -> None:
    """A context attached twice lives until the detach that matches its creation; a primary context refuses."""
    seen = node.python("contexts.detach")
    invalid, foreign = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_CONTEXT"
    assert seen == [True, invalid, foreign, CONTEXT_BYTES, CONTEXT_BYTES, 0, foreign]
