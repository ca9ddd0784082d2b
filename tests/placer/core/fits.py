"""A node and pods in few words, and the reasons why the node does not fit a pod."""

from dataclasses import replace
from typing import Any

import msgspec

from placer.core.policies.headroom import HEADROOM
from placer.scheduler.framework import Framework, run_filters
from placer.scheduler.node_info import NodeInfo, Requested, node_info_of
from placer.scheduler.pods.needs import needs_of
from placer.scheduler.profile import NODE_PLUGINS, understood
from plimsoll.kube.models import Node, Pod

Object = dict[str, Any]


ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi"}


def node(allocatable: Object | None = None, **spec: object) -> Node:
    """A node `n1` in zone `a`, Ready, with little room."""
    labels = {"zone": "a", "generation": "7", "kubernetes.io/os": "linux"}
    document = {
        "metadata": {"name": "n1", "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": ALLOCATABLE | (allocatable or {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(document, Node)


def container(name: str = "main", requests: Object | None = None, **fields: object) -> Object:
    """A container that requests these amounts."""
    return {"name": name, "resources": {"requests": requests or {}}, **fields}


def pod(*containers: Object, **spec: object) -> Pod:
    """A pod of these containers, decoded from the API server's form."""
    document = {"metadata": {"name": "p"}, "spec": {"containers": list(containers) or [container()], **spec}}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def why_not(candidate: Pod, there: Node, *residents: Pod) -> tuple[str, ...]:
    """The reasons against placing the pod on the node beside these resident pods."""
    load = Requested()
    for resident in residents:
        load.add(needs_of(resident))
    return why_not_on(candidate, replace(node_info_of(there), requested=load))


def why_not_on(candidate: Pod, there: NodeInfo) -> tuple[str, ...]:
    """The reasons against placing the pod on the node."""
    return run_filters(Framework(NODE_PLUGINS).pre_filter(understood(candidate, HEADROOM)), there)


def cpu(amount: str) -> Pod:
    """A pod that requests CPU."""
    return pod(container(requests={"cpu": amount}))
