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


def refusal_on(pod: Pod) -> str:
    """The refusal that stands on a pod; empty without one."""
    found = scheduled_condition(pod)
    return found.message or "" if found is not None and found.status == "False" else ""
