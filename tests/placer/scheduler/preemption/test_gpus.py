"""Preemption for GPUs on the pure core, in a table: which pods end, and on which node."""

import pytest

from plimsoll.quantity import GIB
from tests.placer.core.worlds import task
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE
from tests.placer.kube.preemption_scene import cpu, on_gpu, pod
from tests.placer.scheduler.preemption.rows import (
    EARLY,
    LATE,
    LATER,
    NOT_HELPFUL,
    Row,
    check,
    none,
    wants,
)

GPU_LIMITS = {MEMORY: str(20 * GIB)}

ROWS = {
    "GPU memory": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "GPU memory that a victim's processes hold": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        "n1",
        frozenset({"a"}),
        before=lambda made: made.scene.report("n1", 24, tasks=(task("a", "GPU-n1-0", 12 * GIB),)),
    ),
    "GPU memory that nobody's processes hold": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        text=none(1, "1 Insufficient plimsoll.dev/gpu-memory on one GPU"),
        gpus={"n1": (12,)},
    ),
    "a compute share": Row(
        wants(limits={SHARE: "60"}),
        (on_gpu("a", "GPU-n1-0", 0, share=50), on_gpu("b", "GPU-n1-0", 5, share=30)),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "a whole GPU: the one with the fewest pods": Row(
        wants(limits={WHOLE: "1"}),
        (
            *(on_gpu(f"a{index}", "GPU-n1-0", 1, 4, started=LATE) for index in range(3)),
            on_gpu("b", "GPU-n1-1", 1, 20, started=EARLY),
        ),
        "n1",
        frozenset({"b"}),
        gpus={"n1": (24, 24)},
    ),
    "a GPU that belongs to one pod alone": Row(
        wants(limits=GPU_LIMITS),
        (on_gpu("a", "GPU-n1-0", 0, is_whole=True),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24,)},
    ),
    "the victims are on one GPU": Row(
        wants(limits=GPU_LIMITS),
        (
            on_gpu("a", "GPU-n1-0", 1, 8, started=LATE),
            on_gpu("b", "GPU-n1-0", 1, 8, started=EARLY),
            on_gpu("c", "GPU-n1-1", 1, 8, started=LATER),
            on_gpu("d", "GPU-n1-1", 3, 8, started=EARLY),
        ),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24)},
    ),
    "two GPUs": Row(
        wants(limits={WHOLE: "2"}),
        (on_gpu("a", "GPU-n1-0", 1, 8), on_gpu("b", "GPU-n1-1", 2, 8), on_gpu("c", "GPU-n1-2", 3, 8)),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24, 24)},
    ),
    "a GPU of another model": Row(
        wants(limits=GPU_LIMITS, annotations={"plimsoll.dev/gpu-model": "NVIDIA H100"}),
        (on_gpu("a", "GPU-n1-0", 0, 10),),
        text=none(1, f"1 {NOT_HELPFUL}"),
        gpus={"n1": (24,)},
    ),
    "a node without a report": Row(
        wants(limits=GPU_LIMITS), (pod("a", "n1", 0),), text=none(1, f"1 {NOT_HELPFUL}")
    ),
    "a pod whose GPUs are unknown": Row(
        wants(limits=GPU_LIMITS),
        (pod("a", "n1", 0, GPU_LIMITS),),
        "n1",
        frozenset({"a"}),
        gpus={"n1": (24, 24)},
    ),
    "GPU and CPU": Row(
        wants(limits={**GPU_LIMITS, "cpu": "4"}),
        (
            cpu("a", "n1", 2, "6"),
            on_gpu("b", "GPU-n1-0", 1, 10, cpu="1"),
            on_gpu("c", "GPU-n1-1", 5, 10, cpu="1"),
        ),
        "n1",
        frozenset({"a", "b"}),
        gpus={"n1": (24, 24)},
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_victims(name: str) -> None:
    """The pods that end, the node that is nominated, or the words for why no pod ends, are as the row says."""
    await check(ROWS[name])
