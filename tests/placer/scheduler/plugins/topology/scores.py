"""kube-scheduler's scores for topology spread and inter-pod affinity, restated over whole lists.

Written from the Go source of Kubernetes 1.36 (`podtopologyspread/scoring.go`, `interpodaffinity/scoring.go`) over the
API's JSON, without any code of the placer. Two parts are left out, as the placer leaves them out: the terms of pods
that have a node, and default constraints. Scores are not rounded, nor brought to 0–100.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from tests.placer.scheduler.plugins.topology.oracle import (
    Cluster,
    included,
    is_empty,
    labels_of,
    selects,
)

Object = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def spread(cluster: Cluster, pod: Object, fitting: Sequence[Object]) -> Mapping[str, float | None]:
    """`PodTopologySpread`: a lower score is better; None for a node that is ignored, and so worst."""
    constraints = [
        one
        for one in pod["spec"]["topologySpreadConstraints"]
        if one["whenUnsatisfiable"] == "ScheduleAnyway"
    ]
    keys = {one["topologyKey"] for one in constraints}
    scored = [node for node in fitting if keys <= labels_of(node).keys()]
    found: dict[str, float | None] = {node["metadata"]["name"]: None for node in fitting}
    found |= {node["metadata"]["name"]: 0.0 for node in scored}
    for one in constraints:
        key = one["topologyKey"]
        domains = {labels_of(node)[key] for node in scored}
        weight = log((len(scored) if key == HOSTNAME else len(domains)) + 2)
        for node in scored:
            there = [
                other
                for other in cluster.nodes.values()
                if keys <= labels_of(other).keys()
                and included(one, pod, other)
                and labels_of(other)[key] == labels_of(node)[key]
            ]
            pods = sum(_counted(one, pod, there_pod, there) for there_pod in cluster.pods)
            before = found[node["metadata"]["name"]] or 0.0
            found[node["metadata"]["name"]] = before + pods * weight + one["maxSkew"] - 1
    return found


def _counted(constraint: Object, pod: Object, there: Object, nodes: Sequence[Object]) -> bool:
    """`countPodsMatchSelector` of one pod on these nodes."""
    selector = constraint.get("labelSelector")
    if selector is None or there["spec"]["nodeName"] not in {node["metadata"]["name"] for node in nodes}:
        return False
    merged = [
        {"key": key, "operator": "In", "values": [labels_of(pod)[key]]}
        for key in constraint.get("matchLabelKeys", [])
        if key in labels_of(pod)
    ]
    selector = {**selector, "matchExpressions": [*selector.get("matchExpressions", []), *merged]}
    return (
        not is_empty(selector)
        and "deletionTimestamp" not in there["metadata"]
        and there["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and selects(selector, labels_of(there))
    )


def affinity(cluster: Cluster, pod: Object, fitting: Sequence[Object]) -> Mapping[str, int]:
    """`InterPodAffinity`: a higher score is better."""
    found = {node["metadata"]["name"]: 0 for node in fitting}
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for one in pod["spec"]["affinity"].get(kind, {}).get(PREFERRED, []):
            for node in fitting:
                term = one["podAffinityTerm"]
                pods = sum(
                    cluster._incoming(term, pod, there) and cluster._shares(term, node, there)
                    for there in cluster.pods
                )
                found[node["metadata"]["name"]] += sign * one["weight"] * pods
    return found
