"""Checks registrations at the edge; a refusal names field, value and remedy."""

import re
from typing import Final

from plimsoll.broker.pages import MAX_GPUS, UUID_BYTES
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.cpus import parse_cpus
from plimsoll.part.errors import InputError

RECORD_NAME: Final = "record.json"
"""This file is beside the containers' directories, so no container may have its name."""

MAX_LINE_BYTES: Final = 1 << 62
"""Far above any GPU's memory, and the sum of two still fits a 64-bit word."""

# All names and uids of Kubernetes match. The names have no separator and no leading dot, and fit any file system.
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


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
