"""Tables of plain text: aligned columns, for eyes and for `awk`."""

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """A line for each row; all rows have the same number of cells, and at least one is there."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()
