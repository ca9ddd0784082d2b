"""Draws the features of pods for the differential test: what they ask for, and their rules about nodes."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]

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

FPGA: Final = "example.com/fpga"
HUGE: Final = "hugepages-2Mi"
KUBELET: Final = "kubelet.example.com/"
"""The prefix of resources that nodes have by the kubelet's rules about them."""
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


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


def resize(rng: random.Random, pod: Object) -> None:
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

SHAPES: Final[Mapping[str, Add]] = {
    "resources": _resources,
    "extended resources": _extended,
    "odd quantities": _odd,
    "overhead": _overhead,
    "init containers": _init_containers,
    "pod-level resources": _pod_level,
    "host ports": _ports,
}
"""The features of questions and residents alike."""

RULES: Final[Mapping[str, Add]] = {
    "tolerations": _tolerations,
    "node selector": _node_selector,
    "node affinity": _node_affinity,
    "preferred node affinity": _preferred,
    "operating system": _system,
    "supplemental groups": _groups,
    "declared features": _restart_all,
}
"""The features of questions alone."""
