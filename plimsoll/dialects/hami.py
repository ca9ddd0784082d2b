"""HAMi's resources `nvidia.com/gpumem`, `gpumem-percentage` and `gpucores`, beside `nvidia.com/gpu`.

There, all of them are per GPU, and `nvidia.com/gpu` counts physical GPUs (1 if absent). Memory is in MiB; if both
memory resources are given, the absolute one counts. Without either, a container gets all memory of its GPUs. Cores
are percent of a GPU. Ours are totals over the GPUs. A container with `nvidia.com/gpu` alone, in a pod that is HAMi's
otherwise, gets whole GPUs. A pod with `nvidia.com/gpu` alone belongs to the device plugin and stays unchanged. HAMi's
cores are a cap as well as a reservation; ours are a guarantee, and an idle rest may be used. Read in HAMi v2.10.0
(pkg/device/nvidia/device.go, charts/hami/values.yaml).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_SHARE
from plimsoll.dialects import Json, Translation
from plimsoll.dialects.containers import amount, asked_of, first_resource, with_containers, with_resources
from plimsoll.part.errors import InputError

COUNT: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
PERCENT: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"
PRIORITY: Final = "nvidia.com/priority"
ASKED: Final = (MEMORY, PERCENT, CORES)
SCHEDULER: Final = "hami-scheduler"
VARIABLES: Final = ("CUDA_DISABLE_CONTROL", "GPU_CORE_UTILIZATION_POLICY")
"""The environment variables that steer HAMi's library."""


@dataclass(frozen=True, slots=True)
class Hami:
    """Project-HAMi/HAMi; see the module."""

    name: str = field(default="HAMi", init=False)
    scheduler: str = field(default=SCHEDULER, init=False)

    def asks(self, pod: Json) -> str | None:
        """See `Dialect`."""
        is_hamis = pod["spec"].get("schedulerName") == SCHEDULER
        return first_resource(pod, (COUNT, *ASKED) if is_hamis else ASKED)

    def translate(self, pod: Json) -> Translation:
        """See `Dialect`."""
        changes: list[str] = []
        percents: dict[int, tuple[str, str]] = {}

        def change(where: str, container: Json) -> Json:
            asked = asked_of(container)
            if not any(name in asked and str(asked[name]) != "0" for name in (COUNT, *ASKED)):
                return container
            given, percent = _translated(where, asked)
            said = "no percentage" if not percent else "all memory"
            if percent and str(asked.get(PERCENT, "0")) != "0":
                said = str(asked[PERCENT])
            percents[percent] = (f"{where}.resources", said)
            dropped = [name for name in (COUNT, *ASKED, PRIORITY) if name in asked]
            ours = ", ".join(f"{name}: {value}" for name, value in given.items())
            if percent:
                ours += f", annotation {GPU_MEMORY_PERCENT}: {percent}"
            theirs = ", ".join(f"{name}: {asked[name]}" for name in dropped if name != PRIORITY)
            changes.append(f"{where}.resources: {theirs} became {ours}")
            if PRIORITY in asked:
                changes.append(f"{where}.resources[{PRIORITY}]: has no counterpart and was removed")
            changes.extend(
                f"{where}.env[{one['name']}]: is HAMi's, stays, and has no effect"
                for one in container.get("env") or ()
                if one.get("name") in VARIABLES
            )
            return with_resources(where, container, dropped, given)

        found = with_containers(pod, change)
        return Translation(_with_percent(found, percents), tuple(changes))


def _translated(where: str, asked: Json) -> tuple[dict[str, str], int]:
    """A container's resources in our terms, and its percentage of memory; 0 for bytes and for whole GPUs."""
    count = _number(where, asked, COUNT, "GPUs") or 1
    memory_mib = _number(where, asked, MEMORY, "MiB")
    percent = _percentage(where, asked, PERCENT) or 100
    cores = _percentage(where, asked, CORES)
    counts_alone = not any(name in asked for name in ASKED)
    if counts_alone or (not memory_mib and percent == 100 and cores == 100):
        return {GPU_COUNT: str(count)}, 0
    given = {GPU_COUNT: str(count)} if count > 1 or not memory_mib else {}
    if memory_mib:
        given[GPU_MEMORY] = f"{memory_mib * count}Mi"
    if cores:
        given[GPU_SHARE] = str(cores * count)
    return given, 0 if memory_mib else percent


def _number(where: str, asked: Json, name: str, unit: str) -> int | None:
    return amount(asked[name], f"{where}.resources[{name}]", unit) if name in asked else None


def _percentage(where: str, asked: Json, name: str) -> int | None:
    value = _number(where, asked, name, "percent")
    if value is not None and value > 100:
        problem = "is more than one GPU has"
        raise InputError(f"{where}.resources[{name}]", asked[name], problem, "give 1 to 100, per GPU")
    return value


def _with_percent(pod: Json, percents: Mapping[int, tuple[str, str]]) -> Json:
    """The pod with the annotation for its percentage, given a container's field and words for each percentage."""
    if not any(percents):
        return pod
    if len(percents) > 1:
        (first, _), (field_name, asked), *_ = percents.values()
        problem = f"differs from {first}, and a pod has one percentage for all its containers"
        raise InputError(field_name, asked, problem, f"give equal percentages, or {MEMORY} everywhere")
    metadata = pod.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), GPU_MEMORY_PERCENT: str(next(iter(percents)))}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}
