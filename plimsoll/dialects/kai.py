"""KAI's annotations: `gpu-fraction` or `gpu-memory` (MiB), per GPU, over `gpu-fraction-num-devices` GPUs.

They concern one container of the pod: the first, or that which `gpu-fraction-container-name` names. A fraction there
is a part of a GPU's memory, and of no compute time. Read in kai-scheduler/KAI-Scheduler v0.17.0
(pkg/common/constants, docs/gpu-sharing) and in Run:ai's documents.
"""

from dataclasses import dataclass, field
from typing import Final

from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_MEMORY_PERCENT, annotation_field
from plimsoll.dialects import Json, Translation
from plimsoll.dialects.containers import amount, with_containers, with_resources
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_exact

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
TRANSLATED: Final = (FRACTION, MEMORY, DEVICES, CONTAINER)


@dataclass(frozen=True, slots=True)
class Kai:
    """KAI Scheduler; see the module."""

    name: str = field(default="KAI", init=False)
    scheduler: str = field(default="kai-scheduler", init=False)

    def asks(self, pod: Json) -> str | None:
        """See `Dialect`."""
        annotations = _annotations(pod)
        return next((annotation_field(name) for name in (FRACTION, MEMORY) if name in annotations), None)

    def translate(self, pod: Json) -> Translation:
        """See `Dialect`."""
        annotations = _annotations(pod)
        if FRACTION in annotations and MEMORY in annotations:
            problem = f"stands beside {FRACTION}"
            raise InputError(annotation_field(MEMORY), annotations[MEMORY], problem, "keep one of the two")
        devices = _whole(annotations, DEVICES, "GPUs") if DEVICES in annotations else 1
        left = {name: value for name, value in annotations.items() if name not in TRANSLATED}
        given = {GPU_COUNT: str(devices)}
        if MEMORY in annotations:
            given[GPU_MEMORY] = f"{_whole(annotations, MEMORY, 'MiB') * devices}Mi"
        else:
            left[GPU_MEMORY_PERCENT] = str(_percent(annotations[FRACTION]))
        container = _container(pod, annotations)
        theirs = ", ".join(f"{name}: {annotations[name]}" for name in TRANSLATED if name in annotations)
        ours = [f"{name}: {value} of container {container}" for name, value in given.items()]
        if GPU_MEMORY_PERCENT in left:
            ours.append(f"annotation {GPU_MEMORY_PERCENT}: {left[GPU_MEMORY_PERCENT]}")
        found = with_containers(
            pod, lambda where, one: with_resources(where, one, (), given) if one["name"] == container else one
        )
        metadata = {**(pod.get("metadata") or {}), "annotations": left}
        change = f"metadata.annotations: {theirs} became {', '.join(ours)}"
        return Translation({**found, "metadata": metadata}, (change,))


def _annotations(pod: Json) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _whole(annotations: dict[str, str], name: str, unit: str) -> int:
    value = amount(annotations[name], annotation_field(name), unit)
    if value == 0:
        raise InputError(annotation_field(name), annotations[name], "asks for nothing", "give 1 or more")
    return value


def _percent(text: str) -> int:
    """A fraction between 0 and 1 in whole percent; what is below a percent is left out."""
    percent = parse_exact(text, annotation_field(FRACTION), "write a fraction such as 0.5") * 100
    if not 1 <= percent < 100:
        problem = "is no fraction of a GPU"
        raise InputError(annotation_field(FRACTION), text, problem, "give 0.01 to 0.99")
    return int(percent)


def _container(pod: Json, annotations: dict[str, str]) -> str:
    spec = pod["spec"]
    names = [str(one["name"]) for one in (*spec["containers"], *(spec.get("initContainers") or ()))]
    container = annotations.get(CONTAINER, names[0])
    if container not in names:
        problem = "is no container of the pod"
        raise InputError(annotation_field(CONTAINER), container, problem, f"name one of {', '.join(names)}")
    return container
