"""The hardware of a node as decisions read it: links and near CPUs of each GPU, from the last `node.info`.

What always holds: it is frozen, and made once for each event. Two nodes of one kind have equal shapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.core.topology.links import FARTHEST, PATHS, SYS, GpuLink, LinkMatrix
from placer.core.topology.sets import Shape, shape_of
from plimsoll.cpus import parse_cpus, ranges
from plimsoll.gpu_events import NodeInfo
from plimsoll.ids import GpuUuid


@dataclass(frozen=True, slots=True)
class Hardware:
    """A node's hardware.

    Attributes:
        places: each GPU's row in the matrix.
        matrix: the link matrix.
        shape: its costs.
        cpus: the CPUs near each GPU; empty where they are not known.
    """

    places: Mapping[GpuUuid, int]
    matrix: LinkMatrix
    shape: Shape
    cpus: Mapping[GpuUuid, frozenset[int]]

    def knows(self, gpus: Iterable[GpuUuid]) -> bool:
        """Whether these GPUs are all listed. A GPU that was found since is in the next `node.info`."""
        return self.places.keys() >= set(gpus)

    def cpus_near(self, gpus: Iterable[GpuUuid]) -> str:
        """The CPUs near at least one of these GPUs, as Linux lists them; empty if those of one GPU are not known."""
        each = [self.cpus.get(gpu, frozenset[int]()) for gpu in gpus]
        return ranges(sorted(frozenset[int]().union(*each))) if all(each) else ""

    def levels(self, gpus: Iterable[GpuUuid]) -> str:
        """The levels of the pairs of these GPUs for people, the farthest first: `SYS, NVLINK`; empty for one GPU."""
        places = [self.places[gpu] for gpu in gpus]
        links = {self.matrix[one][other] for at, one in enumerate(places) for other in places[at + 1 :]}
        return ", ".join(dict.fromkeys(link.level for link in sorted(links, key=lambda link: -link.cost)))


def hardware_of(info: NodeInfo) -> Hardware:
    """The hardware in an event, as `plimsoll.node_info` reads it."""
    return linked(
        [gpu.uuid for gpu in info.gpus],
        _matrix(info),
        {one.uuid: parse_cpus(one.cores, f"data.gpus[{one.uuid}].cores") for one in info.gpus},
    )


def linked(
    gpus: Sequence[GpuUuid], matrix: LinkMatrix, cpus: Mapping[GpuUuid, frozenset[int]] | None = None
) -> Hardware:
    """The hardware of a node with these GPUs, in the order of the matrix."""
    places = {gpu: place for place, gpu in enumerate(gpus)}
    return Hardware(places, matrix, shape_of(matrix), cpus or {})


def _matrix(info: NodeInfo) -> LinkMatrix:
    """The matrix. A link that one GPU alone reports counts for both, as does the better of two reports."""
    found: dict[frozenset[GpuUuid], GpuLink] = {}
    for one in info.gpus:
        for reported in one.links:
            path = reported.path if reported.path in PATHS else SYS
            link = GpuLink(path, max(reported.nvlinks, 0))
            pair = frozenset((one.uuid, reported.gpu))
            found[pair] = min(found.get(pair, link), link, key=lambda each: each.cost)
    return tuple(
        tuple(found.get(frozenset((one.uuid, other.uuid)), FARTHEST) for other in info.gpus)
        for one in info.gpus
    )
