"""Makes the figures that are asked for."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from simulator.kubeshare.figure import Figure
from simulator.kubeshare.interference import figure_12, figure_13
from simulator.kubeshare.placement import figure_3, figure_5, figure_11
from simulator.kubeshare.throughput import figure_8a, figure_8b, figure_8c, figure_9

FIGURES: Final[Mapping[str, Callable[[int, Sequence[int]], Figure]]] = {
    "3": lambda _, __: figure_3(),
    "5": lambda _, __: figure_5(),
    "8a": figure_8a,
    "8b": figure_8b,
    "8c": figure_8c,
    "9": lambda count, seeds: figure_9(count, seeds[0]),
    "11": lambda _, __: figure_11(),
    "12": lambda _, __: figure_12(),
    "13": figure_13,
}
"""Each makes its figure from the number of jobs and the seeds."""


def write_charts(folder: Path, figures: Sequence[Figure]) -> list[Path]:
    """Write each figure's picture into a folder, and make it if it is missing; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for figure in figures:
        paths.append(folder / f"kubeshare-{figure.name}.svg")
        paths[-1].write_text(figure.svg())
    return paths
