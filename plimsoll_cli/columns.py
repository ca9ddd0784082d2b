"""Tables of plain text: aligned columns, for eyes and for `awk`."""

import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from plimsoll_cli.output import printable

GAP: Final = "  "
NARROWEST: Final = 12
"""Columns that a shortened cell keeps: enough to tell most names apart."""


def terminal_columns() -> int | None:
    """The width of the terminal that shows standard output; None where the output is piped."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def aligned(rows: Sequence[Sequence[str]], indent: str = "", width: int | None = None) -> Iterator[str]:
    """A line for each row; all rows have the same number of cells, and at least one is there.

    Args:
        rows: the cells.
        indent: stands before each line.
        width: cut lines to this many columns: the last cells first, then the middle of the longest names in the first
            column. None cuts nothing.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        _narrow(widths, width - len(indent))
    for row in cells:
        fitted = [_fitted(cell, place, widths) for place, cell in enumerate(row)]
        yield (indent + GAP.join(fitted)).rstrip()


def _narrow(widths: list[int], width: int) -> None:
    """Take columns from the last cell, then from the first, until the line fits or both are narrow."""
    for place in (-1, 0):
        over = sum(widths) + len(GAP) * (len(widths) - 1) - width
        if over > 0:
            widths[place] = max(widths[place] - over, min(widths[place], NARROWEST))


def _fitted(cell: str, place: int, widths: list[int]) -> str:
    width = widths[place]
    if columns(cell) > width:
        cell = shortened(cell, width, middle=place == 0)
    return cell + " " * (width - columns(cell))


def shortened(text: str, width: int, *, middle: bool = False) -> str:
    """The text in this many columns at most; `…` stands for what was left out, at the end or in the middle."""
    if columns(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 2 if middle else 0
    end = text[len(text) - tail :] if tail else ""
    while columns(end) > tail:
        end = end[1:]
    start = ""
    for letter in text:
        if columns(start + letter) + 1 + columns(end) > width:
            break
        start += letter
    return f"{start}…{end}"


def columns(text: str) -> int:
    """The columns of a terminal that a text takes: letters of East Asia take two, and combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_letter_columns(letter) for letter in text)


def _letter_columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
