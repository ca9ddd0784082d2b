"""The pod contract: the resources and annotations by which a pod asks for GPUs, and Plimsoll's answers to it.

`parse_pod` turns a pod into demands, or refuses it with field, value and remedy. The answer is read by
`plimsoll.decision`. Nothing else in Plimsoll reads the raw annotations. What always holds of a parsed demand: memory
and share are per GPU, whole numbers, and together possible on some GPU.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import Container, Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_whole

SCHEDULER_NAME: Final = "plimsoll"
DOMAIN: Final = "plimsoll.dev/"

GPU_MEMORY: Final = "plimsoll.dev/gpu-memory"
"""Bytes of GPU memory of a container, in total over its GPUs."""
GPU_SHARE: Final = "plimsoll.dev/gpu-share"
"""Percent of one GPU's compute time guaranteed to a container, in total over its GPUs."""
GPU_COUNT: Final = "plimsoll.dev/gpu"
"""Number of distinct GPUs of a container; without the other two, that many whole GPUs."""
RESOURCES: Final = (GPU_MEMORY, GPU_SHARE, GPU_COUNT)

SHARE_LIMIT: Final = "plimsoll.dev/gpu-share-limit"
BEST_EFFORT: Final = "plimsoll.dev/best-effort"
AFFINITY: Final = "plimsoll.dev/affinity"
ANTI_AFFINITY: Final = "plimsoll.dev/anti-affinity"
EXCLUSION: Final = "plimsoll.dev/exclusion"
GPU_ID: Final = "plimsoll.dev/gpu-id"
GPU_MODEL: Final = "plimsoll.dev/gpu-model"
POLICY: Final = "plimsoll.dev/policy"
DECISION: Final = "plimsoll.dev/decision"
"""All that a booking needs, as JSON; written by the placer alone. See `plimsoll.decision`."""
LINES: Final = "plimsoll.dev/lines"
SHARES: Final = "plimsoll.dev/shares"
"""Resizes of pods with a decision of the first form: bytes by container and GPU, share and limit by container."""
ASSIGNED_PREFIX: Final = "gpus.plimsoll.dev/"
"""`gpus.plimsoll.dev/<container>`: comma-separated UUIDs, written by the placer alone."""

_ASKED: Final = (SHARE_LIMIT, BEST_EFFORT, AFFINITY, ANTI_AFFINITY, EXCLUSION, GPU_ID, GPU_MODEL, POLICY)
_ANSWERED: Final = (DECISION, LINES, SHARES)


@dataclass(frozen=True, slots=True)
class ContainerDemand:
    """A container's demand on each of its GPUs.

    Attributes:
        gpus: number of distinct GPUs, 1 or more.
        memory_bytes: declared per GPU; None for a best-effort or whole-GPU container.
        share_pct: compute time guaranteed per GPU, 0–100.
        limit_pct: most compute time per GPU, 1–100, never below `share_pct`; 100 for whole GPUs.
        whole: the container owns its GPUs alone.
    """

    container: ContainerName
    gpus: int
    memory_bytes: int | None
    share_pct: int
    limit_pct: int
    whole: bool

    @property
    def best_effort(self) -> bool:
        """The container declares no memory and does not own its GPUs: measured headroom alone places it."""
        return self.memory_bytes is None and not self.whole


@dataclass(frozen=True, slots=True)
class PodDemand:
    """A pod's demand, over all its containers.

    Attributes:
        containers: the containers that ask for a GPU, in the pod's order; empty for a pod without one.
        gpu_id: the only acceptable GPU, or None for any.
        gpu_models: acceptable model names; empty means any.
        policy: the requested placement policy, or None for the placer's default.
        affinity, anti_affinity, exclusion: KubeShare's locality labels, or None.
    """

    containers: tuple[ContainerDemand, ...]
    gpu_id: GpuUuid | None = None
    gpu_models: tuple[str, ...] = ()
    policy: str | None = None
    affinity: str | None = None
    anti_affinity: str | None = None
    exclusion: str | None = None


def parse_pod(pod: Pod) -> PodDemand:
    """A pod's demand for GPUs.

    Raises:
        InputError: an annotation or resource of ours is unknown, malformed, or impossible.
    """
    annotations = pod.metadata.annotations or {}
    _refuse_unknown(annotations)
    limit_pct = _percent(annotations, SHARE_LIMIT, default=100)
    best_effort = _flag(annotations, BEST_EFFORT)
    _refuse_init_containers(pod)
    demands = tuple(
        demand
        for container in pod.spec.containers
        if (demand := _container_demand(container, limit_pct, best_effort=best_effort)) is not None
    )
    if not demands and any(name in annotations for name in _ASKED):
        name = next(name for name in _ASKED if name in annotations)
        raise InputError(
            _annotation(name),
            annotations[name],
            "stands on a pod that asks for no GPU",
            f"request {GPU_COUNT}",
        )
    if limit_pct < 100 and demands and all(demand.whole for demand in demands):
        problem = "limits nothing: a container that owns its GPUs whole is never held up"
        remedy = f"leave it out, or declare {GPU_MEMORY} or {GPU_SHARE}"
        raise InputError(_annotation(SHARE_LIMIT), annotations[SHARE_LIMIT], problem, remedy)
    return PodDemand(
        containers=demands,
        gpu_id=GpuUuid(text) if (text := _text(annotations, GPU_ID)) else None,
        gpu_models=_models(annotations),
        policy=_text(annotations, POLICY),
        affinity=_text(annotations, AFFINITY),
        anti_affinity=_text(annotations, ANTI_AFFINITY),
        exclusion=_text(annotations, EXCLUSION),
    )


def asks_gpu(pod: Pod) -> bool:
    """Whether a container of the pod, or an init container, requests one of our resources."""
    return any(
        str(value) != "0"
        for container in (*pod.spec.containers, *(pod.spec.initContainers or ()))
        if (asked := container.resources) is not None
        for name, value in {**(asked.requests or {}), **(asked.limits or {})}.items()
        if name in RESOURCES
    )


def refuse_answers(pod: Pod) -> None:
    """Refuse a pod that has the placer's answers before it was placed: its author may have invented them.

    Raises:
        InputError: the pod has such an annotation; the error names the first.
    """
    for name, value in (pod.metadata.annotations or {}).items():
        if name in _ANSWERED or name.startswith(ASSIGNED_PREFIX):
            problem = "stands on a pod that is not placed yet, and is for the placer alone to write"
            raise InputError(_annotation(name), value[:80], problem, "recreate the pod without it")


def assigned_annotation(container: ContainerName) -> str:
    """The annotation in which the placer writes a container's GPUs."""
    return ASSIGNED_PREFIX + container


def assigned_gpus(pod: Pod) -> dict[ContainerName, tuple[GpuUuid, ...]]:
    """Each container's GPUs as the placer assigned them, from a bound pod's annotations; empty if none."""
    return {
        ContainerName(name.removeprefix(ASSIGNED_PREFIX)): tuple(GpuUuid(uuid) for uuid in _split(value))
        for name, value in (pod.metadata.annotations or {}).items()
        if name.startswith(ASSIGNED_PREFIX)
    }


def _container_demand(container: Container, limit_pct: int, *, best_effort: bool) -> ContainerDemand | None:
    asked = _asked(container)
    if not asked:
        return None
    memory = _whole(container, asked, GPU_MEMORY, "bytes")
    share = _whole(container, asked, GPU_SHARE, "percent")
    gpus = _whole(container, asked, GPU_COUNT, "GPUs")
    if gpus == 0 or (gpus is None and not memory and not share):
        field = _resource(container, GPU_COUNT if gpus == 0 else next(iter(asked)))
        raise InputError(field, "0", "asks for nothing", "give 1 or more, or leave it out")
    if best_effort and memory:
        remedy = f"leave out {GPU_MEMORY}, or the annotation {BEST_EFFORT}"
        raise InputError(_resource(container, GPU_MEMORY), asked[GPU_MEMORY], "on a best-effort pod", remedy)
    count = gpus or 1
    share_pct = _per_gpu(container, GPU_SHARE, share or 0, count)
    _check_share(container, share or 0, share_pct, count, limit_pct)
    whole = not memory and not share and not best_effort
    return ContainerDemand(
        container=ContainerName(container.name),
        gpus=count,
        memory_bytes=_per_gpu(container, GPU_MEMORY, memory, count) if memory else None,
        share_pct=share_pct,
        limit_pct=100 if whole else limit_pct,
        whole=whole,
    )


def _check_share(container: Container, share: int, share_pct: int, gpus: int, limit_pct: int) -> None:
    field = _resource(container, GPU_SHARE)
    if share_pct > 100:
        raise InputError(field, str(share), f"is more than {gpus} GPU(s) have", f"give at most {100 * gpus}")
    if share_pct > limit_pct:
        remedy = f"lower it to {limit_pct} per GPU, or raise {SHARE_LIMIT}"
        raise InputError(field, str(share), f"is above the pod's {SHARE_LIMIT} of {limit_pct}", remedy)


def _asked(container: Container) -> dict[str, str | int | float]:
    """A container's resources in our domain. The API allows no request without its limit, or unlike it."""
    resources = container.resources
    if resources is None:
        return {}
    limits, requests = resources.limits or {}, resources.requests or {}
    asked = {name: value for name, value in {**requests, **limits}.items() if name.startswith(DOMAIN)}
    for name, value in asked.items():
        if name not in RESOURCES:
            raise InputError(
                _resource(container, name), value, "is no resource of Plimsoll", _suggest(name, RESOURCES)
            )
        if str(requests.get(name, value)) != str(value):
            remedy = "give the same amount in both, or the limit alone"
            raise InputError(
                _resource(container, name), requests[name], f"differs from the limit {value}", remedy
            )
    return asked


def _whole(container: Container, asked: Mapping[str, str | int | float], name: str, unit: str) -> int | None:
    return parse_whole(asked[name], _resource(container, name), unit) if name in asked else None


def _per_gpu(container: Container, name: str, total: int, gpus: int) -> int:
    if total % gpus:
        remedy = f"give a multiple of {gpus}"
        raise InputError(
            _resource(container, name), str(total), f"does not divide evenly by {gpus} GPUs", remedy
        )
    return total // gpus


def _refuse_init_containers(pod: Pod) -> None:
    for container in pod.spec.initContainers or ():
        for name, value in _asked(container).items():
            remedy = "ask for GPUs in spec.containers only; init containers with GPUs are not handled"
            raise InputError(
                f"spec.initContainers[{container.name}].resources[{name}]", value, "is refused", remedy
            )


def _refuse_unknown(annotations: Mapping[str, str]) -> None:
    for name, value in annotations.items():
        if name.startswith(DOMAIN) and name not in _ASKED and name not in _ANSWERED:
            raise InputError(_annotation(name), value, "is no annotation of Plimsoll", _suggest(name, _ASKED))


def _suggest(name: str, known: tuple[str, ...]) -> str:
    if name in RESOURCES:
        return "give it in the container's resources.limits"
    if name in _ASKED:
        return "give it in metadata.annotations"
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _percent(annotations: Mapping[str, str], name: str, default: int) -> int:
    if name not in annotations:
        return default
    value = parse_whole(annotations[name], _annotation(name), "percent")
    if not 1 <= value <= 100:
        raise InputError(_annotation(name), annotations[name], "is no percentage of a GPU", "give 1 to 100")
    return value


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    value = annotations.get(name, "false")
    if value not in ("true", "false"):
        raise InputError(_annotation(name), value, "is neither true nor false", 'write "true" or "false"')
    return value == "true"


def _text(annotations: Mapping[str, str], name: str) -> str | None:
    value = annotations.get(name)
    if value is not None and not value.strip():
        raise _empty(name, value)
    return value.strip() if value else None


def _models(annotations: Mapping[str, str]) -> tuple[str, ...]:
    text = _text(annotations, GPU_MODEL)
    models = tuple(_split(text or ""))
    if text is not None and not models:  # commas alone must not mean any model
        raise _empty(GPU_MODEL, text)
    return models


def _split(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _empty(name: str, value: str) -> InputError:
    return InputError(_annotation(name), value, "is empty", "give a value or leave the annotation out")


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _resource(container: Container, name: str) -> str:
    return f"spec.containers[{container.name}].resources[{name}]"
