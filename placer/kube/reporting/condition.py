"""The `PodScheduled` condition, by which a scheduler says on a pod why the pod has no node."""

from typing import Final

from plimsoll.kube.models import Pod, PodCondition

POD_SCHEDULED: Final = "PodScheduled"
"""The type of the condition."""
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
"""Its reasons, as kube-scheduler has them: the pod fits nowhere, or an attempt failed."""


def scheduled_condition(pod: Pod) -> PodCondition | None:
    """The condition that stands on a pod, or None."""
    return next((one for one in pod.status.conditions or () if one.type == POD_SCHEDULED), None)
