"""The reasons why a node is unfit, in the texts of `kubectl describe pod`, and their summary over all nodes."""

import enum
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from plimsoll.contract import GPU_MEMORY, GPU_SHARE
from plimsoll.ids import NodeName
from plimsoll.pool import ACQUIRING, acquiring_on
from plimsoll.quantity import format_bytes


class Reason(enum.Enum):
    """The reason why a node has no GPU for a container; the value is the text for people.

    A summary puts the number of nodes before each text, so each text speaks of nodes. A node whose GPUs are unfit for
    several reasons has all of them.
    """

    GPU_MEMORY = f"Insufficient {GPU_MEMORY} on one GPU"
    GPU_SHARE = f"Insufficient {GPU_SHARE} on one GPU"
    GPU_SHARERS = "node(s) had GPUs shared by too many containers"
    GPU_NOT_EMPTY = "node(s) had GPUs in use while a whole one was asked for"
    GPU_TAKEN_WHOLE = "node(s) had GPUs that belonged to one container alone"
    GPU_MODEL = "node(s) didn't have a GPU of the requested model"
    OWNER_MODEL = "node(s) had GPUs of another model than the other pods of the owner have"
    GPU_ID = "node(s) didn't have the requested GPU"
    GPU_NAMES = "node(s) had GPUs of other names alone"
    AFFINITY = "node(s) didn't have the GPU of the pod's affinity label"
    ANTI_AFFINITY = "node(s) had GPUs with pods of the same anti-affinity label"
    EXCLUSION = "node(s) had GPUs in use by pods without the pod's exclusion label"
    EXCLUDED = "node(s) had GPUs that pods with an exclusion label keep for themselves"
    MIG_ALONE = "node(s) had MIG instances, of which a program can use one alone"
    GPU_COUNT = "node(s) had too few fitting GPUs"
    ACQUIRING = ACQUIRING
    OUTSIDE_POOL = "node(s) had no free GPU in the pool, and none to acquire"
    NO_REPORT = "node(s) had no GPU report"
    SILENT = "node(s) had not reported for too long"
    CORDONED = "node(s) had cordoned GPUs"


UNHEALTHY: Final = "node(s) had unhealthy GPUs"
"""Begins the reason that a GPU has a fatal condition; the condition follows, see `unhealthy`."""


def unhealthy(conditions: Collection[str]) -> str:
    """The reason that GPUs are out of placement, by their fatal conditions."""
    return f"{UNHEALTHY} ({'; '.join(sorted(set(conditions)))})"


def without_unhealthy(reasons: Collection[str]) -> tuple[str, ...]:
    """The reasons that the end of pods might lift; all of them where there are only those of closed GPUs.

    A node with closed GPUs, which are unhealthy or cordoned, has the reasons of the open ones too.
    """
    closed = (UNHEALTHY, Reason.CORDONED.value)
    return tuple(one for one in reasons if not one.startswith(closed)) or tuple(reasons)


def summary(total: int, reasons: Mapping[NodeName, tuple[str, ...]]) -> str:
    """Sum reasons up as kube-scheduler does: `0/N nodes are available: 2 Insufficient cpu, 1 …`.

    Args:
        total: the number of nodes in the cluster.
        reasons: the reasons of each node that was considered; a node may have several, each counted.
    """
    return summary_of(total, Counter(reason for given in reasons.values() for reason in given))


def summary_of(
    total: int,
    counts: Mapping[str, int],
    most_free: tuple[NodeName, int] | None = None,
    acquiring: Sequence[NodeName] = (),
) -> str:
    """The summary of reasons that are counted already.

    Args:
        total: the number of nodes in the cluster.
        counts: by reason, the number of nodes that have it.
        most_free: the node with the GPU that has the most free memory among those with too little, and its bytes.
        acquiring: nodes where a GPU may join the pool for the pod. They come first: the pool's controller reads them
            (`plimsoll.pool.wanted_nodes`), and long texts are cut.
    """
    if not counts:
        return f"0/{total} nodes are available."
    listed = ", ".join(
        f"{count} {_with_node(reason, most_free, acquiring)}"
        for reason, count in sorted(counts.items(), key=lambda c: (c[0] != ACQUIRING, -c[1], c[0]))
    )
    return f"0/{total} nodes are available: {listed}."


def _with_node(reason: str, most_free: tuple[NodeName, int] | None, acquiring: Sequence[NodeName]) -> str:
    if acquiring and reason == ACQUIRING:
        return acquiring_on(*acquiring)
    if most_free is None or reason != Reason.GPU_MEMORY.value:
        return reason
    node, free_bytes = most_free
    return f"{reason} (most free: {format_bytes(max(free_bytes, 0))} on {node})"
