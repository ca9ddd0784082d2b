"""The link between two GPUs of a node: its level, and what it costs.

Source: S. Song, L. Deng, J. Gong, H. Luo, "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018,
§III.B. The paper orders the costs SOC > PXB > PHB > PIX and knows no NVLink. Deviation: in NVIDIA's hardware a way
through a host bridge (PHB) passes a CPU and one through several PCIe switches (PXB) does not, so PHB costs more. We
take the hardware's order, with NVLink as a level of its own below all others, and NODE and SYS in place of SOC.
"""

from dataclasses import dataclass
from typing import Final

SYS: Final = "SYS"
PATHS: Final = ("PIX", "PXB", "PHB", "NODE", SYS)
"""The paths over PCIe as `nvidia-smi topo -m` calls them, the closest first."""

MOST_NVLINKS: Final = 18
"""The most NVLinks of one GPU today. A larger number counts as this one."""

NVLINK: Final = "NVLINK"

PAIRS: Final = 128
"""More pairs than a set of 16 GPUs has (120)."""


@dataclass(frozen=True, slots=True)
class GpuLink:
    """The link from one GPU to another.

    Attributes:
        path: one of `PATHS`.
        nvlinks: the NVLinks from one to the other; 0 for none.
    """

    path: str
    nvlinks: int = 0

    @property
    def level(self) -> str:
        """The name of the level: `NVLINK`, or the path."""
        return NVLINK if self.nvlinks else self.path

    @property
    def cost(self) -> int:
        """The cost of this pair.

        One pair of a level costs more than all pairs of a set at the levels below, so the costs of a set's pairs can
        be added: the set with the fewest pairs at the worst level is the cheapest. More NVLinks cost less.
        """
        if self.nvlinks:
            return 1 + MOST_NVLINKS - min(self.nvlinks, MOST_NVLINKS)
        return int(MOST_NVLINKS * PAIRS ** (1 + PATHS.index(self.path)))

    @property
    def closeness(self) -> int:
        """The value of keeping this pair: one pair of a level is worth more than all pairs of the farther levels."""
        if self.nvlinks:
            return int(PAIRS ** len(PATHS)) * min(self.nvlinks, MOST_NVLINKS)
        return int(PAIRS ** (len(PATHS) - 1 - PATHS.index(self.path)))


FARTHEST: Final = GpuLink(SYS)
"""The link of two GPUs for which the node reports none."""

LinkMatrix = tuple[tuple[GpuLink, ...], ...]
"""The link from each GPU to each other one. The diagonal has no meaning."""


def all_equal(gpus: int) -> LinkMatrix:
    """The matrix of a node whose links are not known."""
    return ((FARTHEST,) * gpus,) * gpus
