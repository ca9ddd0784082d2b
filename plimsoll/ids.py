"""Identifiers as types of their own, so that mypy refuses a pod uid where a node name is expected."""

from typing import Final, NewType

from msgspec import Struct

NodeName = NewType("NodeName", str)
"""A Kubernetes node's name (RFC 1123: lower case, digits, `-` and `.`)."""

NODE_PATTERN: Final = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"

GpuUuid = NewType("GpuUuid", str)
"""A GPU's UUID by NVML, for example `GPU-5a1c0d2e-…`."""

UUID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,94}$"
"""No text with a comma or a quote: annotations list UUIDs with commas. NVML's longest UUID has 95 characters."""

PodUid = NewType("PodUid", str)
"""A pod's `metadata.uid`; under `plimsoll run`, a random UUID in its place."""

ContainerName = NewType("ContainerName", str)
"""A container's name within its pod."""


class ProcessKey(Struct, frozen=True, order=True, cache_hash=True):
    """A process of this machine. A pid is used again after its process ended; a pid with a start time is not.

    A `Struct`, because its hash and comparisons are C: tables by process are built anew many times a second.

    Attributes:
        pid: the pid as the host's PID namespace numbers processes.
        start_ticks: start time in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    """

    pid: int
    start_ticks: int
