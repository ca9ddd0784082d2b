"""The cost of modules, if the node file has one, and contexts that are attached and detached."""

from pathlib import Path

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, MIB, NODE, Node

PROGRAM = """
cuda.context()
full = cuda.info()[0]
def held(): return (full - cuda.info()[0]) // MIB
def loaded(function):
    state = INT()
    cuda.cuFuncIsLoaded(byref(state), function)
    return state.value
text = c_char_p(b".version 8.0\\n.visible .entry busy()\\n//" + b"x" * (3 * MIB))
module = cuda.make("cuModuleLoadData", text)
function = cuda.make("cuModuleGetFunction", module, b"busy")
"""


@pytest.fixture(name="costly")
def _costly(tmp_path: Path) -> Node:
    """The usual node, whose first GPU charges for modules in pieces of 2 MiB."""
    config = tmp_path / "costly.conf"
    config.write_text(NODE.replace("model = Test GPU", "model = Test GPU\nmodule = 2Mi"))
    return Node(config)


def test_a_module_costs_its_image_from_the_first_launch_to_the_unload(costly: Node, tmp_path: Path) -> None:
    """Loading and look-ups cost nothing; the first launch costs the image once, and NVML's figure shows it."""
    seen = costly.python(
        PROGRAM
        + f"""
seen = [held(), loaded(function)]
for _ in range(3): cuda.busy(function, 1)
cuda.cuCtxSynchronize()
seen += [held(), loaded(function)]
os.system({str(costly.tool)!r} + " > " + {str(tmp_path / "book")!r})
cuda.cuModuleUnload(module)
images = cuda.make("cuLibraryLoadData", text, None, None, 0, None, None, 0)
kernel = cuda.make("cuLibraryGetKernel", images, b"busy")
seen.append(held())
cuda.busy(kernel, 1); cuda.cuCtxSynchronize(); seen.append(held())
cuda.cuLibraryUnload(images); seen.append(held())
show(seen)
"""
    )
    assert seen == [0, 0, 4, 1, 0, 4, 0]
    process = costly.book_from(tmp_path / "book")[0]["processes"][0]
    assert process["module_bytes"] == 4 * MIB
    assert process["used_bytes"] == CONTEXT_BYTES + 4 * MIB
    assert process["context_bytes"] == CONTEXT_BYTES


def test_eager_modules_cost_at_once_and_need_room(costly: Node) -> None:
    """With CUDA_MODULE_LOADING=EAGER a load without room fails; a lazy one fails at its launch."""
    fill = "cuda.alloc(cuda.info()[0] - MIB)\n"
    eager = "show([held(), loaded(function)])"
    assert costly.python(PROGRAM + eager, CUDA_MODULE_LOADING="EAGER") == [4, 1]
    full = fill + "show(cuda.result('cuModuleLoadData', byref(PTR()), text))"
    assert costly.python(PROGRAM + full, CUDA_MODULE_LOADING="EAGER") == "CUDA_ERROR_OUT_OF_MEMORY"
    lazy = (
        fill
        + """
length = U64(1000); parameters = (PTR * 1)(ctypes.addressof(length))
show([cuda.result("cuFuncLoad", function),
      cuda.result("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)])
"""
    )
    assert costly.python(PROGRAM + lazy) == ["CUDA_ERROR_OUT_OF_MEMORY"] * 2


def test_modules_cost_nothing_by_default(node: Node) -> None:
    """Without `module` in the node file modules cost nothing, and a context takes its modules with it."""
    launch = "cuda.busy(function, 1); cuda.cuCtxSynchronize(); show([held(), loaded(function)])"
    assert node.python(PROGRAM + launch) == [0, 1]


def test_a_context_takes_its_modules_with_it(costly: Node) -> None:
    """After a reset of the primary context none of its modules is charged."""
    seen = costly.python(
        PROGRAM
        + "cuda.cuFuncLoad(function); cuda.cuDevicePrimaryCtxReset_v2(0); cuda.context(); show(held())"
    )
    assert seen == 0


def test_the_last_detach_destroys_a_context(node: Node) -> None:
    """A context attached twice lives until the detach that matches its creation; a primary context refuses."""
    seen = node.python("""
        cuda.cuInit(0)
        made, same, used = PTR(), PTR(), []
        other = cuda.make("cuCtxCreate_v2", 0, 0); full = cuda.info()[0]
        cuda.cuCtxCreate_v2(byref(made), 0, 0)
        cuda.cuCtxAttach(byref(same), 0)
        seen = [same.value == made.value, cuda.result("cuCtxAttach", byref(same), 1),
                cuda.result("cuCtxDetach", other), full - cuda.info()[0]]
        cuda.cuCtxDetach(made); seen.append(full - cuda.info()[0])
        cuda.cuCtxDetach(made); seen.append(full - cuda.info()[0])
        primary = cuda.context()
        show([*seen, cuda.result("cuCtxDetach", primary)])
    """)
    invalid, foreign = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_CONTEXT"
    assert seen == [True, invalid, foreign, CONTEXT_BYTES, CONTEXT_BYTES, 0, foreign]
