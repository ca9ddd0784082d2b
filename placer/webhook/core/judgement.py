"""The rules for a pod at its creation and at its changes: refuse what cannot work, translate, inject.

The contract itself is `plimsoll.contract`'s; here stand only the rules about the pod around it. What always holds: a
pod that neither asks for GPUs of ours nor is for our scheduler comes back as the same object. So does a pod that has
everything already.
"""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.core.planning import check_supported
from placer.core.policies import check_name
from placer.scheduler.pods.refusals import refuse_long, refuse_unhandled
from placer.webhook.core.injection import Injector
from plimsoll.contract import (
    ASSIGNED_PREFIX,
    DOMAIN,
    GPU_COUNT,
    POLICY,
    SCHEDULER_NAME,
    asks_gpu,
    from_limit_range,
    refuse_answers,
    refuse_long_annotations,
    refuse_node_name,
)
from plimsoll.demand import parse_pod
from plimsoll.dialects import DEFAULT_SCHEDULER, Dialect, Json, Translation, translated
from plimsoll.dialects.foreign import is_gpu_resource
from plimsoll.dialects.shape import check_shape, no_pod
from plimsoll.kube.models import Container, Pod, PodSpec, decode_pod
from plimsoll.part.errors import InputError

MIRROR: Final = "kubernetes.io/config.mirror"
"""The kubelet's mark on its report of a static pod. Such a pod runs already, whatever the answer is."""


class GpuAccess(enum.Enum):
    """How GPUs come into containers on the cluster's nodes."""

    RUNTIME_CLASS = "runtime-class"
    """A runtime class whose runtime reads `NVIDIA_VISIBLE_DEVICES`."""
    DEFAULT_RUNTIME = "default-runtime"
    """The nodes' default runtime reads that variable, so pods need no class."""
    NONE = "none"
    """Nothing reads that variable: native CDI or the NRI plugin without a runtime class."""


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """The cluster's own choices.

    Attributes:
        extended: schedulers to which the placer is an extender; their pods may ask for GPUs too.
        access: how GPUs come into containers.
        runtime_class: the runtime class for pods with GPUs.
        dialects: the other schedulers' ways that are understood.
    """

    extended: tuple[str, ...] = ()
    access: GpuAccess = GpuAccess.RUNTIME_CLASS
    runtime_class: str = "nvidia"
    dialects: tuple[Dialect, ...] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod that may be stored.

    Attributes:
        pod: the pod as it should be stored; the given object where nothing is to be changed.
        remarks: lines for the pod's author.
        is_translated: the pod asked in another scheduler's way.
    """

    pod: Json
    remarks: tuple[str, ...] = ()
    is_translated: bool = False


def judge_creation(raw: Json, rules: AdmissionRules) -> Admitted:
    """A new pod as it should be stored.

    Raises:
        InputError: the pod cannot work.
    """
    check_shape(raw)
    if MIRROR in _annotations(raw):
        return Admitted(raw)
    try:
        return _judged_new(raw, rules)
    except InputError as error:
        given = _from_limit_range(_decoded(raw), rules)
        if not given:
            raise
        raise InputError(error.field, error.value, error.problem, f"{error.remedy}; {given}") from error


def _judged_new(raw: Json, rules: AdmissionRules) -> Admitted:
    found = translated(raw, rules.dialects, rules.extended) if rules.dialects else Translation(raw)
    pod = _decoded(found.pod)
    if not _is_for_us(pod, rules):
        return Admitted(found.pod)
    is_placed_by_us = (pod.spec.schedulerName or DEFAULT_SCHEDULER) == SCHEDULER_NAME
    if is_placed_by_us:
        refuse_long(pod)
    _check_demand(pod)
    if is_placed_by_us:
        refuse_unhandled(pod)
    asking = _asking(pod)
    if asking:
        _check_place(pod, rules)
    given = _from_limit_range(pod, rules)
    injector = Injector(found.pod)
    injector.inject(asking, rules.runtime_class if rules.access is GpuAccess.RUNTIME_CLASS else None)
    remarks = (*((given,) if given else ()), *found.changes, *injector.remarks)
    return Admitted(injector.pod, remarks, bool(found.changes))


def _from_limit_range(pod: Pod, rules: AdmissionRules) -> str:
    """As `from_limit_range`, also for the resources of others where they are translated."""
    return from_limit_range(pod, is_gpu_resource) if rules.dialects else from_limit_range(pod)


def judge_update(raw: Json, old: Json, rules: AdmissionRules) -> Admitted:
    """A changed pod, as it is: the API server lets nobody change the fields that were injected.

    The annotations of ours may change until the pod has a node, to others that can work. From then on
    `deploy/annotations-policy.yaml` freezes them. A pod that is being deleted may always change: its finalizers must
    go.

    Raises:
        InputError: the changed annotations cannot work.
    """
    check_shape(raw)
    check_shape(old)
    metadata, spec = raw.get("metadata") or {}, raw["spec"]
    if metadata.get("deletionTimestamp") or spec.get("nodeName") or _ours(raw) == _ours(old):
        return Admitted(raw)
    pod = _decoded(raw)
    if _is_for_us(pod, rules):
        _check_demand(pod)
    return Admitted(raw)


def judge_ephemeral(raw: Json, old: Json, rules: AdmissionRules) -> Admitted:
    """A pod that gets ephemeral containers: the new ones see no GPU.

    Raises:
        InputError: the object is no pod.
    """
    check_shape(raw)
    check_shape(old)
    pod = _decoded(raw)
    if pod.spec.schedulerName != SCHEDULER_NAME and not (_is_extended(pod, rules) and asks_gpu(pod)):
        return Admitted(raw)
    injector = Injector(raw)
    injector.blind_ephemeral(frozenset(one["name"] for one in old["spec"].get("ephemeralContainers") or ()))
    return Admitted(injector.pod, tuple(injector.remarks))


def _is_for_us(pod: Pod, rules: AdmissionRules) -> bool:
    """Whether the webhook has to do with a pod.

    Raises:
        InputError: the pod asks for GPUs of ours, and its scheduler knows nothing of them.
    """
    if pod.spec.schedulerName == SCHEDULER_NAME:
        return True
    mention = _mention(pod)
    if mention is None:
        return False
    if not _is_extended(pod, rules):
        problem = f"knows nothing of {mention}, so nothing would hold the pod to it"
        remedy = f"write {SCHEDULER_NAME}, or remove {mention}"
        raise InputError("spec.schedulerName", pod.spec.schedulerName or DEFAULT_SCHEDULER, problem, remedy)
    return True


def _is_extended(pod: Pod, rules: AdmissionRules) -> bool:
    return (pod.spec.schedulerName or DEFAULT_SCHEDULER) in rules.extended


def _mention(pod: Pod) -> str | None:
    """The first resource or annotation of ours, known or not."""
    resources = [one.resources for one in (*pod.spec.containers, *(pod.spec.initContainers or ()))]
    names = [name for one in resources if one for asked in (one.limits, one.requests) for name in asked or ()]
    names += pod.metadata.annotations or ()
    return next((name for name in names if _is_ours(name)), None)


def _check_demand(pod: Pod) -> None:
    refuse_answers(pod)
    refuse_long_annotations(pod)
    demand = parse_pod(pod)
    check_supported(demand)
    if demand.policy:
        check_name(demand.policy, f"metadata.annotations[{POLICY}]")


def _check_place(pod: Pod, rules: AdmissionRules) -> None:
    refuse_node_name(pod.spec.nodeName)
    if rules.access is GpuAccess.NONE:
        problem = "cannot be given here: no container runtime of this cluster reads NVIDIA_VISIBLE_DEVICES"
        remedy = "ask an operator for a RuntimeClass of NVIDIA's container runtime"
        raise InputError(f"resources[{GPU_COUNT}]", "", problem, remedy)


def _asking(pod: Pod) -> frozenset[str]:
    """The names of the containers and init containers that ask for GPUs of ours."""
    return frozenset(
        one.name for one in (*pod.spec.containers, *(pod.spec.initContainers or ())) if _asks(one)
    )


def _asks(container: Container) -> bool:
    return asks_gpu(Pod(spec=PodSpec(containers=[container])))


def _annotations(raw: Json) -> dict[str, str]:
    return (raw.get("metadata") or {}).get("annotations") or {}


def _ours(raw: Json) -> dict[str, str]:
    return {name: value for name, value in _annotations(raw).items() if _is_ours(name)}


def _is_ours(annotation: str) -> bool:
    return annotation.startswith((DOMAIN, ASSIGNED_PREFIX))


def _decoded(raw: Json) -> Pod:
    try:
        return decode_pod(msgspec.json.encode(raw))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise no_pod(error) from error
