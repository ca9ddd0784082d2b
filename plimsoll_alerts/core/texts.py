"""The alerts' names, severities, labels and texts.

Labels are names of things, never amounts: an alert whose labels change is another alert. Texts hold no amounts that
change while the state lasts, so that an unchanged state is sent again at its interval and not at each report.
"""

from plimsoll.events import Foreign, Limit, NodeState
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.quantity import format_bytes
from plimsoll_alerts.core.alert import CRITICAL, WARNING, Alert, AlertKind, alert


def unhealthy(node: NodeName, one: GpuHealth) -> Alert:
    """A GPU whose health is fatal or degraded; each class is an alert of its own."""
    about = {"node": node, "gpu": one.gpu, "model": one.model}
    found = "; ".join(condition.text for condition in one.conditions)
    if one.health is HealthClass.FATAL:
        text = f"No new container is placed on it; those on it run on. Found: {found}."
        summary = f"GPU {one.index} of {node} is unfit for work: {one.reason}"
        return alert(AlertKind.HEALTH, "PlimsollGpuFatal", CRITICAL, about, one.since, (summary, text))
    summary = f"GPU {one.index} of {node} is degraded: {one.reason}"
    text = f"It works, and pods are placed on it as before. Found: {found}."
    return alert(AlertKind.HEALTH, "PlimsollGpuDegraded", WARNING, about, one.since, (summary, text))


def short(node: NodeName, gpu: GpuUuid, since: str) -> Alert:
    """A GPU whose free memory is short."""
    summary = f"The free memory of {gpu} on {node} is short"
    text = (
        "Programs on it may fail to allocate although they are within their lines. "
        "`plimsoll status` on the node shows who holds the memory."
    )
    about = {"node": node, "gpu": gpu}
    return alert(AlertKind.PRESSURE, "PlimsollGpuPressure", WARNING, about, since, (summary, text))


def violated(limit: Limit, since: str) -> Alert:
    """A container that holds or uses more than it declared."""
    about = _about(limit)
    if limit.pid:
        summary = f"A process of {limit.pod} on {limit.node} uses more compute time than its page says"
        text = f"Process {limit.pid} overwrites its page: delete the pod. {limit.reason}".strip()
    else:
        line = format_bytes(limit.line_bytes)
        summary = (
            f"Container {limit.container} of {limit.pod} on {limit.node} holds more than its line ({line})"
        )
        text = f"Growth is refused. If neighbours are in trouble, delete the pod. {limit.reason}".strip()
    return alert(AlertKind.VIOLATED, "PlimsollLimitViolated", WARNING, about, since, (summary, text))


def unenforced(limit: Limit, since: str) -> Alert:
    """A process that is not held to its limits."""
    summary = f"A process of {limit.pod} on {limit.node} is not held to its limits"
    remedy = (
        "Start the broker; its log says why it ended."
        if limit.broker_away
        else "Check the container's command and image; delete the pod if the GPU runs full."
    )
    text = f"{remedy} {limit.reason}".strip()
    return alert(
        AlertKind.UNENFORCED, "PlimsollLimitUnenforced", WARNING, _about(limit), since, (summary, text)
    )


def foreign(found: Foreign, since: str) -> Alert:
    """Two monitors that report as one node."""
    summary = f"Two monitors report as node {found.node}"
    text = (
        "The placer sees only one of the two machines. Stop the monitor that has the wrong name. "
        "The event node.foreign lists the GPUs of both machines."
    )
    about = {"node": found.node}
    return alert(AlertKind.FOREIGN, "PlimsollForeignMonitor", CRITICAL, about, since, (summary, text))


def silent(state: NodeState) -> Alert:
    """A node without a report for three of its heartbeats."""
    summary = f"The monitor of {state.node} has not reported for three of its heartbeats"
    text = (
        "Nothing is placed on the node. Its programs run on. Check the node, its monitor's log, and whether the "
        f"monitor reaches NATS. Its last report is of {state.time}."
    )
    about = {"node": state.node}
    return alert(AlertKind.SILENT, "PlimsollNodeSilent", CRITICAL, about, state.time, (summary, text))


def bus_away(since: str) -> Alert:
    """The alert that the stream cannot be read. All other alerts stay as they were."""
    text = "All other alerts of Plimsoll's events stay as they were when the stream was last read."
    summary = "The stream of Plimsoll's events cannot be read"
    return alert(AlertKind.BUS, "PlimsollBusAway", CRITICAL, {}, since, (summary, text))


def _about(limit: Limit) -> dict[str, str]:
    return {"node": limit.node, "gpu": limit.gpu or "", "pod": limit.pod, "container": limit.container}
