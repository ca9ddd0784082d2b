"""The hardware of a node's GPUs as NVML shows it: positions, links, near cores. It changes with the machine alone."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pynvml

from plimsoll.gpu_events import GpuInfo, Link
from plimsoll.ids import GpuUuid

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


def read(gpus: Sequence[tuple[GpuUuid, int, str, Handle]]) -> tuple[GpuInfo, ...]:
    """The hardware of these GPUs, each by UUID, index, model and handle, less those that do not answer."""
    buses = {uuid: bus for uuid, _, _, handle in gpus if (bus := _bus(handle)) is not None}
    return tuple(
        GpuInfo(
            uuid=uuid,
            index=index,
            model=model,
            pci=buses[uuid],
            numa=_numa(handle),
            cores=_cores(handle),
            mig=_is_mig(handle),
            links=_links(uuid, handle, [one for one in gpus if one[0] in buses], buses),
        )
        for uuid, index, model, handle in gpus
        if uuid in buses
    )


def _bus(handle: Handle) -> str | None:
    try:
        bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    except pynvml.NVMLError:
        return None
    return _text(bus).lower()


def _links(
    uuid: GpuUuid, handle: Handle, gpus: Iterable[tuple[GpuUuid, int, str, Handle]], buses: dict[GpuUuid, str]
) -> tuple[Link, ...]:
    nvlinks = _nvlinks(handle)
    return tuple(
        Link(gpu=other, path=_path(handle, there), nvlinks=nvlinks.count(buses[other]))
        for other, _, _, there in gpus
        if other != uuid
    )


def _path(one: Handle, other: Handle) -> str:
    try:
        return _PATHS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other), "PIX")
    except pynvml.NVMLError:
        return ""


def _nvlinks(handle: Handle) -> list[str]:
    """The addresses at the far ends of the GPU's active NVLinks; a switch's is no GPU's."""
    found: list[str] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                found.append(_text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower())
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


def _is_mig(handle: Handle) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False  # this card has no MIG
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _bits(words: Iterable[int]) -> list[int]:
    return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in rising order as Linux lists CPUs: `0-3,8`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
