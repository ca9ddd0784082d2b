"""Bar charts as SVG text: groups of bars side by side, over one axis that begins at 0."""

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
HEIGHT: Final = 400
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 40, 48


def bar_chart(
    title: str,
    y_label: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    line_at: float | None = None,
) -> str:
    """An SVG document.

    Args:
        title: stands above.
        y_label: names the axis.
        groups: the names below the groups of bars.
        series: by name, a bar for each group.
        colours: by the same names.
        line_at: a value that a dashed line marks; None for no line.
    """
    highest = max([value for values in series.values() for value in values] + [line_at or 0.0, 1e-9])
    across, high = (WIDTH - LEFT - RIGHT) / len(groups), HEIGHT - TOP - BOTTOM
    wide = across * 0.8 / len(series)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, "start", 15),
        _text(LEFT, TOP - 6, y_label, "start"),
    ]
    for place, (name, values) in enumerate(series.items()):
        for group, value in enumerate(values):
            left = LEFT + across * group + across * 0.1 + wide * place
            parts += _bar(left, wide, high * value / highest, value, colours[name])
        parts += _legend(place, name, colours[name])
    parts += [
        _text(LEFT + across * (group + 0.5), HEIGHT - BOTTOM + 18, name) for group, name in enumerate(groups)
    ]
    if line_at is not None:
        y = HEIGHT - BOTTOM - high * line_at / highest
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#333" stroke-dasharray="6 4"/>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(left: float, wide: float, tall: float, value: float, colour: str) -> list[str]:
    y = HEIGHT - BOTTOM - tall
    return [
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{colour}"/>',
        _text(left + wide / 2, y - 4, f"{value:.3g}", size=10),
    ]


def _legend(place: int, name: str, colour: str) -> list[str]:
    y = TOP + 20 * place
    return [
        f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 8}" width="12" height="12" fill="{colour}"/>',
        _text(WIDTH - RIGHT + 32, y + 3, name, "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
