"""With two GPUs in one container memory is charged where it lies, and freed there."""

import pytest

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, Node
from tests.hook.lib.script import Script

USED = ("graphs", "two_gpus")


WITH_CONTEXT = {
    "alloc": ("made = make('cuMemAlloc_v2', SIZE(64 * MIB))", "must('cuMemFree_v2', made)"),
    "pitch": (
        "made = make('cuMemAllocPitch_v2', byref(pitch), SIZE(4096), SIZE(64 * MIB // 4096), 4)",
        "must('cuMemFree_v2', made)",
    ),
    "managed": ("made = make('cuMemAllocManaged', SIZE(64 * MIB), 1)", "must('cuMemFree_v2', made)"),
    "array": ("made = make('cuArrayCreate_v2', byref(flat))", "must('cuArrayDestroy', made)"),
    "array3d": ("made = make('cuArray3DCreate_v2', byref(form))", "must('cuArrayDestroy', made)"),
    "mipmap": (
        "made = make('cuMipmappedArrayCreate', byref(form), 1)",
        "must('cuMipmappedArrayDestroy', made)",
    ),
    "async": ("code, address = take(64 * MIB); assert code == 0", "free(address); sync()"),
}
"""Where the current context's GPU is the one that is meant."""

ELSEWHERE = {
    "async in the other's stream": (
        "code, address = take(64 * MIB, other_stream); assert code == 0",
        "free(address, other_stream); must('cuStreamSynchronize', other_stream)",
    ),
    "the other's default pool": (
        "code, address = take_from(default_pool(1), 64 * MIB, other_stream); assert code == 0",
        "free(address, other_stream); must('cuStreamSynchronize', other_stream)",
    ),
    "a pool on the other": (
        "pool = pool_on(1); code, address = take_from(pool, 64 * MIB); assert code == 0",
        "free(address); sync(); must('cuMemPoolDestroy', pool)",
    ),
    "a handle by its location": (
        "made = make('cuMemCreate', SIZE(64 * MIB), byref(props), U64(0))",
        "must('cuMemRelease', made)",
    ),
    "a graph by its node": (
        "whole, address = by_hand(64 * MIB, device=1); assert launch(whole) == 0",
        "must('cuStreamSynchronize', stream); must('cuGraphExecDestroy', whole); must('cuDeviceGraphMemTrim', 1)",
    ),
    "a context": (
        "made = make('cuCtxCreate_v2', 0, 1); must('cuCtxSetCurrent', first)",
        "must('cuCtxDestroy_v2', made)",
    ),
}
"""Where something else names the GPU, whatever context is current."""


def _held(script: Script, node: Node, container: Container) -> list[int]:
    words = [container.used_bytes(gpu) for gpu in (0, 1)]
    assert words == [node.held_bytes({script.pid}, gpu) for gpu in (0, 1)]
    return [word // MIB for word in words]


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_memory_is_charged_to_the_gpu_of_the_current_context(
    script: Script, node: Node, container: Container, name: str
) -> None:
    """Memory allocated in the second GPU's context is charged there, also if it is freed in the first one's."""
    allocate, free = WITH_CONTEXT[name]
    script.do(f"must('cuCtxSetCurrent', second); {allocate}; must('cuCtxSetCurrent', first)")
    assert _held(script, node, container) == [64, 128]
    context = "second" if name == "async" else "first"  # whose stream and synchronisation
    script.do(f"must('cuCtxSetCurrent', {context}); {free}; must('cuCtxSetCurrent', first)")
    assert _held(script, node, container) == [64, 64]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_memory_is_charged_to_the_gpu_that_is_named(
    script: Script, node: Node, container: Container, name: str
) -> None:
    """The GPU that a stream, pool, location or node names is charged, under any current context."""
    allocate, free = ELSEWHERE[name]
    script.do(allocate)
    assert _held(script, node, container) == [64, 128]
    script.do(free)
    assert _held(script, node, container) == [64, 64]


@pytest.mark.parametrize("name", WITH_CONTEXT | ELSEWHERE)
def test_a_full_gpu_refuses_and_the_empty_one_beside_it_does_not_help(
    script: Script, node: Node, container: Container, name: str
) -> None:
    """A request past the second GPU's line is refused, though the first one's line is hardly used."""
    allocate, _ = (WITH_CONTEXT | ELSEWHERE)[name]
    context = "second" if name in WITH_CONTEXT else "first"
    script.do("must('cuCtxSetCurrent', second); code, full = alloc(256 * MIB); assert code == 0")
    script.do(f"must('cuCtxSetCurrent', {context})")
    script.do(
        f"""
        refused = False
        try:
            {allocate}
        except (AssertionError, CudaError):
            refused = True
        """
    )
    assert script.get("refused")
    assert _held(script, node, container) == [64, 320]
    assert int(container.counts().slots[0].denied_count) == 1
