"""The pod contract: the resources and annotations by which a pod asks for GPUs, and Plimsoll's answers to it.

`plimsoll.demand` reads the request, and `plimsoll.decision` reads the answer. Nothing else in Plimsoll reads the raw
annotations.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

SCHEDULER_NAME: Final = "plimsoll"
DOMAIN: Final = "plimsoll.dev/"

GPU_MEMORY: Final = "plimsoll.dev/gpu-memory"
"""Bytes of GPU memory of a container, in total over its GPUs."""
GPU_SHARE: Final = "plimsoll.dev/gpu-share"
"""Percent of one GPU's compute time guaranteed to a container, in total over its GPUs."""
GPU_COUNT: Final = "plimsoll.dev/gpu"
"""Number of distinct GPUs of a container; without the other two, that many whole GPUs."""
RESOURCES: Final = (GPU_MEMORY, GPU_SHARE, GPU_COUNT)

GPU_MEMORY_PERCENT: Final = "plimsoll.dev/gpu-memory-percent"
"""GPU memory of each container of the pod, in percent of each of its GPUs; in place of `GPU_MEMORY`."""
SHARE_LIMIT: Final = "plimsoll.dev/gpu-share-limit"
BEST_EFFORT: Final = "plimsoll.dev/best-effort"
AFFINITY: Final = "plimsoll.dev/affinity"
"""Pods of a namespace with one such label share one GPU."""
ANTI_AFFINITY: Final = "plimsoll.dev/anti-affinity"
"""Pods of a namespace with one such label never share a GPU."""
EXCLUSION: Final = "plimsoll.dev/exclusion"
"""The pod's GPUs are used by pods of its namespace with the same label alone."""
GPU_ID: Final = "plimsoll.dev/gpu-id"
GPU_MODEL: Final = "plimsoll.dev/gpu-model"
CPU_AFFINITY: Final = "plimsoll.dev/cpu-affinity"
"""`"true"`: bind each container to the CPUs near its GPUs (Gaia, §III.A)."""
POLICY: Final = "plimsoll.dev/policy"
RELOCATION_COST: Final = "plimsoll.dev/relocation-cost"
"""The pod may be moved: evicted where its replacement has a place elsewhere. Where several pods would do, those
of the least cost are moved. A pod without it is never moved."""
DECISION: Final = "plimsoll.dev/decision"
"""All that a booking needs, as JSON; written by the placer alone. See `plimsoll.decision`."""
ASSIGNED_PREFIX: Final = "gpus.plimsoll.dev/"
"""`gpus.plimsoll.dev/<container>`: comma-separated UUIDs, written by the placer alone."""

PLACER_LEASE: Final = "plimsoll-placer"
"""The Lease of the placer that places, in the placers' namespace. The chart's rights name it."""

LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
"""The API server's annotation on a pod that names the defaults which LimitRanges gave to its containers."""

OPT_OUT_LABEL: Final = "plimsoll.dev/node"
OPT_OUT: Final = "off"
"""A node whose label has this value takes no new pods, and its monitor advertises nothing. The pods that it has can
end as ever, because broker and monitor stay."""


def opt_out_of(labels: Mapping[str, str] | None) -> str | None:
    """The word by which a node's label takes the node out of Plimsoll, for people; None for a node that is in.

    Any other word than `on` takes the node out too, because its author meant to change something.
    """
    value = (labels or {}).get(OPT_OUT_LABEL, "on")
    if value.lower() == "on":
        return None
    if value == OPT_OUT:
        return OPT_OUT
    return f"{OPT_OUT} by the label {OPT_OUT_LABEL}={value}, whose words are {OPT_OUT} and on"


ASKED: Final = (
    GPU_MEMORY_PERCENT,
    SHARE_LIMIT,
    BEST_EFFORT,
    AFFINITY,
    ANTI_AFFINITY,
    EXCLUSION,
    GPU_ID,
    GPU_MODEL,
    CPU_AFFINITY,
    POLICY,
    RELOCATION_COST,
)
"""The annotations by which a pod asks."""
MOST_CHARACTERS: Final = 4096
"""The most characters of such an annotation: the names of a hundred models."""
MOST_ANNOTATION_BYTES: Final = 192 * 1024
"""The most bytes of all annotations of a pod that asks for a GPU. Kubernetes allows 256 KiB and checks this at every
update, but not when a Binding adds the placer's answers. Past it the kubelet could not write the pod's status."""
ANSWERED: Final = (DECISION, f"{DOMAIN}resize", f"{DOMAIN}resize-by", f"{DOMAIN}resize-answer")
"""The annotations in which Plimsoll answers, beside those with `ASSIGNED_PREFIX`."""


def asks_gpu(pod: Pod) -> bool:
    """Whether a container of the pod, or an init container, requests one of our resources."""
    return next(asking_containers(pod), None) is not None


def asking_containers(pod: Pod) -> Iterator[str]:
    """The names of the pod's containers and init containers that request one of our resources."""
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        asked = container.resources
        amounts = {**(asked.requests or {}), **(asked.limits or {})} if asked is not None else {}
        if any(name in RESOURCES and str(value) != "0" for name, value in amounts.items()):
            yield container.name


def refuse_answers(pod: Pod) -> None:
    """Refuse a pod that has the placer's answers before it was placed: its author may have invented them.

    Raises:
        InputError: the pod has such an annotation; the error names the first.
    """
    for name, value in (pod.metadata.annotations or {}).items():
        if name in ANSWERED or name.startswith(ASSIGNED_PREFIX):
            problem = "stands on a pod that is not placed yet, and tells of one that is"
            raise InputError(annotation_field(name), value[:80], problem, "recreate the pod without it")


def refuse_node_name(node: str | None) -> None:
    """Refuse a pod that asks for GPUs and names its node.

    Raises:
        InputError: the pod names a node, so its kubelet would take it at once.
    """
    if node:
        problem = "is set by the pod's author, so the placer would never see the pod"
        raise InputError(
            "spec.nodeName", node, problem, "remove it, and select the node by spec.nodeSelector"
        )


def refuse_long_annotations(pod: Pod) -> None:
    """Refuse a pod with an annotation that is too long to be read, or without space for the placer's answers.

    Raises:
        InputError: an annotation by which the pod asks has more than `MOST_CHARACTERS`, or all annotations of a pod
            that asks for a GPU have more than `MOST_ANNOTATION_BYTES`.
    """
    annotations = pod.metadata.annotations or {}
    for name in ASKED:
        if (length := len(annotations.get(name, ""))) > MOST_CHARACTERS:
            problem = f"are more than the {MOST_CHARACTERS} that are read"
            raise InputError(annotation_field(name), f"{length} characters", problem, "write less")
    in_all = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if in_all > MOST_ANNOTATION_BYTES and asks_gpu(pod):
        problem = f"are more than the {MOST_ANNOTATION_BYTES} that leave space for the placer's answers"
        raise InputError("metadata.annotations", f"{in_all} bytes", problem, "write less")


def defaults_of(annotations: Mapping[str, str] | None) -> dict[tuple[str, str], None]:
    """The resources that LimitRanges gave to containers of a pod: each name with `container x` or `init container x`.

    The API server fills them in before any webhook sees the pod, and notes it in an annotation.
    """
    _, _, text = (annotations or {}).get(LIMIT_RANGER, "").partition(": ")
    given: dict[tuple[str, str], None] = {}
    for part in text.split("; "):
        names, _, container = part.replace(" request for ", " limit for ").partition(" limit for ")
        given |= {(name, container): None for name in names.split(", ")}
    return given


def from_limit_range(pod: Pod, is_gpu: Callable[[str], bool] = RESOURCES.__contains__) -> str:
    """The GPU resources that a LimitRange gave to containers of a pod, for people; empty for nearly all pods.

    A default of GPU memory makes every container of the namespace ask for a GPU.
    """
    given = [
        f"{name} of {container}" for name, container in defaults_of(pod.metadata.annotations) if is_gpu(name)
    ]
    if not given:
        return ""
    where = f"kubectl -n {pod.metadata.namespace} get limitranges"
    return f"a LimitRange of the namespace gave it {', '.join(given)}, by its defaults ({where})"


def without_answers(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod that are not the placer's answers."""
    return {
        name: value
        for name, value in annotations.items()
        if name not in ANSWERED and not name.startswith(ASSIGNED_PREFIX)
    }


def assigned_annotation(container: ContainerName) -> str:
    """The annotation in which the placer writes a container's GPUs."""
    return ASSIGNED_PREFIX + container


def assigned_gpus(pod: Pod) -> dict[ContainerName, tuple[GpuUuid, ...]]:
    """Each container's GPUs as the placer assigned them, from a bound pod's annotations; empty if none."""
    return {
        ContainerName(name.removeprefix(ASSIGNED_PREFIX)): tuple(
            GpuUuid(uuid) for uuid in comma_separated(value)
        )
        for name, value in (pod.metadata.annotations or {}).items()
        if name.startswith(ASSIGNED_PREFIX)
    }


def comma_separated(text: str) -> Iterator[str]:
    """The parts of a list in an annotation, none of them empty."""
    return (part.strip() for part in text.split(",") if part.strip())


def annotation_field(name: str) -> str:
    """The path of an annotation in a pod, for people."""
    return f"metadata.annotations[{name}]"
