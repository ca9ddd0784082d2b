"""The fields of a pod that other GPU schedulers read, by the beginnings of their names; none of theirs is left over.

A pod is translated as a whole, or refused by the name of the field. So each resource and annotation that is still in
a translated pod, and that asks a GPU scheduler of others for something, is refused here. Which one it is for matters
to the message alone.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from plimsoll.contract import RESOURCES as OURS
from plimsoll.contract import annotation_field
from plimsoll.dialects.containers import Json, asked_of, containers_of
from plimsoll.part.errors import InputError

_BY_HAND: Final = "ask by the resources of plimsoll.dev, and remove it"

RESOURCES: Final = {
    "nvidia.com/vgpu-": "vgpu-manager's",
    "nvidia.com/gpumem": "HAMi's",
    "nvidia.com/gpumem-percentage": "HAMi's",
    "nvidia.com/gpucores": "HAMi's",
    "nvidia.com/": "HAMi's by another name, or another scheduler's",
    "volcano.sh/": "Volcano's",
    "aliyun.com/gpu": "gpushare's",
    "aliyun.com/gpu-": "gpushare's",
    "tencent.com/vcuda-": "gpu-manager's",
    "koordinator.sh/gpu": "Koordinator's",
    "koordinator.sh/gpu-": "Koordinator's",
    "koordinator.sh/gpu.": "Koordinator's",
    "elasticgpu.io/": "Elastic GPU's",
    "nano-gpu/": "Nano GPU's",
    "nos.nebuly.com/": "nos'",
    "k8s.amazonaws.com/vgpu": "the virtual GPU plugin of AWS",
    "k8s.kuartis.com/vgpu": "the virtual GPU plugin of Kuartis",
}
"""Whose a resource is. A name that ends in a mark stands for all that begin with it; the first that fits counts."""

ANNOTATIONS: Final = {
    "nvidia.com/use-gputype": ("HAMi's", "name whole models in plimsoll.dev/gpu-model, and remove it"),
    "nvidia.com/nouse-gputype": (
        "HAMi's",
        "name the models that will do in plimsoll.dev/gpu-model, and remove it",
    ),
    "nvidia.com/use-gpuuuid": ("HAMi's", "name one GPU in plimsoll.dev/gpu-id, and remove it"),
    "nvidia.com/": ("HAMi's or vgpu-manager's", "remove it"),
    "hami.io/": ("HAMi's", "remove it; plimsoll.dev/policy chooses a policy"),
    "gpu-fraction": ("KAI's", "remove it"),
    "gpu-fraction.": ("KAI's", "remove it"),
    "gpu-fraction-": ("KAI's", "remove it"),
    "gpu-memory": ("KAI's", "remove it"),
    "gpu-memory.": ("KAI's", "remove it"),
    "gpu-sm-": ("KAI's", "remove it"),
    "volcano.sh/vgpu-": ("Volcano's", "remove it"),
    "sharedgpu/": ("KubeShare's", _BY_HAND),
    "kubeshare/": ("KubeShare's", _BY_HAND),
    "ALIYUN_COM_GPU_": ("gpushare's", "remove it"),
}
"""Whose an annotation is, and the remedy; named as in `RESOURCES`."""

GROUP: Final = "scheduling.k8s.io/group-name"
"""The annotation of a pod of Volcano's gangs."""

_DEVICE_PLUGIN: Final = re.compile(r"nvidia\.com/(?:gpu|mig-[a-z0-9.+-]+)(?:\.shared)?")
"""The resources of NVIDIA's device plugin. A pod that asks for nothing else is no scheduler's."""

_Found = TypeVar("_Found")


def _find(name: str, known: Mapping[str, _Found]) -> _Found | None:
    return next(
        (
            found
            for start, found in known.items()
            if name == start or (start[-1] in "/-._" and name.startswith(start))
        ),
        None,
    )


def whose_resource(name: str) -> str | None:
    """Whose a resource is, for people; None for one that asks no other GPU scheduler, as the device plugin's."""
    return None if _DEVICE_PLUGIN.fullmatch(name) else _find(name, RESOURCES)


def is_gpu_resource(name: str) -> bool:
    """Whether a resource asks any GPU scheduler for something, ours and the device plugin included."""
    return name in OURS or _find(name, RESOURCES) is not None


def refuse_annotations(where: str, annotations: Mapping[str, object], remedy: str | None = None) -> None:
    """Refuse annotations that ask another GPU scheduler.

    Args:
        where: the path of the annotations' object, as "Deployment/serve: "; empty for a pod.
        annotations: the annotations.
        remedy: the remedy in place of the annotation's own.

    Raises:
        InputError: by the name of the first one.
    """
    for name, value in annotations.items():
        if found := _find(str(name), ANNOTATIONS):
            problem = f"is {found[0]} and is not translated"
            raise InputError(where + annotation_field(name), str(value), problem, remedy or found[1])


def refuse_foreign(pod: Json) -> None:
    """Refuse a pod in which something asks another GPU scheduler.

    Raises:
        InputError: by the name of the first such field.
    """
    for where, container in containers_of(pod):
        for name, value in asked_of(container).items():
            whose = whose_resource(name)
            if whose is not None and str(value) != "0":
                problem = f"is {whose} and is not translated"
                raise InputError(f"{where}.resources[{name}]", value, problem, _BY_HAND)
    if claims := pod["spec"].get("resourceClaims"):
        problem = "is not handled by the plimsoll scheduler"
        raise InputError("spec.resourceClaims", f"{len(claims)} claim(s)", problem, "remove it")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for field, value in (
        ("spec.schedulerName", "volcano" if pod["spec"].get("schedulerName") == "volcano" else None),
        (annotation_field(GROUP), annotations.get(GROUP)),
    ):
        if value is not None:
            problem = "asks for a gang, and Plimsoll places each pod by itself"
            raise InputError(field, value, problem, "remove it, if the pods may start one by one")
    refuse_annotations("", annotations)
