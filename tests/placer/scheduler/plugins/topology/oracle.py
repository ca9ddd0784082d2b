"""kube-scheduler's filters for topology spread and inter-pod affinity, restated over whole lists.

Written from the Go source of Kubernetes 1.36 (`podtopologyspread/filtering.go`, `interpodaffinity/filtering.go`) over
the API's JSON, without any code of the placer. Each check reads all nodes and all pods.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
SPREAD = "node(s) didn't match pod topology spread constraints"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """`metav1.LabelSelectorAsSelector(selector).Matches(labels)`."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for one in selector.get("matchExpressions", []):
        key, values = one["key"], one.get("values", [])
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,  # codespell:ignore notin
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds[one["operator"]]:
            return False
    return True


def is_empty(selector: Object | None) -> bool:
    """`selector.Empty()`: it has no requirement."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def labels_of(thing: Object) -> Mapping[str, str]:
    """The labels of a pod or node."""
    labels: Mapping[str, str] = thing["metadata"].get("labels", {})
    return labels


class Cluster:
    """Nodes by name, pods with a node, and the labels of namespaces."""

    def __init__(
        self, nodes: Mapping[str, Object], pods: Sequence[Object], namespaces: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.nodes, self.namespaces = nodes, namespaces
        self.pods = [pod for pod in pods if pod["spec"]["nodeName"] in nodes]

    def obstacle(self, pod: Object, name: str) -> str | None:
        """The reason of the first filter that fails, or None."""
        return self._spread(pod, self.nodes[name]) or self._inter_pod(pod, self.nodes[name])

    def _spread(self, pod: Object, node: Object) -> str | None:
        constraints = [
            one
            for one in pod["spec"].get("topologySpreadConstraints", [])
            if one["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = [one["topologyKey"] for one in constraints]
        for one in constraints:
            selector = one.get("labelSelector")
            if selector is not None:
                merged = [
                    {"key": key, "operator": "In", "values": [labels_of(pod)[key]]}
                    for key in one.get("matchLabelKeys", [])
                    if key in labels_of(pod)
                ]
                selector = {**selector, "matchExpressions": [*selector.get("matchExpressions", []), *merged]}
            counts: Counter[str] = Counter()
            for other in self.nodes.values():
                if not all(key in labels_of(other) for key in keys) or not included(one, pod, other):
                    continue
                counts[labels_of(other)[one["topologyKey"]]] += sum(
                    not is_empty(selector)
                    and "deletionTimestamp" not in there["metadata"]
                    and there["metadata"]["namespace"] == pod["metadata"]["namespace"]
                    and selects(selector, labels_of(there))
                    for there in self.pods
                    if there["spec"]["nodeName"] == other["metadata"]["name"]
                )
            if one["topologyKey"] not in labels_of(node):
                return MISSING
            least = min(counts.values()) if counts and len(counts) >= one.get("minDomains", 1) else 0
            own = selects(selector, labels_of(pod))
            if counts[labels_of(node)[one["topologyKey"]]] + own - least > one["maxSkew"]:
                return SPREAD
        return None

    def _inter_pod(self, pod: Object, node: Object) -> str | None:
        if not self._is_beside(pod, node):
            return AFFINITY
        for term in terms(pod, "podAntiAffinity"):
            if any(self._incoming(term, pod, one) and self._shares(term, node, one) for one in self.pods):
                return ANTI
        for there in self.pods:
            for term in terms(there, "podAntiAffinity"):
                if self._is_kept_out(term, there, pod) and self._shares(term, node, there):
                    return EXISTING
        return None

    def _is_beside(self, pod: Object, node: Object) -> bool:
        found = terms(pod, "podAffinity")
        counts: Counter[tuple[str, str]] = Counter()
        for there in self.pods:
            if found and all(self._incoming(term, pod, there) for term in found):
                counts.update(pairs(found, self.nodes[there["spec"]["nodeName"]]))
        if any(term["topologyKey"] not in labels_of(node) for term in found):
            return False
        if all(counts[pair] > 0 for pair in pairs(found, node)):
            return True
        return not counts and all(self._incoming(term, pod, pod) for term in found)

    def _is_kept_out(self, term: Object, there: Object, pod: Object) -> bool:
        """A term of a pod that has a node: its namespace selector is compared with the new pod's namespace."""
        namespace = pod["metadata"]["namespace"]
        labels = self.namespaces.get(namespace, {})
        covered = namespace in own_namespaces(term, there) or selects(term.get("namespaceSelector"), labels)
        return covered and selects(term.get("labelSelector"), labels_of(pod))

    def _shares(self, term: Object, node: Object, there: Object) -> bool:
        """Whether a pod's node and this one have the term's key with one value."""
        key, other = term["topologyKey"], self.nodes[there["spec"]["nodeName"]]
        return key in labels_of(node) and labels_of(node)[key] == labels_of(other).get(key)

    def _incoming(self, term: Object, pod: Object, there: Object) -> bool:
        """A term of the new pod: its namespace selector is unrolled, and also compared with no labels."""
        selector = term.get("namespaceSelector")
        named = {
            *own_namespaces(term, pod),
            *(name for name, labels in self.namespaces.items() if selects(selector, labels)),
        }
        covered = there["metadata"]["namespace"] in named or selects(selector, {})
        return covered and selects(term.get("labelSelector"), labels_of(there))


def included(constraint: Object, pod: Object, node: Object) -> bool:
    """`matchNodeInclusionPolicies`."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
        wanted = pod["spec"].get("nodeSelector", {})
        if any(labels_of(node).get(key) != value for key, value in wanted.items()):
            return False
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
        tolerated = {one["key"] for one in pod["spec"].get("tolerations", [])}
        taints = node["spec"].get("taints", [])
        return all(one["effect"] == "PreferNoSchedule" or one["key"] in tolerated for one in taints)
    return True


def terms(pod: Object, kind: str) -> list[Object]:
    """The required terms of a pod."""
    found: list[Object] = pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])
    return found


def own_namespaces(term: Object, pod: Object) -> list[str]:
    """`getNamespacesFromPodAffinityTerm`."""
    if not term.get("namespaces") and term.get("namespaceSelector") is None:
        return [pod["metadata"]["namespace"]]
    named: list[str] = term.get("namespaces", [])
    return named


def pairs(found: Sequence[Object], node: Object) -> list[tuple[str, str]]:
    """The domains of a node for terms whose key the node has."""
    labels = labels_of(node)
    return [
        (term["topologyKey"], labels[term["topologyKey"]]) for term in found if term["topologyKey"] in labels
    ]
