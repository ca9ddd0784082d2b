"""The paper's node and the frequencies of its Tables I–IV.

Source: S. Song, L. Deng, J. Gong, H. Luo, "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §IV.
The node's tree is in Figure 7 alone, a picture. The tables require that gpu2 and gpu3 are the cheapest pair (Table
I), that gpu0 and gpu1 are a pair too (Table IV), and that one GPU of the cheapest pair is taken in Figure 8(a) (Table
III gives gpu3, so gpu2 is). `MATRIX` is the simplest node for which that holds. Figures 10 and 12 are pictures too,
so their shapes can be compared, and their values cannot.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.topology.links import LinkMatrix
from simulator.gaia.matrix import parse_matrix

REPETITIONS: Final = 500

MATRIX: Final = """
      GPU0  GPU1  GPU2  GPU3
GPU0   X    PHB   SOC   SOC
GPU1  PHB    X    SOC   SOC
GPU2  SOC   SOC    X    PIX
GPU3  SOC   SOC   PIX    X
"""

LINKS: Final[LinkMatrix] = parse_matrix(MATRIX)

EMPTY: Final = (100, 100, 100, 100)
FIGURE_8A: Final = (100, 100, 0, 100)


@dataclass(frozen=True, slots=True)
class PaperCase:
    """A case of a table.

    Attributes:
        table: the table and its case.
        free_pct: the free part of each GPU before, in percent.
        asked_pct: the part of a GPU that the container asks for, in percent, or a multiple of 100.
        frequencies: how often each set of GPUs was given in the paper.
    """

    table: str
    free_pct: tuple[int, ...]
    asked_pct: int
    frequencies: dict[tuple[int, ...], int]


CASES: Final = (
    PaperCase("I, 1 GPU", EMPTY, 100, {(2,): 227, (3,): 273}),
    PaperCase("I, 2 GPUs", EMPTY, 200, {(2, 3): 500}),
    PaperCase("II, container 2: 0.4", (100, 100, 50, 100), 40, {(2,): 500}),
    PaperCase("II, container 3: 0.1", (100, 100, 10, 100), 10, {(2,): 500}),
    PaperCase("III, 1 GPU", FIGURE_8A, 100, {(3,): 500}),
    PaperCase("IV, 2 GPUs", FIGURE_8A, 200, {(0, 1): 500}),
)
