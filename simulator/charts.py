"""Line charts as SVG text, without a plotting library: a chart needs only lines, marks and two axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
HEIGHT: Final = 460
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 40, 48
TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart: points from left to right."""

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Crosses in a chart, with a name in the legend."""

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    x_min: float
    x_max: float
    y_max: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x_min) / ((self.x_max - self.x_min) or 1)
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - y / self.y_max * (HEIGHT - TOP - BOTTOM), 1),
        )


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    lines: Sequence[ChartLine],
    x_ticks: Sequence[float] = (),
    marks: Sequence[Marks] = (),
) -> str:
    """An SVG document. The y axis begins at 0, the x axis at the leftmost point or tick.

    At least one line must have a point, and no mark may lie above or beside all lines. Without `x_ticks`, the x axis
    marks every point.
    """
    xs = sorted(x_ticks) or sorted({x for line in lines for x, _ in line.points})
    highest = max(y for line in lines for _, y in line.points)
    step = _round_step(highest / TICKS)
    scale = _Scale(xs[0], xs[-1], step * math.ceil(highest / step) or 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, "start", 15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label),
        _text(LEFT, TOP - 6, y_label, "end"),
        *_axes(scale, xs, step),
    ]
    for index, line in enumerate(lines):
        parts += _line(scale, line, index)
    for index, crosses in enumerate(marks, len(lines)):
        parts += _marks(scale, crosses, index)
    return "\n".join([*parts, "</svg>", ""])


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, and so on."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _axes(scale: _Scale, xs: Sequence[float], step: float) -> list[str]:
    parts = []
    for tick in range(round(scale.y_max / step) + 1):
        (x1, y), (x2, _) = scale.at(scale.x_min, tick * step), scale.at(scale.x_max, 0)
        parts.append(f'<path d="M{x1} {y}H{x2}" stroke="#ddd"/>')
        parts.append(_text(x1 - 8, y + 4, f"{tick * step:g}", "end"))
    for value in xs:
        x, y = scale.at(value, 0)
        parts.append(_text(x, y + 18, f"{value:g}"))
    return parts


def _line(scale: _Scale, line: ChartLine, index: int) -> list[str]:
    places = " ".join(f"{x},{y}" for x, y in (scale.at(*point) for point in line.points))
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    style = f'fill="none" stroke="{line.colour}" stroke-width="2"{dashes}'
    x, y = WIDTH - RIGHT + 14, TOP + 20 * index
    return [
        f'<polyline points="{places}" {style}/>',
        f'<path d="M{x} {y}h26" {style}/>',
        _text(x + 32, y + 4, line.name, "start"),
    ]


def _marks(scale: _Scale, marks: Marks, index: int) -> list[str]:
    x, y = WIDTH - RIGHT + 14, TOP + 20 * index
    places = [(x + 13.0, float(y)), *(scale.at(*point) for point in marks.points)]
    crosses = "".join(f"M{x - 4:g} {y - 4:g}l8 8m0 -8l-8 8" for x, y in places)
    return [
        f'<path d="{crosses}" fill="none" stroke="{marks.colour}" stroke-width="1.5"/>',
        _text(x + 32, y + 4, marks.name, "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
