"""Draws a cluster and pods from a seed. The same seed and features give the same objects, and all are valid.

Each feature of each object has its own source of chance, so that turning one feature on changes no other.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.placer.kube.differential import domains_volumes
from tests.placer.kube.differential.features import OFTEN
from tests.placer.kube.differential.pods import EFFECTS, FPGA, HUGE, KUBELET, RULES, SHAPES, resize

Object = dict[str, Any]

NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {
    "differential-a": {"team": "a"},
    "differential-b": {"team": "b"},
}
SWARM: Final = 0.45
"""The share of features that a scenario has. Pods with all of them fit nowhere, and show little."""
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
GENERATIONS: Final = ("1", "2", "3", "07", "9223372036854775807", "9223372036854775808", "x", "")
APPS: Final = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and the pods to ask for.

    Attributes:
        seed: the seed that drew it.
        nodes: its nodes, with status.
        residents: the pods that have a node, with status where it is not the default.
        objects: further objects, such as volumes, with `apiVersion` and `kind`.
        questions: the pods to place, in turn; each one that is placed stays.
    """

    seed: int
    nodes: tuple[Object, ...]
    residents: tuple[Object, ...]
    objects: tuple[Object, ...]
    questions: tuple[Object, ...]

    def part(self, name: str) -> tuple[Object, ...]:
        """The objects of one attribute."""
        objects: tuple[Object, ...] = getattr(self, name)
        return objects

    def with_part(self, name: str, objects: Iterable[Object]) -> "Scenario":
        """This scenario with other objects in one attribute."""
        changed: Any = {name: tuple(objects)}
        return replace(self, **changed)


@dataclass(slots=True)
class Drawing:
    """A scenario that is being drawn.

    Attributes:
        seed: the seed.
        features: the features that may be drawn.
        nodes: the names of its nodes.
        objects: see `Scenario`.
    """

    seed: int
    features: frozenset[str]
    nodes: list[str] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)

    def chance(self, owner: str, feature: str) -> random.Random:
        """The source of chance for one feature of one object."""
        return random.Random(f"{self.seed}/{owner}/{feature}")  # noqa: S311 - a test's draw, not a secret

    def has(self, feature: str) -> bool:
        """Whether this scenario has the feature: each has about half of them, so that they meet in pairs, not all."""
        return feature in self.features and self.chance("swarm", feature).random() < SWARM

    def draws(self, owner: str, feature: str) -> random.Random | None:
        """The source of chance if this object uses the feature, else None."""
        rng = self.chance(owner, feature)
        return rng if rng.random() < OFTEN[feature] and self.has(feature) else None


def scenario(seed: int, features: frozenset[str]) -> Scenario:
    """The scenario of a seed."""
    drawing = Drawing(seed, features)
    rng = drawing.chance("cluster", "sizes")
    drawing.nodes = [f"n{number}" for number in range(rng.randint(2, 6))]
    nodes = tuple(_node(drawing, name) for name in drawing.nodes)
    residents = tuple(_resident(drawing, f"r{number}") for number in range(rng.randint(0, 10)))
    questions = tuple(_question(drawing, f"q{number}") for number in range(4))
    drawing.objects += domains_volumes.csi_nodes(drawing)
    return Scenario(seed, nodes, residents, tuple(drawing.objects), questions)


def _node(drawing: Drawing, name: str) -> Object:
    rng = drawing.chance(name, "node")
    allocatable = {
        "cpu": rng.choice(("1500m", "2", "3", "4", "8")),
        "memory": rng.choice(("1536Mi", "2Gi", "4000000000", "8Gi")),
        "pods": rng.choice(("2", "3", "5", "110", "110", "110")),
        "ephemeral-storage": rng.choice(("5Gi", "10Gi")),
    }
    if rng.random() < 0.7:
        allocatable[FPGA] = rng.choice(("0", "1", "4"))
    if rng.random() < 0.6:
        allocatable[HUGE] = rng.choice(("0", "64Mi", "64Mi"))
    taints = _taints(rng) if drawing.has("tolerations") else []
    bad = 2 if drawing.has("tolerations") else 0.3
    ready = rng.choices(("True", "False", "Unknown"), (18, bad, bad))[0]
    if ready != "True":  # the condition and its taints, as the lifecycle controller leaves them
        key = f"node.kubernetes.io/{'not-ready' if ready == 'False' else 'unreachable'}"
        taints += [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    spec: Object = {"taints": taints}
    if rng.random() < bad / 20:
        spec["unschedulable"] = True
        if rng.random() < 0.5:
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    strict = rng.choice((True, False, None))
    labels = _labels(rng, name)
    system = labels.get("kubernetes.io/os")
    rules = [f"runs-{one}" for one in ("linux", "windows") if system in (one, None)]
    allocatable |= {f"{KUBELET}{rule}": "1000" for rule in (*rules, *(["keeps-groups"] if strict else []))}
    status: Object = {
        "capacity": allocatable,
        "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": ready}],
        "features": {} if strict is None else {"supplementalGroupsPolicy": strict},
    }
    if rng.random() < 0.5:
        status["declaredFeatures"] = sorted(rng.sample((RESTART_ALL, "FeatureOfTomorrow"), rng.randint(1, 2)))
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def _labels(rng: random.Random, name: str) -> dict[str, str]:
    labels = {"kubernetes.io/hostname": name}
    if rng.random() < 0.85:
        labels["topology.kubernetes.io/zone"] = rng.choice("abc")
    if rng.random() < 0.7:
        labels["disk"] = rng.choice(("ssd", "hdd"))
    if rng.random() < 0.8:
        labels["generation"] = rng.choice(GENERATIONS)
    system = rng.choices(("linux", "windows", None), (8, 1, 1))[0]
    if system:
        labels["kubernetes.io/os"] = system
    return labels


def _taints(rng: random.Random) -> list[Object]:
    keys = rng.sample(("dedicated", "gpu", "level"), rng.choices((0, 1, 2), (14, 5, 1))[0])
    values = ("a", "b", "5", None)
    taints = [{"key": key, "value": rng.choice(values), "effect": rng.choice(EFFECTS)} for key in keys]
    return [{name: value for name, value in taint.items() if value is not None} for taint in taints]


def _pod(drawing: Drawing, name: str) -> Object:
    rng = drawing.chance(name, "pod")
    labels = {"app": rng.choice(APPS)}
    if rng.random() < 0.3:
        labels["version"] = rng.choice(("1", "2"))
    containers = [{"name": f"c{number}", "image": "none"} for number in range(rng.choice((1, 1, 1, 2)))]
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": rng.choice(sorted(NAMESPACES)), "labels": labels},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
    }
    for feature, add in SHAPES.items():
        if (chance := drawing.draws(name, feature)) is not None:
            add(chance, pod)
    return pod


def _resident(drawing: Drawing, name: str) -> Object:
    pod = _pod(drawing, name)
    pod["spec"]["nodeName"] = drawing.chance(name, "node").choice(drawing.nodes)
    if (rng := drawing.draws(name, "existing anti-affinity")) is not None:
        term = domains_volumes.affinity_term(rng)
        if drawing.draws(name, "namespace selectors of existing pods") is None:
            term.pop("namespaceSelector", None)
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["spec"].setdefault("affinity", {})["podAntiAffinity"] = rules
    if (rng := drawing.draws(name, "resized residents")) is not None:
        resize(rng, pod)
    if (rng := drawing.draws(name, "ended residents")) is not None:
        pod.setdefault("status", {})["phase"] = rng.choice(("Succeeded", "Failed"))
    domains_volumes.add_claims(drawing, pod)
    return pod


def _question(drawing: Drawing, name: str) -> Object:
    pod = _pod(drawing, name)
    for feature, add in RULES.items():
        if (chance := drawing.draws(name, feature)) is not None:
            add(chance, pod)
    domains_volumes.add_rules(drawing, pod)
    domains_volumes.add_claims(drawing, pod)
    return pod
