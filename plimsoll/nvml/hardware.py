"""The hardware of a node's GPUs as NVML shows it: positions, links, near cores. It changes with the machine alone."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pynvml

from plimsoll.cpus import ranges
from plimsoll.gpu_events import GpuInfo, Link
from plimsoll.ids import GpuUuid
from plimsoll.nvml.devices import Device

_PATHS: Final = {
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
"""As `nvidia-smi topo -m` calls them. Two GPUs of one board (`INTERNAL`) count as behind one switch."""

_WORDS: Final = 16
"""Words of 64 bits for a set of CPUs or NUMA nodes: 1024 of them, as many as Linux has by default."""

Handle = Any
"""pynvml's untyped pointer."""


def read(gpus: Sequence[Device]) -> tuple[GpuInfo, ...]:
    """The hardware of these GPUs, less those that do not answer."""
    buses = {one.uuid: bus for one in gpus if (bus := _bus(one.card)) is not None}
    there = [one for one in gpus if one.uuid in buses]
    return tuple(
        GpuInfo(
            uuid=one.uuid,
            index=one.index,
            model=one.model,
            pci=buses[one.uuid],
            numa=_numa(one.card),
            cores=_cores(one.card),
            mig=one.mig_parent is not None,
            mig_parent=one.mig_parent,
            links=_links(one, there, buses),
        )
        for one in there
    )


def _bus(handle: Handle) -> str | None:
    try:
        bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    except pynvml.NVMLError:
        return None
    return str(bus).lower()


def _links(one: Device, gpus: Iterable[Device], buses: dict[GpuUuid, str]) -> tuple[Link, ...]:
    """The ways to the other whole GPUs. A MIG instance has none: no program can use it beside another GPU."""
    if one.mig_parent is not None:
        return ()
    nvlinks = _nvlinks(one.handle)
    return tuple(
        Link(gpu=other.uuid, path=_path(one.handle, other.handle), nvlinks=nvlinks.count(buses[other.uuid]))
        for other in gpus
        if other.uuid != one.uuid and other.mig_parent is None
    )


def _path(one: Handle, other: Handle) -> str:
    try:
        return _PATHS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other), "PIX")
    except pynvml.NVMLError:
        return ""


def _nvlinks(handle: Handle) -> list[str]:
    """The addresses at the far ends of the GPU's active NVLinks. That of a switch belongs to no GPU."""
    found: list[str] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                found.append(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId.lower())
        except pynvml.NVMLError:
            continue  # the GPU has no such link
    return found


def _numa(handle: Handle) -> int | None:
    """The NUMA node of the GPU; None where the driver names none, or several."""
    try:
        words = pynvml.nvmlDeviceGetMemoryAffinity(handle, _WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
    except pynvml.NVMLError:
        return None
    nodes = _bits(words)
    return nodes[0] if len(nodes) == 1 else None


def _cores(handle: Handle) -> str:
    try:
        return ranges(_bits(pynvml.nvmlDeviceGetCpuAffinity(handle, _WORDS)))
    except pynvml.NVMLError:
        return ""


def _bits(words: Iterable[int]) -> list[int]:
    return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]
