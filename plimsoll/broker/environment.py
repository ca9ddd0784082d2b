"""The environment variables by which a process belongs to a pod: to put it under the hook, and to find it again.

Only for processes that Plimsoll itself starts. In a cluster, the container runtime sets what is needed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import Directories
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.native import HOOK_LIBRARY
from plimsoll.part.processes import PROC

POD_VARIABLE: Final = "PLIMSOLL_POD_UID"
_PRELOAD: Final = "LD_PRELOAD"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The values that put a process under the hook.

    Attributes:
        library: `libplimsoll.so`.
        directories: the directories of the container's pages.
        gpus: the GPUs of the container; the process sees no other.
    """

    library: Path
    directories: Directories
    gpus: tuple[GpuUuid, ...]


def pod_variables(
    pod: PodUid, environment: Mapping[str, str], enforcement: Enforcement | None
) -> dict[str, str]:
    """The variables of a pod's process. Set them last, so that no manifest points the hook elsewhere.

    Args:
        pod: the pod of the process.
        environment: the process's other variables; a library that these preload stays, behind the hook.
        enforcement: None for a process without a GPU, which sees none.
    """
    if enforcement is None:
        return {POD_VARIABLE: pod, "NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": ""}
    visible = ",".join(enforcement.gpus)
    preloads = (str(enforcement.library), environment.get(_PRELOAD, ""))
    return {
        POD_VARIABLE: pod,
        "NVIDIA_VISIBLE_DEVICES": visible,
        "CUDA_VISIBLE_DEVICES": visible,
        _PRELOAD: ":".join(preload for preload in preloads if preload),
        LIMITS_DIR_VARIABLE: enforcement.directories.limits_dir,
        COUNTS_DIR_VARIABLE: enforcement.directories.counts_dir,
    }


def without_pod(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a process that a pod's process starts, and that belongs to no pod itself: a broker.

    With the pod's variables it would count as one of the pod's processes, and see the pod's line instead of the GPU.
    """
    if POD_VARIABLE not in environment:
        return dict(environment)
    preloads = re.split("[ :]+", environment.get(_PRELOAD, ""))
    own = ":".join(one for one in preloads if Path(one).name != HOOK_LIBRARY.name)
    pods = {POD_VARIABLE, LIMITS_DIR_VARIABLE, COUNTS_DIR_VARIABLE, _PRELOAD}
    left = {name: value for name, value in environment.items() if name not in pods}
    return {**left, _PRELOAD: own} if own else left


def processes_of(pod: PodUid) -> tuple[int, ...]:
    """The ids of this user's processes that carry this pod's uid. Reads all of /proc: call this on a thread."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    return tuple(pid for pid in pids if is_process_of(pid, pod))


def is_process_of(pid: int, pod: PodUid) -> bool:
    """Whether a process carries this pod's uid; False for one that ended, or is another user's. Blocks, briefly."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{POD_VARIABLE}={pod}".encode() in environment.split(b"\0")
