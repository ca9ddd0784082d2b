"""The link matrix of a pasted `nvidia-smi topo -m`."""

import pytest

from placer.core.topology.links import GpuLink
from plimsoll.part.errors import InputError
from simulator.gaia.matrix import parse_matrix
from tests.placer.core.topology.matrices import DGX_1V, FIGURE_7


def test_links_nvlinks_and_earlier_names_are_read() -> None:
    """PCIe paths, numbers of NVLinks and the earlier name SOC are read; other columns and the legend are not."""
    assert parse_matrix(FIGURE_7)[0][1:] == (GpuLink("PHB"), GpuLink("SYS"), GpuLink("SYS"))
    matrix = parse_matrix(DGX_1V)
    assert len(matrix) == 8
    assert all(len(row) == 8 for row in matrix)
    assert (matrix[0][3], matrix[3][0], matrix[0][5]) == (
        GpuLink("SYS", 2),
        GpuLink("SYS", 2),
        GpuLink("SYS"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no heading with GPU0"),
        ("GPU0 X PIX\nGPU1 PIX X", "has no heading with GPU0"),
        ("GPU0 GPU1\nGPU0 X PIX", "has no row of GPU1"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 PIX X", "has no row of GPU0"),
        ("GPU0 GPU1\nGPU0 X ETH\nGPU1 PIX X", "is no link"),
    ],
    ids=["empty", "no-heading", "row-missing", "row-short", "no-link"],
)
def test_a_damaged_matrix_is_refused(text: str, problem: str) -> None:
    """An error has the value, the problem and a remedy."""
    with pytest.raises(InputError, match=problem) as raised:
        parse_matrix(text)
    assert raised.value.remedy
