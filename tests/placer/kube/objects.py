"""Nodes, pods and reports as the watches and the monitors show them, in a line each."""

from typing import Any

import msgspec

from plimsoll.contract import SCHEDULER_NAME
from plimsoll.events import NodeState, Task
from plimsoll.kube.models import Node, Pod
from plimsoll.quantity import GIB
from tests.placer.core.worlds import gpu, state

Object = dict[str, Any]
MEMORY, SHARE, WHOLE = "plimsoll.dev/gpu-memory", "plimsoll.dev/gpu-share", "plimsoll.dev/gpu"
BEST_EFFORT = {"plimsoll.dev/best-effort": "true"}
LABELLED = {"app": "x"}


def node_of(name: str, labels: Object | None = None, *, ready: bool = True, **more: Any) -> Node:  # noqa: ANN401 - passed on
    """A node; `spec` is its spec, and `allocatable` changes or adds amounts of its own."""
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": more.get("spec", {}),
        "status": {
            "allocatable": {"cpu": "8", "pods": "30", **more.get("allocatable", {})},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return msgspec.convert(document, Node)


def report_of(name: str, *free_gib: int, seq: int = 1, tasks: tuple[Task, ...] = ()) -> NodeState:
    """A node's report of GPUs `GPU-<node>-<n>` of 24 GiB with this much free memory, and these tasks."""
    uuids = [f"GPU-{name}-{index}" for index in range(len(free_gib))]
    gpus = (
        gpu(uuid, *(task for task in tasks if task.gpu == uuid), other_bytes=(24 - free) * GIB)
        for uuid, free in zip(uuids, free_gib, strict=True)
    )
    return state(name, *gpus, seq=seq)


def pod_of(
    name: str,
    limits: Object | None = None,
    labels: Object | None = None,
    *,
    version: int = 1,
    more_limits: tuple[Object, ...] = (),
    annotations: Object | None = None,
    owner: str | None = None,
    scheduler: str = SCHEDULER_NAME,
    metadata: Object | None = None,
    status: Object | None = None,
    **spec: object,
) -> Pod:
    """A pod whose container `main` has these limits; `more_limits` are those of further containers."""
    named = enumerate((limits or {}, *more_limits))
    document = {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": str(version),
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
            **(metadata or {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {"name": f"more{index}" if index else "main", "resources": {"limits": one}}
                for index, one in named
            ],
            **spec,
        },
        "status": status or {},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def keeper(name: str, node: str, app: str = "x") -> Pod:
    """A pod of another scheduler on this node. It keeps pods with this label out of the node's zone."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod_of(name, scheduler="default-scheduler", nodeName=node, affinity=anti)
