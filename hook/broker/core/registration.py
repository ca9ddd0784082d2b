"""The registered pods of the node, and the checks of a registration at the edge: a refusal names field, value and
remedy.

All shares on a GPU together never exceed 100. Where containers of a pod never run at the same time, such as an init
container and the containers after it, the larger share counts (`plimsoll.lifespan`). Containers that own whole GPUs
do not count. Pods that are leaving do not count either, though their last processes may still run. A registration
that raises no share is always accepted, because pods are registered again after a restart.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from hook.broker.core.ids import ContainerKey
from plimsoll.broker.pages import MAX_GPUS, UUID_BYTES
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.cpus import parse_cpus
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.lifespan import Lifespan, beside, peak
from plimsoll.part.errors import InputError

RECORD_NAME: Final = "record.json"
"""This file is beside the containers' directories, so no container may have its name."""

MAX_LINE_BYTES: Final = 1 << 62
"""Far above any GPU's memory, and the sum of two still fits a 64-bit word."""

# All names and uids of Kubernetes match. The names have no separator and no leading dot, and fit any file system.
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

WHOLE_PCT: Final = 100


class PodRecord(Struct, frozen=True, kw_only=True):
    """A registered pod.

    Attributes:
        pod: its registration, as last accepted.
        leaving: the pod was unregistered, and the broker waits for its last process to end.
    """

    pod: Register
    leaving: bool = False

    @property
    def containers(self) -> dict[ContainerKey, ContainerLines]:
        """The lines of the pod's containers."""
        return {ContainerKey(self.pod.pod, lines.name): lines for lines in self.pod.containers}


class RegisteredPods:
    """The records of the node's pods, in the order of registration. `Node` alone changes them."""

    def __init__(self, records: Iterable[PodRecord]) -> None:
        self._records = {record.pod.pod: record for record in records}

    def __iter__(self) -> Iterator[PodRecord]:
        """Every record."""
        return iter(list(self._records.values()))

    def __len__(self) -> int:
        """How many pods are registered."""
        return len(self._records)

    def get(self, pod: PodUid) -> PodRecord | None:
        """A pod's record, or None for one that is not registered."""
        return self._records.get(pod)

    def put(self, record: PodRecord) -> PodRecord:
        """Add a record, in the place of the pod's earlier one."""
        self._records[record.pod.pod] = record
        return record

    def remove(self, pod: PodUid) -> None:
        """Remove a pod's record."""
        del self._records[pod]

    @property
    def containers(self) -> dict[ContainerKey, ContainerLines]:
        """Every registered container with its lines."""
        return {key: lines for record in self for key, lines in record.containers.items()}

    def lines(self, container: ContainerKey) -> ContainerLines | None:
        """A container's lines, or None for one that is not registered."""
        record = self._records.get(container.pod)
        return record.containers.get(container) if record else None

    def gpus(self, container: ContainerKey) -> tuple[GpuUuid, ...]:
        """A container's GPUs in the order of its lines; empty for one that is not registered."""
        lines = self.lines(container)
        return tuple(line.gpu for line in lines.lines) if lines else ()


def check(request: Register) -> None:
    """Refuse a registration that cannot be laid out.

    Raises:
        InputError: names the first field that is wrong.
    """
    _check_name("pod", request.pod)
    if not request.containers:
        raise InputError("containers", (), "is empty", "name a container that asks for a GPU")
    names = [container.name for container in request.containers]
    for place, container in enumerate(request.containers):
        field = f"containers[{place}]"
        _check_name(f"{field}.name", container.name)
        if container.name in names[:place]:
            raise InputError(f"{field}.name", container.name, "stands twice", "name each container once")
        _check_container(field, container)


def check_change(old: Register, new: Register) -> None:
    """Refuse a change of a registration that cannot be made in place.

    Raises:
        InputError: a container is missing, or its GPUs differ from those that its processes count memory on.
    """
    offered = {container.name: container for container in new.containers}
    for container in old.containers:
        if container.name not in offered:
            missing = sorted(offered)
            remedy = f"name {container.name} too, or unregister the pod"
            raise InputError("containers", missing, f"lacks {container.name!r}, which is registered", remedy)
        before, after = _gpus(container), _gpus(offered[container.name])
        if before != after:
            problem = f"differs from the {before} that {container.name!r} counts on"
            remedy = "keep the GPUs and their order, or unregister the pod"
            raise InputError("containers[].lines[].gpu", after, problem, remedy)


def _gpus(container: ContainerLines) -> list[str]:
    return [line.gpu for line in container.lines]


def _check_name(field: str, name: str) -> None:
    if not _SAFE_NAME.fullmatch(name) or name == RECORD_NAME:
        problem = "cannot be the name of a directory"
        raise InputError(field, name, problem, "use letters, digits, `-`, `_` and inner dots, at most 253")


def _check_container(field: str, container: ContainerLines) -> None:
    lines = container.lines
    if not 1 <= len(lines) <= MAX_GPUS:
        raise InputError(f"{field}.lines", len(lines), "is not 1 to 16 GPUs", f"give 1 to {MAX_GPUS} lines")
    for place, line in enumerate(lines):
        _check_line(f"{field}.lines[{place}]", line)
        if line.gpu in _gpus(container)[:place]:
            raise InputError(f"{field}.lines[{place}].gpu", line.gpu, "stands twice", "name each GPU once")
    parse_cpus(container.cpus, f"{field}.cpus")
    if not container.whole:
        _check_evenness(field, lines)


def _check_evenness(field: str, lines: tuple[Line, ...]) -> None:
    """Require the same share and limit on all GPUs, because a single gate covers them all."""
    for place, line in enumerate(lines):
        for name in ("share_pct", "limit_pct"):
            first, here = getattr(lines[0], name), getattr(line, name)
            if here != first:
                problem = f"differs from the {first} of its first GPU"
                raise InputError(f"{field}.lines[{place}].{name}", here, problem, "give all GPUs the same")


def _check_line(field: str, line: Line) -> None:
    if not line.gpu or not line.gpu.isascii() or not line.gpu.isprintable() or len(line.gpu) >= UUID_BYTES:
        remedy = f"give the UUID that NVML shows, below {UUID_BYTES} characters"
        raise InputError(f"{field}.gpu", line.gpu, "is no GPU's UUID", remedy)
    _check_range(f"{field}.line_bytes", line.line_bytes, 0, MAX_LINE_BYTES)
    _check_range(f"{field}.share_pct", line.share_pct, 0, 100)
    _check_range(f"{field}.limit_pct", line.limit_pct, 1, 100)
    if line.limit_pct < line.share_pct:
        problem = f"is below the share of {line.share_pct} that is guaranteed"
        raise InputError(f"{field}.limit_pct", line.limit_pct, problem, f"give {line.share_pct} to 100")


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(field, value, "is out of range", f"give {least} to {most}")


def check_shares(request: Register, records: Iterable[PodRecord]) -> None:
    """Refuse a registration whose shares would promise more than 100 % of a GPU.

    Args:
        request: a registration that passed `check`.
        records: the records of all pods, the earlier record of the same pod among them.

    Raises:
        InputError: names the share that is too much, and what is left.
    """
    standing = [record.pod for record in records if not record.leaving]
    others = [pod for pod in standing if pod.pod != request.pod]
    before = [pod for pod in standing if pod.pod == request.pod]
    for field, container, line in _lines(request):
        gpu, asked_pct = line.gpu, line.share_pct
        others_pct = _sum_pct(others, gpu)
        rest = (one for one in request.containers if one is not container)
        own_pct = asked_pct + beside(container.lifespan, _shares(rest, gpu))
        surplus_pct = own_pct - max(WHOLE_PCT - others_pct, _sum_pct(before, gpu))
        if asked_pct and surplus_pct > 0:
            problem = f"brings the shares promised of {gpu} to {own_pct + others_pct}"
            raise InputError(field, asked_pct, problem, _remedy(asked_pct - surplus_pct, gpu, others))


def promised_pct(containers: Iterable[ContainerLines], gpu: GpuUuid) -> int:
    """The most of a GPU's time that these containers of one pod were promised together, in percent."""
    return peak(_shares(containers, gpu))


def _shares(containers: Iterable[ContainerLines], gpu: GpuUuid) -> Iterator[tuple[Lifespan, int]]:
    sharing = (one for one in containers if not one.whole)
    return ((one.lifespan, line.share_pct) for one in sharing for line in one.lines if line.gpu == gpu)


def _lines(request: Register) -> Iterator[tuple[str, ContainerLines, Line]]:
    for place, container in enumerate(request.containers):
        for number, line in enumerate(container.lines):
            if not container.whole:
                yield f"containers[{place}].lines[{number}].share_pct", container, line


def _sum_pct(pods: Iterable[Register], gpu: GpuUuid) -> int:
    return sum(promised_pct(pod.containers, gpu) for pod in pods)


def _remedy(left_pct: int, gpu: GpuUuid, others: Iterable[Register]) -> str:
    holders: dict[PodUid, int] = {pod.pod: promised_pct(pod.containers, gpu) for pod in others}
    named = ", ".join(f"{pod} ({share_pct})" for pod, share_pct in sorted(holders.items()) if share_pct)
    advice = f"give at most {left_pct}" if left_pct > 0 else "take another GPU"
    return f"{advice}, or unregister one of {named}" if named else f"{advice}, so that they come to 100"
