"""Draws rules about other pods and domains, and volumes, for the differential test."""

import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.placer.kube.differential.draw import Drawing

Object = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
DRIVER: Final = "differential.example.com"
CLASSES: Final = (
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "differential-waits"},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "differential-waits-in-a"},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}],
    },
)
"""Storage classes, made once for all scenarios."""


def selector(rng: random.Random) -> Object:
    """A label selector over pods."""
    kind = rng.choice(("labels", "labels", "in", "not in", "all"))
    if kind == "labels":
        return {"matchLabels": {"app": rng.choice("xyz")}}
    if kind == "in":
        values = rng.sample("xyz", 2)
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    if kind == "not in":
        return {
            "matchExpressions": [
                {"key": "version", "operator": "NotIn", "values": ["1"]},  # codespell:ignore notin
                {"key": "app", "operator": "Exists"},
            ]
        }
    return {}


def affinity_term(rng: random.Random) -> Object:
    """A term of inter-pod affinity or anti-affinity."""
    term: Object = {"topologyKey": rng.choice((ZONE, HOST, "disk"))}
    if rng.random() < 0.9:
        term["labelSelector"] = selector(rng)
    if rng.random() < 0.3:
        term["namespaces"] = rng.sample(("differential-a", "differential-b"), rng.randint(1, 2))
    if rng.random() < 0.4:
        term["namespaceSelector"] = rng.choice(
            ({}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "c"}})
        )
    if "labelSelector" in term and rng.random() < 0.15:
        _match_version(term)
    return term


def add_rules(drawing: "Drawing", pod: Object) -> None:
    """Add rules about domains and other pods to a question."""
    name = pod["metadata"]["name"]
    if (rng := drawing.draws(name, "topology spread")) is not None:
        keys = rng.sample((ZONE, HOST), rng.choice((1, 1, 2)))
        pod["spec"]["topologySpreadConstraints"] = [_spread(rng, key) for key in keys]
    for feature, kind in (("pod affinity", "podAffinity"), ("pod anti-affinity", "podAntiAffinity")):
        if (rng := drawing.draws(name, feature)) is not None:
            terms = [affinity_term(rng) for _ in range(rng.choice((1, 1, 2)))]
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            pod["spec"].setdefault("affinity", {})[kind] = rules


def _spread(rng: random.Random, key: str) -> Object:
    constraint: Object = {
        "topologyKey": key,
        "maxSkew": rng.choice((1, 1, 2)),
        "whenUnsatisfiable": rng.choices(("DoNotSchedule", "ScheduleAnyway"), (5, 1))[0],
        "labelSelector": selector(rng),
    }
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.3:
        constraint["minDomains"] = rng.choice((1, 2, 4))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.4:
            constraint[policy] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.25:
        _match_version(constraint)
    return constraint


def _match_version(rule: Object) -> None:
    """Let the rule select pods of the same version alone, unless its selector reads versions itself."""
    expressions = rule["labelSelector"].get("matchExpressions", ())
    if all(one["key"] != "version" for one in expressions):
        rule["matchLabelKeys"] = ["version"]


def add_claims(drawing: "Drawing", pod: Object) -> None:
    """Add volumes to a pod, and their claims and volumes to the drawing."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    is_resident = bool(pod["spec"].get("nodeName"))
    if (rng := drawing.draws(name, "bound claims")) is not None:
        claim = f"{name}-data"
        drawing.objects += _bound(claim, namespace, rng)
        _mount(pod, claim)
    if not is_resident and (rng := drawing.draws(name, "exclusive claims")) is not None:
        claim = f"exclusive-{namespace}"
        if all(one["metadata"]["name"] != claim for one in drawing.objects):
            drawing.objects += _bound(claim, namespace, None, modes=["ReadWriteOncePod"])
        _mount(pod, claim)
    if (rng := drawing.draws(name, "attach limits")) is not None:
        for number in range(rng.randint(1, 2)):
            claim = f"{name}-disk{number}"
            drawing.objects += _bound(claim, namespace, None)
            _mount(pod, claim)
    if not is_resident and (rng := drawing.draws(name, "claims that wait for a consumer")) is not None:
        claim, storage = f"{name}-later", rng.choice(CLASSES)["metadata"]["name"]  # type: ignore[index]
        drawing.objects.append(_claim(claim, namespace, storage, ["ReadWriteOnce"]))
        _mount(pod, claim)


def csi_nodes(drawing: "Drawing") -> list[Object]:
    """The CSINode of each node, if a feature reads them; some have a limit."""
    if not drawing.features & {"attach limits", "bound claims", "claims that wait for a consumer"}:
        return []
    found = []
    for name in drawing.nodes:
        rng = drawing.chance(name, "attach limits")
        driver: Object = {"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]}
        if rng.random() < 0.7:
            driver["allocatable"] = {"count": rng.choice((1, 2, 3))}
        meta = {"name": name}
        found.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": meta,
                "spec": {"drivers": [driver]},
            }
        )
    return found


def _mount(pod: Object, claim: str) -> None:
    volume = {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
    pod["spec"].setdefault("volumes", []).append(volume)


def _claim(name: str, namespace: str, storage: str, modes: list[str], volume: str | None = None) -> Object:
    spec: Object = {
        "accessModes": modes,
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage,
    }
    meta: Object = {"name": name, "namespace": namespace}
    claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
    if volume is not None:
        spec["volumeName"] = volume
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        claim["status"] = {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}}
    return claim


def _bound(
    name: str, namespace: str, rng: random.Random | None, modes: list[str] | None = None
) -> list[Object]:
    """A claim and its volume, bound to each other; with chance, the volume is tied to nodes or zones."""
    modes = modes or ["ReadWriteOnce"]
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}", "labels": {}},
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": f"{namespace}-{name}"},
            "storageClassName": "",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": name,
                "namespace": namespace,
            },
        },
        "status": {"phase": "Bound"},
    }
    tie = rng.choice(("zone", "node", "label", None)) if rng is not None else None
    if tie == "label":  # VolumeZone's way, of volumes from before node affinity
        volume["metadata"]["labels"][ZONE] = "__".join(rng.sample("abc", rng.randint(1, 2)))  # type: ignore[union-attr]
    elif tie is not None and rng is not None:
        key, values = (ZONE, rng.sample("abc", rng.randint(1, 2))) if tie == "zone" else (HOST, ["n0", "n1"])
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    claim = _claim(name, namespace, "", modes, volume["metadata"]["name"])
    return [volume, claim]
