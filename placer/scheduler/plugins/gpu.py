"""Gpu: the GPUs of the node have the room that the pod's containers declare.

The room is in `placer.core`: the ledger, the plan and the policies. `placer.decide` reads its ranking, which is what
keeps a decision as cheap on 20 000 nodes as on 1000. So this plugin runs no filter of its own: it names the reasons.
"""

from typing import ClassVar

from placer.core.reasons import UNHEALTHY, Reason
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, SOME_GPU, Cause


class Gpu(Plugin[PodInfo]):
    """The reasons of `placer.core.reasons`, each with what may lift it."""

    name: ClassVar = "PlimsollGpu"
    causes: ClassVar = {
        Reason.GPU_MEMORY.value: NOTHING,  # each pod that memory can keep out has this cause in any case
        Reason.GPU_SHARE.value: Cause.SHARE,
        Reason.GPU_SHARERS.value: Cause.OCCUPANCY,
        Reason.GPU_NOT_EMPTY.value: Cause.OCCUPANCY,
        Reason.GPU_TAKEN_WHOLE.value: Cause.OCCUPANCY,
        Reason.GPU_COUNT.value: SOME_GPU,  # the reason of each single GPU is not given
        Reason.GPU_NAMES.value: Cause.OCCUPANCY,
        Reason.AFFINITY.value: Cause.LABELS,
        Reason.ANTI_AFFINITY.value: Cause.LABELS,
        Reason.EXCLUSION.value: Cause.LABELS,
        Reason.EXCLUDED.value: Cause.LABELS,
        # The reasons of the GPUs in the pool are not given.
        Reason.ACQUIRING.value: SOME_GPU | Cause.GPUS | Cause.POOL,
        Reason.OUTSIDE_POOL.value: Cause.POOL,
        Reason.GPU_MODEL.value: Cause.GPUS,
        Reason.OWNER_MODEL.value: Cause.GPUS,
        Reason.GPU_ID.value: Cause.GPUS,
        Reason.MIG_ALONE.value: Cause.GPUS,
        Reason.NO_REPORT.value: Cause.GPUS,
        Reason.SILENT.value: Cause.GPUS,
        Reason.CORDONED.value: Cause.GPUS,
        # A healthy GPU could be refused for other reasons, which are not given.
        UNHEALTHY: SOME_GPU | Cause.GPUS,
    }
    resolvable: ClassVar = frozenset(
        {
            Reason.GPU_MEMORY.value,
            Reason.GPU_SHARE.value,
            Reason.GPU_SHARERS.value,
            Reason.GPU_NOT_EMPTY.value,
            Reason.GPU_TAKEN_WHOLE.value,
            Reason.GPU_COUNT.value,
            Reason.ANTI_AFFINITY.value,
            Reason.EXCLUSION.value,
            Reason.EXCLUDED.value,
        }
    )

    def pre_filter(self, info: PodInfo) -> PodInfo | None:  # noqa: ARG002 - see the module
        """None: the plan decides."""
        return None

    def filter(self, wanted: PodInfo, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002 - likewise
        """Nothing."""
        return ()
