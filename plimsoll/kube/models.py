"""The fields of Kubernetes objects that Plimsoll reads, and no others.

Decoding is strict on types and ignores unknown fields. The field of a feature that is not handled, and so must be
refused by name, is kept raw (`msgspec.Raw`): only its presence matters. Names are those of the API, so that the
models decode its JSON without renaming.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

Labels = dict[str, str]
Quantities = dict[str, str | int | float]


class OwnerReference(Struct, frozen=True):
    """An owner of an object; the controller's uid groups a Deployment's or Job's pods."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, frozen=True):
    """`metadata`, of pods and nodes."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's name, like every field below
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    creationTimestamp: str | None = None  # noqa: N815
    deletionTimestamp: str | None = None  # noqa: N815
    ownerReferences: list[OwnerReference] | None = None  # noqa: N815


class ListMeta(Struct, frozen=True):
    """`metadata` of a list. `more` asks for the next page; empty on the last one."""

    resourceVersion: str = ""  # noqa: N815
    more: str = msgspec.field(name="continue", default="")


class Page(Struct, frozen=True):
    """A page of a list. Its items are kept raw, so that a damaged item delays no other."""

    metadata: ListMeta
    items: list[Raw] | None = None


class Named(Struct, frozen=True):
    """The part that all objects have."""

    metadata: ObjectMeta


class ResourceRequirements(Struct, frozen=True):
    """`resources` of a container."""

    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: list[Raw] | None = None


class EnvVar(Struct, frozen=True):
    """An `env` entry; `valueFrom` is kept raw, as only the kubelet resolves it."""

    name: str = ""
    value: str | None = None
    valueFrom: Raw | UnsetType = UNSET  # noqa: N815


class ContainerPort(Struct, frozen=True):
    """A `ports` entry."""

    containerPort: int | None = None  # noqa: N815
    hostPort: int | None = None  # noqa: N815
    hostIP: str | None = None  # noqa: N815
    protocol: str | None = None


class RestartRule(Struct, frozen=True):
    """A `restartPolicyRules` entry of a container."""

    action: str = ""


class VolumeMount(Struct, frozen=True):
    """A `volumeMounts` entry."""

    name: str = ""
    mountPath: str = ""  # noqa: N815
    subPath: str | None = None  # noqa: N815
    subPathExpr: str | None = None  # noqa: N815
    readOnly: bool | None = None  # noqa: N815


class Container(Struct, frozen=True):
    """A container, init container or sidecar (an init container with `restartPolicy: Always`)."""

    name: str
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    workingDir: str | None = None  # noqa: N815
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements | None = None
    volumeMounts: list[VolumeMount] | None = None  # noqa: N815
    restartPolicy: str | None = None  # noqa: N815
    restartPolicyRules: list[RestartRule] | None = None  # noqa: N815


class Toleration(Struct, frozen=True):
    """A `tolerations` entry."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSelectorRequirement(Struct, frozen=True):
    """A requirement `key operator values` of node affinity."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Struct, frozen=True):
    """A selector of objects by their labels; an empty one selects everything."""

    matchLabels: Labels | None = None  # noqa: N815 - the API's name, like every field below
    matchExpressions: list[NodeSelectorRequirement] | None = None  # noqa: N815 - likewise


class NodeSelectorTerm(Struct, frozen=True):
    """A term holds if all of its requirements hold."""

    matchExpressions: list[NodeSelectorRequirement] | None = None  # noqa: N815
    matchFields: list[NodeSelectorRequirement] | None = None  # noqa: N815


class NodeSelector(Struct, frozen=True):
    """A selector holds if any of its terms holds."""

    nodeSelectorTerms: list[NodeSelectorTerm] = []  # noqa: N815


class PreferredSchedulingTerm(Struct, frozen=True):
    """A term that the pod prefers its node to meet; `weight` is 1–100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """Node affinity. The required part is a filter; the preferred part is a wish."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None  # noqa: N815
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredSchedulingTerm] | None = None  # noqa: N815


class PodAffinity(Struct, frozen=True):
    """Inter-pod affinity or anti-affinity: only its presence matters."""

    requiredDuringSchedulingIgnoredDuringExecution: list[Raw] | None = None  # noqa: N815
    preferredDuringSchedulingIgnoredDuringExecution: list[Raw] | None = None  # noqa: N815


class Affinity(Struct, frozen=True):
    """`spec.affinity`."""

    nodeAffinity: NodeAffinity | None = None  # noqa: N815
    podAffinity: PodAffinity | None = None  # noqa: N815
    podAntiAffinity: PodAffinity | None = None  # noqa: N815


class PodSecurityContext(Struct, frozen=True):
    """`spec.securityContext` of a pod."""

    supplementalGroupsPolicy: str | None = None  # noqa: N815


class PodSpec(Struct, frozen=True):
    """`spec` of a pod."""

    containers: list[Container] = []
    initContainers: list[Container] | None = None  # noqa: N815
    schedulerName: str | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815
    nodeSelector: Labels | None = None  # noqa: N815
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    priority: int | None = None
    priorityClassName: str | None = None  # noqa: N815
    activeDeadlineSeconds: int | None = None  # noqa: N815
    preemptionPolicy: str | None = None  # noqa: N815
    schedulingGates: list[Raw] | None = None  # noqa: N815
    topologySpreadConstraints: list[dict[str, Any]] | None = None  # noqa: N815
    resourceClaims: list[Raw] | None = None  # noqa: N815
    volumes: list[dict[str, Any]] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    hostNetwork: bool | None = None  # noqa: N815
    hostUsers: bool | None = None  # noqa: N815
    securityContext: PodSecurityContext | None = None  # noqa: N815
    os: dict[str, str] | None = None
    schedulingGroup: Raw | UnsetType = UNSET  # noqa: N815
    workloadRef: Raw | UnsetType = UNSET  # noqa: N815


class PodCondition(Struct, frozen=True):
    """A `status.conditions` entry."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class ContainerEnd(Struct, frozen=True):
    """`state.terminated` of a container."""

    exitCode: int = 0  # noqa: N815
    reason: str | None = None
    message: str | None = None


class ContainerState(Struct, frozen=True):
    """`state` of a container, as far as it has ended."""

    terminated: ContainerEnd | None = None


class ContainerStatus(Struct, frozen=True):
    """A container as its node reports it: id and state, and the resources that it has during and after a resize."""

    name: str = ""
    containerID: str | None = None  # noqa: N815
    state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    allocatedResources: Quantities | None = None  # noqa: N815


class PodStatus(Struct, frozen=True):
    """`status` of a pod. `resources` and `allocatedResources` are those of the pod's own level."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[PodCondition] | None = None
    nominatedNodeName: str | None = None  # noqa: N815
    startTime: str | None = None  # noqa: N815
    containerStatuses: list[ContainerStatus] | None = None  # noqa: N815
    initContainerStatuses: list[ContainerStatus] | None = None  # noqa: N815
    resources: ResourceRequirements | None = None
    allocatedResources: Quantities | None = None  # noqa: N815


class Pod(Struct, frozen=True):
    """A pod, as listed, watched, or written in a manifest."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    kind: str = "Pod"
    apiVersion: str = "v1"  # noqa: N815

    @property
    def full_name(self) -> str:
        """`<namespace>/<name>`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        """The pod's path in the API."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"


class Taint(Struct, frozen=True):
    """A `spec.taints` entry."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(Struct, frozen=True):
    """`spec` of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeCondition(Struct, frozen=True):
    """A `status.conditions` entry of a node."""

    type: str
    status: str


class NodeFeatures(Struct, frozen=True):
    """`status.features` of a node: abilities of its container runtime."""

    supplementalGroupsPolicy: bool | None = None  # noqa: N815


class NodeStatus(Struct, frozen=True):
    """`status` of a node."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[NodeCondition] | None = None
    features: NodeFeatures | None = None
    declaredFeatures: list[str] | None = None  # noqa: N815


class Node(Struct, frozen=True):
    """A node, as listed or watched."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class DisruptionBudgetSpec(Struct, frozen=True):
    """`spec` of a pod disruption budget; the selector is kept raw."""

    selector: Raw | UnsetType = UNSET


class DisruptionBudgetStatus(Struct, frozen=True):
    """`status` of a pod disruption budget, as its controller counts.

    Attributes:
        disruptionsAllowed: the pods that may be disrupted now.
        disruptedPods: the names of the pods whose disruption was accepted, and counted, already.
    """

    disruptionsAllowed: int = 0  # noqa: N815
    disruptedPods: dict[str, Raw] | None = None  # noqa: N815


class DisruptionBudget(Struct, frozen=True):
    """A `PodDisruptionBudget` of `policy/v1`, as listed or watched."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class Namespace(Struct, frozen=True):
    """A namespace, as listed or watched."""

    metadata: ObjectMeta = ObjectMeta()


TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""A pod in one of these phases holds no resources any more."""


def decode_pod(document: bytes | str) -> Pod:
    """A pod from JSON.

    Raises:
        msgspec.ValidationError: a field has the wrong type; the message names its path.
        msgspec.DecodeError: the document is no JSON.
    """
    return msgspec.json.decode(document, type=Pod)
