"""Names on the bus: one JetStream stream, its subjects, and how node names become subject tokens."""

from typing import Final

from plimsoll.ids import NodeName

STREAM: Final = "PLIMSOLL"
EVENTS: Final = "plimsoll.v1.>"
"""The subjects that the stream keeps."""

REPORTS: Final = ("plimsoll.v1.task.*.*", "plimsoll.v1.node.state.*")
"""Events that carry a node's whole state: each alone is enough to rescore the node."""

INFOS: Final = "plimsoll.v1.node.info.*"
"""Events about the hardware of nodes, see `info_subject`."""

LIMITS: Final = "plimsoll.v1.limit.*.*"
"""All enforcement events, see `limit_subject`."""


def node_token(node: NodeName) -> str:
    """A node's name as one subject token: `.` becomes `_`, which no node name contains."""
    return node.replace(".", "_")


def task_subject(what: str, node: NodeName) -> str:
    """Subject of a task event; `what` is started, loaded or exited."""
    return f"plimsoll.v1.task.{what}.{node_token(node)}"


def state_subject(node: NodeName) -> str:
    """Subject of a node's state when it changed, or when its heartbeat came due, without a task event."""
    return f"plimsoll.v1.node.state.{node_token(node)}"


def foreign_subject(node: NodeName) -> str:
    """Subject of the event that another monitor reports under this node's name."""
    return f"plimsoll.v1.node.foreign.{node_token(node)}"


def info_subject(node: NodeName) -> str:
    """Subject of a node's hardware; its last message is that of now."""
    return f"plimsoll.v1.node.info.{node_token(node)}"


def reports_of(node: NodeName) -> tuple[str, ...]:
    """The subjects of one node's reports, as in `REPORTS`."""
    return tuple(f"{each.rpartition('.')[0]}.{node_token(node)}" for each in REPORTS)


def limit_subject(what: str, node: NodeName) -> str:
    """Subject of an enforcement event; `what` is violated, unenforced, denied, paused, resumed, resized or unmet."""
    return f"plimsoll.v1.limit.{what}.{node_token(node)}"


def gpu_subject(what: str, node: NodeName) -> str:
    """Subject of a GPU event; `what` is pressure or health."""
    return f"plimsoll.v1.gpu.{what}.{node_token(node)}"


def pool_subject(what: str) -> str:
    """Subject of an event about the pool of shared GPUs; `what` is acquired, released or lost."""
    return f"plimsoll.v1.pool.{what}"


def pod_subject(what: str) -> str:
    """Subject of a placement event; `what` is placed, unplaceable, foreign, preempted or relocated."""
    return f"plimsoll.v1.pod.{what}"
