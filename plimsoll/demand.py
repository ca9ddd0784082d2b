"""A pod's demand for GPUs, read from its resources and annotations, or refused with field, value and remedy.

What always holds of a parsed demand: memory and share are per GPU, whole numbers, and together possible on some GPU.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from plimsoll.contract import (
    AFFINITY,
    ANSWERED,
    ANTI_AFFINITY,
    ASKED,
    BEST_EFFORT,
    CPU_AFFINITY,
    DOMAIN,
    EXCLUSION,
    GPU_COUNT,
    GPU_ID,
    GPU_MEMORY,
    GPU_MEMORY_PERCENT,
    GPU_MODEL,
    GPU_SHARE,
    POLICY,
    RELOCATION_COST,
    RESOURCES,
    SHARE_LIMIT,
    annotation_field,
    comma_separated,
)
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import Container, Pod
from plimsoll.lifespan import MAIN, Lifespan
from plimsoll.locality import LABEL_PATTERN, NO_LABELS, Locality, StatedLabels, locality_of
from plimsoll.part.errors import InputError
from plimsoll.percent import bytes_of
from plimsoll.quantity import parse_size, parse_whole

_DEVICES: Final = "nvidia.com/"
_COST: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_UUID_PREFIXES: Final = ("GPU-", "MIG-")
"""NVML's UUIDs begin so; any other text in `GPU_ID` is a name."""
GPU_NAME_PATTERN: Final = LABEL_PATTERN

MOST_INIT_CONTAINERS: Final = 32
"""The most init containers of a pod that may ask for a GPU. On each GPU, each takes some 300 bytes of the pod's
annotations, which have 256 KiB together."""

_Amounts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class ContainerDemand:
    """A container's demand on each of its GPUs.

    Attributes:
        gpus: number of distinct GPUs, 1 or more.
        memory_bytes: declared per GPU; None for a best-effort or whole-GPU container, and for one with `memory_pct`.
        share_pct: compute time guaranteed per GPU, 0–100.
        limit_pct: most compute time per GPU, 1–100, never below `share_pct`; 100 for whole GPUs.
        whole: the container owns its GPUs alone.
        memory_pct: declared in percent of each GPU, 1–100; None for a container that declares no percentage.
        lifespan: the part of the pod's life in which the container runs.
    """

    container: ContainerName
    gpus: int
    memory_bytes: int | None
    share_pct: int
    limit_pct: int
    whole: bool
    memory_pct: int | None = None
    lifespan: Lifespan = MAIN

    @property
    def best_effort(self) -> bool:
        """The container declares no memory and does not own its GPUs: measured headroom alone places it."""
        return self.memory_bytes is None and self.memory_pct is None and not self.whole

    def on(self, usable_bytes: int) -> "ContainerDemand":
        """The demand on a GPU with this many usable bytes: a percentage in bytes, see `plimsoll.percent`."""
        if self.memory_pct is None:
            return self
        return replace(self, memory_bytes=bytes_of(self.memory_pct, usable_bytes), memory_pct=None)


@dataclass(frozen=True, slots=True)
class PodDemand:
    """A pod's demand, over all its containers.

    Attributes:
        containers: the containers that ask for a GPU, in the order in which they begin: init containers first; empty
            for a pod without one.
        gpu_id: the only acceptable GPU by its UUID, or None for any.
        gpu_name: the pod's namespace and the name of its GPU, as `team-a/my-gpu`: pods with one name share one GPU,
            and a new name takes one that has no name yet (KubeShare's GPUID). None for a pod that names none.
        gpu_models: acceptable model names; empty means any.
        policy: the requested placement policy, or None for the placer's default.
        locality: the labels that say with which pods it may share a GPU, see `plimsoll.locality`.
        cpu_affinity: bind each container to the CPUs near its GPUs.
    """

    containers: tuple[ContainerDemand, ...]
    gpu_id: GpuUuid | None = None
    gpu_name: str | None = None
    gpu_models: tuple[str, ...] = ()
    policy: str | None = None
    locality: Locality = NO_LABELS
    cpu_affinity: bool = False


def hardest_first(demand: ContainerDemand) -> tuple[bool, int, int, int]:
    """The key by which the containers of a pod are placed: the one with the fewest places comes first."""
    return (not demand.whole, -demand.gpus, -(demand.memory_bytes or 0), -demand.share_pct)


def parse_pod(pod: Pod) -> PodDemand:
    """A pod's demand for GPUs.

    Raises:
        InputError: an annotation or resource of ours is unknown, malformed, or impossible.
    """
    annotations = pod.metadata.annotations or {}
    _refuse_unknown(annotations)
    limit_pct = _percent(annotations, SHARE_LIMIT, default=100)
    relocation_cost_of(annotations)
    best_effort = _flag(annotations, BEST_EFFORT)
    terms = _Terms(_memory_pct(annotations, best_effort=best_effort), limit_pct, best_effort)
    demands = tuple(_container_demand(one, asked, terms) for one, asked in _asking(pod))
    if not demands and any(name in annotations for name in ASKED):
        name = next(name for name in ASKED if name in annotations)
        problem, remedy = "stands on a pod that asks for no GPU", f"request {GPU_COUNT}"
        raise InputError(annotation_field(name), annotations[name], problem, remedy)
    loose = next((demand.container for demand in demands if demand.best_effort), None)
    if BEST_EFFORT in annotations and not best_effort and loose is not None:
        problem = (
            f"stands on a pod whose container {loose} asks for a share and no memory, which is best effort"
        )
        remedy = f"declare {GPU_MEMORY}, or leave the annotation out"
        raise InputError(annotation_field(BEST_EFFORT), annotations[BEST_EFFORT], problem, remedy)
    if limit_pct < 100 and demands and all(demand.whole for demand in demands):
        problem = "limits nothing: a container that owns its GPUs whole is never held up"
        remedy = f"leave it out, or declare {GPU_MEMORY} or {GPU_SHARE}"
        raise InputError(annotation_field(SHARE_LIMIT), annotations[SHARE_LIMIT], problem, remedy)
    return PodDemand(
        containers=demands,
        gpu_id=gpu_id_of(annotations),
        gpu_name=gpu_name_of(pod),
        gpu_models=_models(annotations),
        policy=_text(annotations, POLICY),
        locality=_locality(pod.metadata.namespace, annotations),
        cpu_affinity=_flag(annotations, CPU_AFFINITY),
    )


def relocation_cost_of(annotations: Mapping[str, str]) -> float | None:
    """The cost of moving a pod, as its owner states it: 0 or more. None for a pod that must not be moved.

    Raises:
        InputError: the annotation is no cost.
    """
    text = _text(annotations, RELOCATION_COST)
    if text is None:
        return None
    if not _COST.fullmatch(text):
        remedy = 'give "0" to "999999", with three decimals at most, or leave it out for a pod that must not be moved'
        raise InputError(annotation_field(RELOCATION_COST), text[:80], "is no cost", remedy)
    return float(text)


def gpu_id_of(annotations: Mapping[str, str]) -> GpuUuid | None:
    """The UUID that a pod pins; None for a pod that names no GPU, or names it otherwise.

    Raises:
        InputError: the annotation is empty.
    """
    text = _text(annotations, GPU_ID)
    return GpuUuid(text) if text is not None and text.startswith(_UUID_PREFIXES) else None


def gpu_name_of(pod: Pod) -> str | None:
    """The name of a pod's GPU with the pod's namespace, as in `PodDemand.gpu_name`.

    Raises:
        InputError: the annotation is no name.
    """
    text = _text(pod.metadata.annotations or {}, GPU_ID)
    if text is None or text.startswith(_UUID_PREFIXES):
        return None
    if not re.fullmatch(GPU_NAME_PATTERN, text):
        remedy = "give a UUID of NVML's, or 1 to 63 letters, digits, '-', '_' and '.'"
        raise InputError(annotation_field(GPU_ID), text, "is neither a UUID nor a name of a GPU", remedy)
    return f"{pod.metadata.namespace}/{text}"


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms that a pod's annotations set for all of its containers."""

    memory_pct: int | None
    limit_pct: int
    best_effort: bool


def _memory_pct(annotations: Mapping[str, str], *, best_effort: bool) -> int | None:
    if GPU_MEMORY_PERCENT not in annotations:
        return None
    memory_pct = _percent(annotations, GPU_MEMORY_PERCENT, default=100)
    if best_effort:
        field, remedy = annotation_field(GPU_MEMORY_PERCENT), f"leave it out, or the annotation {BEST_EFFORT}"
        raise InputError(field, annotations[GPU_MEMORY_PERCENT], "on a best-effort pod", remedy)
    return memory_pct


class _Asker(NamedTuple):
    """A container that asks for a GPU."""

    container: Container
    lifespan: Lifespan

    def field(self, name: str) -> str:
        """The path of one of its resources."""
        return _resource(self.container, name, is_init=self.lifespan.init is not None)


def _asking(pod: Pod) -> Iterator[tuple[_Asker, _Amounts]]:
    """The containers that ask for a GPU, in the order in which they begin, and the amounts that they ask for."""
    place = 0
    for container in pod.spec.initContainers or ():
        asked = _asked(container, is_init=True)
        if not asked:
            continue
        if place >= MOST_INIT_CONTAINERS:
            name = next(iter(asked))
            problem = f"is asked by more than {MOST_INIT_CONTAINERS} init containers of the pod"
            raise InputError(
                _resource(container, name, is_init=True), asked[name], problem, "let one container do more"
            )
        yield _Asker(container, Lifespan(place, container.restartPolicy == "Always")), asked
        place += 1
    for container in pod.spec.containers:
        if asked := _asked(container, is_init=False):
            yield _Asker(container, MAIN), asked


def _container_demand(asker: _Asker, asked: _Amounts, terms: _Terms) -> ContainerDemand:
    gpus = _whole(asker, asked, GPU_COUNT, "GPUs")
    memory = parse_size(asked.get(GPU_MEMORY, 0), asker.field(GPU_MEMORY), gpus or 1)
    share = _whole(asker, asked, GPU_SHARE, "percent")
    if gpus == 0 or (gpus is None and not memory and not share):
        field = asker.field(GPU_COUNT if gpus == 0 else next(iter(asked)))
        raise InputError(field, "0", "asks for nothing", "give 1 or more, or leave it out")
    if GPU_MEMORY in asked and not memory:
        remedy = (
            "declare what it needs, or leave it out: a share alone is best effort, and GPUs alone are whole"
        )
        raise InputError(asker.field(GPU_MEMORY), asked[GPU_MEMORY], "declares no memory", remedy)
    if memory:
        _refuse_memory_beside(asker, asked[GPU_MEMORY], terms)
    count = gpus or 1
    share_pct = _per_gpu(asker, GPU_SHARE, share or 0, count)
    _check_share(asker, share or 0, share_pct, count, terms.limit_pct)
    whole = not memory and not share and not terms.best_effort and terms.memory_pct is None
    return ContainerDemand(
        container=ContainerName(asker.container.name),
        gpus=count,
        memory_bytes=_per_gpu(asker, GPU_MEMORY, memory, count) if memory else None,
        share_pct=share_pct,
        limit_pct=100 if whole else terms.limit_pct,
        whole=whole,
        memory_pct=terms.memory_pct,
        lifespan=asker.lifespan,
    )


def _refuse_memory_beside(asker: _Asker, value: object, terms: _Terms) -> None:
    """Refuse a size in bytes on a pod whose annotations declare otherwise."""
    field = asker.field(GPU_MEMORY)
    if terms.best_effort:
        remedy = f"leave out {GPU_MEMORY}, or the annotation {BEST_EFFORT}"
        raise InputError(field, value, "on a best-effort pod", remedy)
    if terms.memory_pct is not None:
        problem = f"stands beside the pod's {GPU_MEMORY_PERCENT} of {terms.memory_pct}"
        remedy = f"leave out {GPU_MEMORY}, or the annotation {GPU_MEMORY_PERCENT}"
        raise InputError(field, value, problem, remedy)


def _check_share(asker: _Asker, share: int, share_pct: int, gpus: int, limit_pct: int) -> None:
    field = asker.field(GPU_SHARE)
    if share_pct > 100:
        raise InputError(field, str(share), f"is more than {gpus} GPU(s) have", f"give at most {100 * gpus}")
    if share_pct > limit_pct:
        remedy = f"lower it to {limit_pct} per GPU, or raise {SHARE_LIMIT}"
        raise InputError(field, str(share), f"is above the pod's {SHARE_LIMIT} of {limit_pct}", remedy)


def _asked(container: Container, *, is_init: bool) -> _Amounts:
    """A container's resources in our domain. The API demands a limit of the same amount."""
    resources = container.resources
    if resources is None:
        return {}
    limits, requests = resources.limits or {}, resources.requests or {}
    asked = {name: value for name, value in {**requests, **limits}.items() if name.startswith(DOMAIN)}
    for name, value in asked.items():
        field = _resource(container, name, is_init=is_init)
        if name not in RESOURCES:
            raise InputError(field, value, "is no resource of Plimsoll", _suggest(name, RESOURCES))
        if str(requests.get(name, value)) != str(value):
            remedy = "give the same amount in both, or the limit alone"
            raise InputError(field, requests[name], f"differs from the limit {value}", remedy)
    _refuse_devices(container, limits | requests, is_init=is_init, beside=next(iter(asked), None))
    return asked


def _refuse_devices(
    container: Container, resources: Mapping[str, str | float], *, is_init: bool, beside: str | None
) -> None:
    """Refuse a container that gets a GPU of NVIDIA's device plugin too, because it would see only one of them."""
    if beside is None:
        return
    for name, value in resources.items():
        if name.startswith(_DEVICES) and str(value) != "0":
            problem = f"asks NVIDIA's device plugin for a GPU, and {beside} asks Plimsoll for one"
            raise InputError(_resource(container, name, is_init=is_init), value, problem, "ask in one way")


def _whole(asker: _Asker, asked: _Amounts, name: str, unit: str) -> int | None:
    return parse_whole(asked[name], asker.field(name), unit) if name in asked else None


def _per_gpu(asker: _Asker, name: str, total: int, gpus: int) -> int:
    if total % gpus:
        remedy = f"give a multiple of {gpus}"
        raise InputError(asker.field(name), str(total), f"does not divide evenly by {gpus} GPUs", remedy)
    return total // gpus


def _refuse_unknown(annotations: Mapping[str, str]) -> None:
    for name, value in annotations.items():
        if name.startswith(DOMAIN) and name not in ASKED and name not in ANSWERED:
            raise InputError(
                annotation_field(name), value, "is no annotation of Plimsoll", _suggest(name, ASKED)
            )


def _suggest(name: str, known: tuple[str, ...]) -> str:
    if name in RESOURCES:
        return "give it in the container's resources.limits"
    if name in ASKED:
        return "give it in metadata.annotations"
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _percent(annotations: Mapping[str, str], name: str, default: int) -> int:
    if name not in annotations:
        return default
    value = parse_whole(annotations[name], annotation_field(name), "percent")
    if not 1 <= value <= 100:
        raise InputError(
            annotation_field(name), annotations[name], "is no percentage of a GPU", "give 1 to 100"
        )
    return value


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    value = annotations.get(name, "false")
    if value not in ("true", "false"):
        raise InputError(
            annotation_field(name), value, "is neither true nor false", 'write "true" or "false"'
        )
    return value == "true"


def _text(annotations: Mapping[str, str], name: str) -> str | None:
    value = annotations.get(name)
    if value is not None and not value.strip():
        raise _empty(name, value)
    return value.strip() if value else None


def _locality(namespace: str, annotations: Mapping[str, str]) -> Locality:
    labels = (_label(annotations, name) for name in (AFFINITY, ANTI_AFFINITY, EXCLUSION))
    return locality_of(namespace, StatedLabels(*labels))


def _label(annotations: Mapping[str, str], name: str) -> str | None:
    text = _text(annotations, name)
    if text is not None and not re.fullmatch(LABEL_PATTERN, text):
        remedy = "give 1 to 63 letters, digits, '-', '_' and '.'"
        raise InputError(annotation_field(name), text[:80], "is no label", remedy)
    return text


def _models(annotations: Mapping[str, str]) -> tuple[str, ...]:
    text = _text(annotations, GPU_MODEL)
    models = tuple(comma_separated(text or ""))
    if text is not None and not models:  # commas alone must not mean any model
        raise _empty(GPU_MODEL, text)
    return models


def _empty(name: str, value: str) -> InputError:
    return InputError(annotation_field(name), value, "is empty", "give a value or leave the annotation out")


def _resource(container: Container, name: str, *, is_init: bool) -> str:
    return f"spec.{'initContainers' if is_init else 'containers'}[{container.name}].resources[{name}]"
