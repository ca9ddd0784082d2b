"""Draws a cluster and pods from a seed. The same seed and features give the same objects, and all are valid.

Each feature of each object has its own source of chance, so that turning one feature on changes no other.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.placer.kube.differential import domains_volumes
from tests.placer.kube.differential.features import OFTEN

Object = dict[str, Any]

NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {
    "differential-a": {"team": "a"},
    "differential-b": {"team": "b"},
}
RUNTIME_CLASSES: Final = (
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "differential-heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "200Mi", "ephemeral-storage": "1Gi"}},
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "differential-pinned"},
        "handler": "pinned",
        "overhead": {"podFixed": {"memory": "100Mi"}},
        "scheduling": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        },
    },
)

SWARM: Final = 0.45
"""The share of features that a scenario has. Pods with all of them fit nowhere, and show little."""
FPGA: Final = "example.com/fpga"
HUGE: Final = "hugepages-2Mi"
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
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
    labels = _labels(rng, name) | ({"keeps-groups": "true"} if strict else {})
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
    # The kubelet's rule as labels: kube-scheduler has no filter for it.
    return labels | {f"runs-{one}": "true" for one in ("linux", "windows") if system in (one, None)}


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
    for feature, add in _SHAPES.items():
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
        _resize(rng, pod)
    if (rng := drawing.draws(name, "ended residents")) is not None:
        pod.setdefault("status", {})["phase"] = rng.choice(("Succeeded", "Failed"))
    domains_volumes.add_claims(drawing, pod)
    return pod


def _question(drawing: Drawing, name: str) -> Object:
    pod = _pod(drawing, name)
    for feature, add in _RULES.items():
        if (chance := drawing.draws(name, feature)) is not None:
            add(chance, pod)
    domains_volumes.add_rules(drawing, pod)
    domains_volumes.add_claims(drawing, pod)
    return pod


def _request(container: Object, **amounts: str) -> None:
    container.setdefault("resources", {}).setdefault("requests", {}).update(amounts)


def _resources(rng: random.Random, pod: Object) -> None:
    for container in pod["spec"]["containers"]:
        if rng.random() < 0.8:
            _request(container, cpu=rng.choice(("100m", "250m", "500m", "1", "1500m")))
        if rng.random() < 0.6:
            _request(container, memory=rng.choice(("100Mi", "500Mi", "1Gi", "1G")))
        if rng.random() < 0.2:
            _request(container, **{"ephemeral-storage": rng.choice(("1Gi", "4Gi"))})


def _extended(rng: random.Random, pod: Object) -> None:
    container = rng.choice(pod["spec"]["containers"])
    name, amount = rng.choice(((FPGA, "1"), (FPGA, "1"), (FPGA, "0"), (FPGA, "3"), (HUGE, "32Mi")))
    container.setdefault("resources", {})["limits"] = {name: amount}
    _request(container, **{name: amount, "cpu": "100m"})


def _odd(rng: random.Random, pod: Object) -> None:
    container = rng.choice(pod["spec"]["containers"])
    _request(container, cpu=rng.choice(("0.1", "1e-1", "0", "333333u", "1.0005", "2000m")))
    _request(container, memory=rng.choice(("0.5Gi", "1e9", "1073741824500m", "0", "1.5Gi", "500k")))


def _overhead(rng: random.Random, pod: Object) -> None:
    pod["spec"]["runtimeClassName"] = rng.choice(RUNTIME_CLASSES)["metadata"]["name"]  # type: ignore[index]


def _init_containers(rng: random.Random, pod: Object) -> None:
    added = []
    for number in range(rng.randint(1, 3)):
        container: Object = {"name": f"i{number}", "image": "none"}
        _request(container, cpu=rng.choice(("100m", "500m", "1", "2")), memory=rng.choice(("50Mi", "1Gi")))
        if rng.random() < 0.5:
            container["restartPolicy"] = "Always"
            if rng.random() < 0.3:
                container["ports"] = [{"containerPort": 80, "hostPort": rng.choice((8080, 8081))}]
        added.append(container)
    pod["spec"]["initContainers"] = added


def _pod_level(rng: random.Random, pod: Object) -> None:
    """The pod's own level replaces the requests of its containers, which must not exceed it."""
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests", {})
        requests.pop("memory", None)
        if requests.pop("cpu", None) is not None and HUGE in requests:
            requests["cpu"] = "10m"  # the API server takes huge pages only beside CPU or memory
    pod["spec"].pop("initContainers", None)
    own = {"cpu": rng.choice(("500m", "1", "2")), "memory": rng.choice(("500Mi", "1Gi"))}
    if rng.random() < 0.3:
        del own[rng.choice(("cpu", "memory"))]
    pod["spec"]["resources"] = {rng.choice(("requests", "limits")): own}


def _tolerations(rng: random.Random, pod: Object) -> None:
    pod["spec"]["tolerations"] = [_toleration(rng) for _ in range(rng.randint(1, 3))]


def _toleration(rng: random.Random) -> Object:
    effect = {"effect": rng.choice(EFFECTS)} if rng.random() < 0.6 else {}
    kind = rng.choices(("any", "exists", "equal", "system"), (1, 4, 4, 2))[0]
    if kind == "any":
        return {"operator": "Exists", **effect}
    if kind == "system":
        key = rng.choice(("not-ready", "unreachable", "unschedulable"))
        return {"key": f"node.kubernetes.io/{key}", "operator": "Exists", **effect}
    key = rng.choice(("dedicated", "gpu", "level"))
    if kind == "exists":
        return {"key": key, "operator": "Exists", **effect}
    operator = rng.choice(({}, {"operator": "Equal"}))
    value = rng.choice(({}, {"value": "a"}, {"value": "b"}, {"value": "5"}))
    return {"key": key, **operator, **value, **effect}


def _node_selector(rng: random.Random, pod: Object) -> None:
    choices = ({"disk": "ssd"}, {"topology.kubernetes.io/zone": "a"}, {"disk": "hdd", "generation": "2"})
    selector = dict(rng.choice(choices))
    if pod["spec"].get("runtimeClassName") == "differential-pinned":
        selector.pop(
            "disk", None
        )  # the class selects disks itself, and the API server takes no contradiction
    pod["spec"]["nodeSelector"] = selector


def _requirement(rng: random.Random) -> Object:
    key = rng.choice(("disk", "topology.kubernetes.io/zone", "generation", "absent"))
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))  # codespell:ignore notin
    if operator in ("Gt", "Lt"):
        bounds = ("0", "2", "002", "9223372036854775806", "x", "9223372036854775808")
        return {"key": "generation", "operator": operator, "values": [rng.choice(bounds)]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = rng.sample(("ssd", "hdd", "a", "b", "2", ""), rng.randint(1, 3))
    return {"key": key, "operator": operator, "values": values}


def _term(rng: random.Random) -> Object:
    term: Object = {}
    if rng.random() < 0.85:
        term["matchExpressions"] = [_requirement(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        named = {"key": "metadata.name", "operator": rng.choice(("In", "NotIn"))}  # codespell:ignore notin
        term["matchFields"] = [{**named, "values": [rng.choice(("n0", "n1", "n2", "gone"))]}]
    return term  # empty now and then: such a term selects no node


def _node_affinity(rng: random.Random, pod: Object) -> None:
    terms = [_term(rng) for _ in range(rng.randint(1, 3))]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(required)


def _preferred(rng: random.Random, pod: Object) -> None:
    term = {"key": "disk", "operator": "In", "values": [rng.choice(("ssd", "hdd"))]}
    wish = {"weight": rng.choice((1, 50, 100)), "preference": {"matchExpressions": [term]}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
    pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(preferred)


def _ports(rng: random.Random, pod: Object) -> None:
    container = pod["spec"]["containers"][0]
    numbers = rng.sample((8080, 8081, 9090), rng.randint(1, 2))
    given = ("0.0.0.0", "127.0.0.1", "10.0.0.1", "::")  # noqa: S104 - a pod's field, never listened on
    addresses: tuple[Object, ...] = ({}, {}, *({"hostIP": one} for one in given))
    container["ports"] = [
        {
            "containerPort": 80,
            "hostPort": number,
            **rng.choice(addresses),
            "protocol": rng.choice(("TCP", "UDP")),
        }
        for number in numbers
    ]
    if rng.random() < 0.2:
        pod["spec"]["hostNetwork"] = True
        for port in container["ports"]:
            port["containerPort"] = port["hostPort"]
        pod["spec"].pop("initContainers", None)  # their container ports are no host ports


def _system(rng: random.Random, pod: Object) -> None:
    name = rng.choices(("linux", "windows"), (3, 1))[0]
    if rng.random() < 0.7:
        if name == "windows":
            pod["spec"].pop("resources", None)
        pod["spec"]["os"] = {"name": name}
    else:
        pod["metadata"]["labels"]["kubernetes.io/os"] = name


def _groups(rng: random.Random, pod: Object) -> None:
    if pod["spec"].get("os", {}).get("name") != "windows":
        pod["spec"]["securityContext"] = {
            "supplementalGroupsPolicy": rng.choice(("Strict", "Strict", "Merge"))
        }


def _restart_all(rng: random.Random, pod: Object) -> None:
    codes = {"operator": "In", "values": [rng.randint(1, 9)]}
    container = rng.choice(pod["spec"]["containers"])
    container["restartPolicy"] = "Never"
    container["restartPolicyRules"] = [{"action": "RestartAllContainers", "exitCodes": codes}]


def _resize(rng: random.Random, pod: Object) -> None:
    """A resize under way: containers, or the pod's own level, have or were promised other than they should have."""
    spec = pod["spec"]
    status: Object = {"containerStatuses": [_resized(rng, one) for one in spec["containers"]]}
    if "initContainers" in spec:
        status["initContainerStatuses"] = [_resized(rng, one) for one in spec["initContainers"]]
    if "resources" in spec:
        own = _resized(rng, {"name": "pod"})
        status |= {name: own[name] for name in ("resources", "allocatedResources")}
    if rng.random() < 0.4:
        reason = rng.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    pod["status"] = status


def _resized(rng: random.Random, container: Object) -> Object:
    has = {"cpu": rng.choice(("50m", "1", "2")), "memory": rng.choice(("50Mi", "1Gi"))}
    promised = {"cpu": rng.choice(("50m", "1500m")), "memory": rng.choice(("50Mi", "700Mi"))}
    return {
        "name": container["name"],
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "resources": {"requests": has},
        "allocatedResources": promised,
    }


Add = Callable[[random.Random, Object], None]

_SHAPES: Final[Mapping[str, Add]] = {
    "resources": _resources,
    "extended resources": _extended,
    "odd quantities": _odd,
    "overhead": _overhead,
    "init containers": _init_containers,
    "pod-level resources": _pod_level,
    "host ports": _ports,
}
"""The features of questions and residents alike."""

_RULES: Final[Mapping[str, Add]] = {
    "tolerations": _tolerations,
    "node selector": _node_selector,
    "node affinity": _node_affinity,
    "preferred node affinity": _preferred,
    "operating system": _system,
    "supplemental groups": _groups,
    "declared features": _restart_all,
}
"""The features of questions alone."""
