"""The placer's answer on a bound pod: the annotation `plimsoll.dev/decision`, which holds all that a booking needs.

What always holds: the placer alone writes the annotation, in the Binding and again in a resize. For a bound pod it is
the only source: placer and broker both read it through `decision_of`, and neither reads there what the pod asks for.
`gpus.plimsoll.dev/<container>` repeats the GPUs, because a `fieldRef` names one key.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from plimsoll.contract import DECISION, annotation_field, assigned_annotation
from plimsoll.cpus import parse_cpus
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import Pod
from plimsoll.lifespan import NO_ORDER, StartOrder
from plimsoll.locality import NONE_STATED, StatedLabels
from plimsoll.part.errors import InputError

_Bytes = Annotated[int, Meta(ge=0, lt=1 << 62)]
_SomeBytes = Annotated[int, Meta(gt=0, lt=1 << 62)]
_SharePct = Annotated[int, Meta(ge=0, le=100)]
_LimitPct = Annotated[int, Meta(ge=1, le=100)]

_REMEDY: Final = "recreate the pod"


class GpuGrant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of one GPU that one container was given.

    Attributes:
        memory_bytes: the declared size, or the one of the last resize; None for best-effort and whole GPUs.
        line_bytes: the line that the broker enforces: `memory_bytes`, or the bytes that promises left free.
        share_pct: guaranteed compute time, in percent of the GPU; 100 for whole GPUs.
        limit_pct: the most compute time, in percent of the GPU; never below `share_pct`.
        whole: the container owns the GPU alone.
    """

    gpu: GpuUuid
    memory_bytes: _SomeBytes | None = None
    line_bytes: _Bytes
    share_pct: _SharePct = 0
    limit_pct: _LimitPct = 100
    whole: bool = False


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation: the parts of GPUs that a pod was given, and the reasons for its place.

    Attributes:
        containers: the grants of each container that asked for a GPU, one for each of its GPUs; init containers
            among them.
        time: the time of the decision, RFC 3339 in UTC.
        parts: sub-scores by `<container>/<gpu>` and name.
        resized: the containers whose grants a resize has changed.
        expected: what containers that declare no memory were expected to need, and the source of that figure, for
            people.
        start: the order in which the init containers among `containers` begin. A reader that does not know this field
            counts all grants as if all containers ran at once, which is never too little.
        cpus: of a pod that wants it (`plimsoll.dev/cpu-affinity`), the CPUs near each container's GPUs, as Linux
            lists them. A container that is missing is not bound.
        note: a remark about the place for people, such as facts that were not known of the node; or empty.
        labels: the pod's locality labels, without its namespace.
    """

    containers: Mapping[ContainerName, tuple[GpuGrant, ...]]
    score: float
    policy: str
    time: str
    parts: Mapping[str, Mapping[str, float]] = {}
    resized: tuple[ContainerName, ...] = ()
    expected: str = ""
    start: StartOrder = NO_ORDER
    cpus: Mapping[ContainerName, str] = {}
    note: str = ""
    labels: StatedLabels = NONE_STATED


def annotations_of(decision: Decision) -> dict[str, str]:
    """The placer's annotations for a decision: the decision itself, and the GPUs of each container."""
    gpus = {
        assigned_annotation(container): ",".join(grant.gpu for grant in grants)
        for container, grants in decision.containers.items()
    }
    return {**gpus, DECISION: msgspec.json.encode(decision).decode()}


def decision_of(pod: Pod) -> Decision | None:
    """The placer's decision for a pod, resizes included; None if there is none.

    Raises:
        InputError: the annotation is damaged.
    """
    text = (pod.metadata.annotations or {}).get(DECISION)
    if text is None:
        return None
    try:
        decision = msgspec.json.decode(text, type=Decision)
    except (msgspec.MsgspecError, RecursionError) as error:  # RecursionError: thousands of nested brackets
        raise InputError(annotation_field(DECISION), text[:80], f"is damaged ({error})", _REMEDY) from error
    return _checked(decision, text)


def _checked(decision: Decision, text: str) -> Decision:
    problem = None
    if not decision.containers:
        problem = "gives no container a GPU"
    for container, grants in decision.containers.items():
        if not grants or len({grant.gpu for grant in grants}) < len(grants):
            problem = f"gives {container} no GPU, or one GPU twice"
        for grant in grants:
            if grant.share_pct > grant.limit_pct:
                problem = f"gives {container} a share above its limit of {grant.limit_pct}"
    for container, cpus in decision.cpus.items():
        parse_cpus(cpus, f"{annotation_field(DECISION)}.cpus[{container}]")
    start = decision.start
    if len(set(start.init)) < len(start.init) or not decision.containers.keys() >= set(start.init):
        problem = "starts a container twice, or one that has no GPU"
    if not set(start.sidecars) <= set(start.init):
        problem = "has a sidecar that is no init container"
    if problem is not None:
        raise InputError(annotation_field(DECISION), text[:80], problem, _REMEDY)
    return decision
