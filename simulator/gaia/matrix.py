"""The link matrix of a node from a pasted `nvidia-smi topo -m`."""

import re
from typing import Final

from placer.core.topology.links import PATHS, GpuLink, LinkMatrix
from plimsoll.part.errors import InputError

_GPU: Final = re.compile(r"GPU\d+")
_NVLINK: Final = re.compile(r"NV(\d+)")
_SELF: Final = "X"
_EARLIER: Final = {"SOC": "SYS"}
"""The names of drivers before 2017."""
_TERMINAL: Final = re.compile(r"\x1b\[[0-9;]*m")
_FIELD: Final = "topo -m"
_REMEDY: Final = "paste the output of `nvidia-smi topo -m` from its heading on"


def parse_matrix(text: str) -> LinkMatrix:
    """The links between the GPUs, in the order of their numbers. Columns of NICs, CPUs and NUMA nodes are left out.

    `nvidia-smi` names NVLinks alone where a pair has some, so their PCIe path counts as the farthest.

    Raises:
        InputError: there is no heading with GPUs, a row is missing or short, or a word is no link.
    """
    lines = [_TERMINAL.sub("", line).split() for line in text.splitlines()]
    heading = next((line for line in lines if len(line) > 0 and line[0] == "GPU0"), None)
    if heading is None or (len(heading) > 1 and heading[1] == _SELF):
        raise InputError(_FIELD, text[:80], "has no heading with GPU0", _REMEDY)
    gpus = sum(_GPU.fullmatch(word) is not None for word in heading)
    rows = {line[0]: line[1:] for line in lines if line and line is not heading and _GPU.fullmatch(line[0])}
    return tuple(_row(number, rows.get(f"GPU{number}", []), gpus) for number in range(gpus))


def _row(number: int, words: list[str], gpus: int) -> tuple[GpuLink, ...]:
    if len(words) < gpus or words[number] != _SELF:
        problem = f"has no row of GPU{number} with {gpus} links and {_SELF} in its own column"
        raise InputError(_FIELD, " ".join(words)[:80], problem, _REMEDY)
    return tuple(_link(word) for word in words[:gpus])


def _link(word: str) -> GpuLink:
    path = _EARLIER.get(word, word)
    if path in PATHS:
        return GpuLink(path)
    if links := _NVLINK.fullmatch(word):
        return GpuLink(PATHS[-1], int(links[1]))
    if word == _SELF:
        return GpuLink(PATHS[0])
    raise InputError(_FIELD, word, "is no link", f"one of NV1 to NV18, {', '.join(PATHS)} is one")
