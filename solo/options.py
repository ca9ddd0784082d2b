"""The options of `plimsoll run`, and the pod that they describe.

What always holds: the pod contract alone reads the demand. An option is named for its key in the contract, so errors
of the contract are shown with the option's name.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from placer.core.planning import check_supported
from plimsoll.broker.wire import RUN_NAMESPACE
from plimsoll.contract import (
    BEST_EFFORT,
    DOMAIN,
    GPU_COUNT,
    GPU_ID,
    GPU_MEMORY,
    GPU_MODEL,
    GPU_SHARE,
    POLICY,
    SHARE_LIMIT,
)
from plimsoll.demand import parse_pod
from plimsoll.ids import ContainerName
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB, parse_size, parse_whole

MAIN: Final = ContainerName("main")
"""The one container of the pod that a command becomes."""

MEMORY_VARIABLE: Final = "PLIMSOLL_GPU_MEMORY"
DEFAULT_BYTES: Final = GIB
"""Per GPU, where no size is given: ConVGPU's default (Kang et al., CLUSTER 2017, §III.B)."""

_POD_FIELD: Final = re.compile(r"(?:spec\.containers\[main\]\.resources|metadata\.annotations)\[([^]]*)\]")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A command and its demand, in the terms of the pod contract; None where an option is not given.

    Attributes:
        command: the program and its arguments.
        hook_library: `libplimsoll.so`.
        broker_root: directory of the broker; a private one is started there if none answers.
        environment: the command's variables, usually our own. `PLIMSOLL_GPU_MEMORY` stands in for `gpu_memory`.
        name: the name for `plimsoll resize`; the program's where None.
    """

    command: tuple[str, ...]
    hook_library: Path
    broker_root: Path
    environment: Mapping[str, str]
    gpu_memory: str | None = None
    gpu_share: str | None = None
    gpu: str | None = None
    gpu_share_limit: str | None = None
    gpu_id: str | None = None
    gpu_model: str | None = None
    best_effort: bool = False
    policy: str | None = None
    name: str | None = None


def pod_of(options: RunOptions) -> Pod:
    """The pod that the options describe.

    Raises:
        InputError: the pod could never run; the message names the option.
    """
    metadata = ObjectMeta(
        name=_name(options),
        namespace=RUN_NAMESPACE,
        uid=str(uuid.uuid4()),
        annotations=_annotations(options),
    )
    resources = ResourceRequirements(limits=_limits(options))
    container = Container(name=MAIN, command=list(options.command), resources=resources)
    pod = Pod(metadata=metadata, spec=PodSpec(containers=[container]))
    _check(pod)
    return pod


def _name(options: RunOptions) -> str:
    """The name as text. A program's name may have bytes that are not UTF-8, which are shown as `?`."""
    if not options.name:
        return Path(options.command[0]).name.encode(errors="replace").decode()
    try:
        options.name.encode()
    except UnicodeEncodeError as error:
        raise InputError("--name", options.name, "is not UTF-8", "give a name in UTF-8") from error
    return options.name


def memory_asked(options: RunOptions) -> str | None:
    """The size, by precedence: the option, the environment, the default; None for best effort and whole GPUs.

    ConVGPU (Kang et al., CLUSTER 2017, §III.B) takes the option, then the image's label, then 1 GiB. A command has no
    image, so the environment stands in the label's place.

    Raises:
        InputError: the variable, or the count of GPUs, is no whole number.
    """
    if options.gpu_memory is not None or options.best_effort:
        return options.gpu_memory
    given = options.environment.get(MEMORY_VARIABLE)
    if given:
        parse_size(given, MEMORY_VARIABLE)
        return given
    if options.gpu is None:
        return str(DEFAULT_BYTES)
    # Alone, a count asks for whole GPUs, as in a pod.
    return str(DEFAULT_BYTES * parse_whole(options.gpu, "--gpu", "GPUs")) if options.gpu_share else None


def _limits(options: RunOptions) -> dict[str, str | int | float]:
    asked = {GPU_MEMORY: memory_asked(options), GPU_SHARE: options.gpu_share, GPU_COUNT: options.gpu}
    limits: dict[str, str | int | float] = {name: value for name, value in asked.items() if value is not None}
    return limits or {GPU_COUNT: "1"}  # best effort


def _annotations(options: RunOptions) -> dict[str, str]:
    asked = {
        SHARE_LIMIT: options.gpu_share_limit,
        GPU_ID: options.gpu_id,
        GPU_MODEL: options.gpu_model,
        POLICY: options.policy,
        BEST_EFFORT: "true" if options.best_effort else None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _check(pod: Pod) -> None:
    try:
        check_supported(parse_pod(pod))
    except InputError as error:
        field, problem, remedy = map(in_options, (error.field, error.problem, error.remedy))
        raise InputError(field, error.value, problem, remedy) from error


def in_options(text: str) -> str:
    """`spec.containers[main].resources[plimsoll.dev/gpu-share]` → `--gpu-share`."""
    return (
        _POD_FIELD.sub(r"\1", text)
        .replace("the pod's ", "")
        .replace("the annotation ", "")
        .replace(DOMAIN, "--")
    )
