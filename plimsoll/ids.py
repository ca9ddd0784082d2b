"""Identifiers, as types of their own, so that a pod uid can never be passed where a node name is wanted."""

from typing import NewType

NodeName = NewType("NodeName", str)
"""A Kubernetes node's name (RFC 1123: lower case, digits, `-` and `.`)."""

GpuUuid = NewType("GpuUuid", str)
"""A GPU's identity as NVML gives it, for example `GPU-5a1c0d2e-…`."""

PodUid = NewType("PodUid", str)
"""A pod's `metadata.uid`; under `plimsoll run`, a random UUID in its place."""

ContainerName = NewType("ContainerName", str)
"""A container's name within its pod."""
