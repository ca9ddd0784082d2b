"""The pods that tenants create, drawn by seed: shares, lines, whole GPUs, best effort, hopeless and malformed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.fleet import GIB, ZONE
from tests.chaos.labels import AFFINITY, ANTI_AFFINITY, EXCLUSION

Object = dict[str, Any]
Limits = dict[str, str]

MEMORY: Final = "plimsoll.dev/gpu-memory"
SHARE: Final = "plimsoll.dev/gpu-share"
COUNT: Final = "plimsoll.dev/gpu"
KIND: Final = "chaos/kind"
POLICY: Final = "plimsoll.dev/policy"
POLICIES: Final = (
    *("headroom", "kang-literal", "binpack", "locality", "topology", "fragmentation", "plimsoll"),
    "renamed",
)
"""The policies that pods name; the last one is none of them, as after a package was replaced."""
NO_LABELS: Final = ("", " ", "two words", "-x", "x" * 64, "ns/x", "\N{SNOWMAN}", '"', "a\nb")
MALFORMED: Final = "malformed"
"""The kind of the pods that no edit of their annotations can mend."""
PRIORITIES: Final = {"chaos-low": 10, "chaos-high": 1000}
"""The priority classes of the pods that have one. Their pods do not preempt, and none is below pods without a class,
which may: no kubelet here would end a victim, so room that is held for a preemptor would stay so for ever."""


@dataclass(slots=True)
class Draft:
    """A pod that is being drawn, with the limits of its containers; the second init container is a sidecar."""

    containers: list[Limits]
    annotations: dict[str, str]
    spec: Object
    init: list[Limits] = field(default_factory=list)


def draw_pod(number: int, rng: random.Random, *, labels: bool = False) -> Object:
    """The pod with this number: a function of its arguments and the random generator's state alone.

    With `labels`, some pods have locality labels, and some name a policy.
    """
    kind = rng.choices(list(_KINDS), [weight for weight, _ in _KINDS.values()])[0]
    draft = Draft([], {}, {})
    _KINDS[kind][1](draft, rng)
    if labels and rng.random() < 0.3:
        _label(draft, rng)
    if labels and rng.random() < 0.3:
        draft.annotations[POLICY] = rng.choice(POLICIES)
    if rng.random() < 0.15:
        draft.spec["priorityClassName"] = rng.choice(sorted(PRIORITIES))
    if rng.random() < 0.1:
        draft.spec["nodeSelector"] = {ZONE: rng.choice(("east", "west"))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{kind}-{number}",
            "labels": {KIND: kind},
            "annotations": draft.annotations,
        },
        "spec": {
            "schedulerName": "plimsoll",
            "terminationGracePeriodSeconds": 5,
            "containers": [
                _container(name, kind, limits)
                for name, limits in zip(("main", "side"), draft.containers, strict=False)
            ],
            "initContainers": [
                _container(f"init-{place}", kind, limits)
                | ({"restartPolicy": "Always"} if place == 1 else {})
                for place, limits in enumerate(draft.init)
            ],
            **draft.spec,
        },
    }


def _container(name: str, kind: str, limits: Limits) -> Object:
    return {"name": name, "image": f"none/{kind}", "resources": {"limits": {"cpu": "10m", **limits}}}


def _label(draft: Draft, rng: random.Random) -> None:
    """Draw locality labels: few that many pods have, and many that few have; now and then one that is no label."""
    for key in rng.sample((AFFINITY, ANTI_AFFINITY, EXCLUSION), rng.choice((1, 1, 1, 2))):
        few, many = f"few-{rng.randrange(3)}", f"many.{rng.randrange(200)}"
        draft.annotations[key] = rng.choice((few, many, many))
    if rng.random() < 0.05:
        draft.annotations[rng.choice((AFFINITY, EXCLUSION))] = rng.choice(NO_LABELS)


def _gib(rng: random.Random, most: int, gpus: int = 1) -> str:
    return str(gpus * rng.randint(1, most * 4) * GIB // 4)


def _shared(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{MEMORY: _gib(rng, 12), SHARE: str(rng.choice((10, 20, 25, 30, 50, 75)))}]
    if rng.random() < 0.2:
        draft.annotations["plimsoll.dev/gpu-share-limit"] = "80"


def _line(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{MEMORY: rng.choice(("4Gi", "9Gi", "11500Mi", "2000M", "22Gi", "40Gi"))}]


def _share_alone(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{SHARE: str(rng.choice((20, 40, 50)))}]


def _whole(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{COUNT: rng.choice(("1", "1", "1", "2"))}]


def _several(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{COUNT: "2", MEMORY: _gib(rng, 10, gpus=2), SHARE: str(2 * rng.choice((10, 30, 50)))}]


def _best_effort(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{COUNT: "1"} if rng.random() < 0.5 else {SHARE: "20"}]
    draft.annotations["plimsoll.dev/best-effort"] = "true"


def _pair(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{MEMORY: _gib(rng, 8), SHARE: "30"}, {MEMORY: _gib(rng, 8), SHARE: "40"}]


def _staged(draft: Draft, rng: random.Random) -> None:
    """Draw init containers that are larger than the container, and perhaps a sidecar between them."""
    draft.containers = [{MEMORY: _gib(rng, 6), SHARE: "20"}]
    draft.init = [{MEMORY: _gib(rng, 16), SHARE: str(rng.choice((20, 60, 100)))}]
    if rng.random() < 0.5:
        draft.init += [{MEMORY: _gib(rng, 2), SHARE: "10"}, {MEMORY: _gib(rng, 10)}]


def _part(draft: Draft, rng: random.Random) -> None:
    """Draw a part of a GPU's memory, perhaps of two GPUs."""
    draft.containers = [rng.choice(({COUNT: "1"}, {COUNT: "2"}, {SHARE: "30"}))]
    draft.annotations["plimsoll.dev/gpu-memory-percent"] = rng.choice(("5", "25", "33", "60"))


def _of_model(draft: Draft, rng: random.Random) -> None:
    _shared(draft, rng)
    draft.annotations["plimsoll.dev/gpu-model"] = rng.choice(("NVIDIA H100", "NVIDIA L4, NVIDIA L40S"))


def _without_gpu(draft: Draft, rng: random.Random) -> None:
    draft.containers = [{"cpu": f"{rng.randint(1, 50)}m"}]


def _hopeless(draft: Draft, rng: random.Random) -> None:
    draft.containers = [
        rng.choice(({MEMORY: "500Gi"}, {COUNT: "9"}, {SHARE: "100", COUNT: "1", MEMORY: "100Gi"}))
    ]


def _malformed(draft: Draft, rng: random.Random) -> None:
    fault = rng.randrange(3)
    if fault == 0:
        draft.containers = [{SHARE: "150"}]
    elif fault == 1:
        draft.containers = [{COUNT: "3", MEMORY: str(10 * GIB)}]  # 10 GiB do not divide by 3
    else:
        draft.containers = [{MEMORY: "4Gi"}]
        draft.spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "a-claim"}]


def _misspelt(draft: Draft, rng: random.Random) -> None:
    """Draw annotations that make no sense until a tenant mends them."""
    draft.containers = [{MEMORY: "4Gi"}]
    if rng.random() < 0.5:
        draft.annotations["plimsoll.dev/gpu-shares"] = "30"
    else:
        draft.annotations["plimsoll.dev/gpu-share-limit"] = "a lot"


_KINDS: Final[dict[str, tuple[float, Callable[[Draft, random.Random], None]]]] = {
    "shared": (38, _shared),
    "line": (12, _line),
    "share-alone": (4, _share_alone),
    "whole": (9, _whole),
    "several": (7, _several),
    "best-effort": (8, _best_effort),
    "pair": (8, _pair),
    "staged": (8, _staged),
    "part": (6, _part),
    "of-model": (4, _of_model),
    "without-gpu": (2, _without_gpu),
    "hopeless": (4, _hopeless),
    MALFORMED: (2, _malformed),
    "misspelt": (2, _misspelt),
}
"""Weight and drawing of each kind of pod."""
