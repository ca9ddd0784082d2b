"""A whole program, in turn in a pod of ours and in a pod of default-scheduler: what Plimsoll costs it in all.

ConVGPU (CLUSTER '17), Figure 6, has 0.7 % for a training of 400 s. The program here allocates in steps, launches
kernels and waits for each of them, and frees. Its time runs from before its fork until its end, taken inside the
container, so that neither `kubectl exec` nor the start of a pod is in it.
"""

import json
import statistics
import sys
from typing import Any, Final

from bench.e2e.pod_kinds import KINDS, NATIVE, PLIMSOLL
from tests.node.node import Node

Json = dict[str, Any]

KERNELS: Final = 500
KERNEL_MS: Final = 4
PROGRAM: Final = (
    *("busy", "--memory", "1Gi", "--steps", "64"),
    *("--kernel-ms", str(KERNEL_MS), "--iterations", str(KERNELS)),
)
"""Two seconds of work: long enough that the start, under a millisecond, weighs as it does for a real program."""


async def compare(node: Node, namespace: str, pairs: int) -> Json:
    """Run the program in each pod in turn; returns the figures.

    The first pair warms up and does not count. The side that begins changes with each pair.
    """
    for kind in KINDS:
        await node.create(namespace, kind.pod(kind.name, "sleep", "3000"))
    for kind in KINDS:
        await node.until_ready(namespace, kind.name)
    took_s: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    for at in range(pairs + 1):
        for kind in KINDS if at % 2 else reversed(KINDS):
            output = await node.run(namespace, kind.name, "timed", *PROGRAM)
            took_s[kind.name].append(json.loads(output.splitlines()[-1])["took_ns"] / 1e9)
    for kind in KINDS:
        await node.delete(namespace, kind.name)
    ours, theirs = took_s[PLIMSOLL.name][1:], took_s[NATIVE.name][1:]
    overheads_pct = sorted(100 * (one / other - 1) for one, other in zip(ours, theirs, strict=True))
    overhead_pct = statistics.median(overheads_pct)
    print(
        f"program: {statistics.median(ours):.3f} s, {statistics.median(theirs):.3f} s without, "
        f"{overhead_pct:.2f} % (quarters {overheads_pct[pairs // 4]:.2f}, {overheads_pct[3 * pairs // 4]:.2f})",
        file=sys.stderr,
    )
    return {
        "overhead_pct": round(overhead_pct, 2),
        "overhead_pct_quartiles": [round(overheads_pct[at * pairs // 4], 2) for at in (1, 3)],
        "with_s": round(statistics.median(ours), 4),
        "without_s": round(statistics.median(theirs), 4),
        "pairs": pairs,
    }
