"""A figure of the paper: its rows, a picture, and the paper's claims, each met or not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """A claim of the paper about a figure's shape.

    Attributes:
        text: the claim.
        is_met: whether our figures have this shape.
        why_not: the reason where they have not.
    """

    text: str
    is_met: bool
    why_not: str = ""

    @property
    def verdict(self) -> str:
        """The claim for people."""
        return (
            f"met: {self.text}"
            if self.is_met
            else f"NOT met: {self.text}" + f" ({self.why_not})" * bool(self.why_not)
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes:
        name: the name as on the command line, such as `8a`.
        title: for people.
        columns: the names of the columns; the first is the figure's x axis.
        rows: numbers and words, in the order of the columns.
        claims: the paper's.
        svg: draws the picture.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float | str, ...], ...]
    claims: tuple[PaperClaim, ...]
    svg: Callable[[], str]

    def table(self) -> Table:
        """The rows for people."""
        shown = Table(title=f"Figure {self.name}: {self.title}", title_justify="left")
        for column in self.columns:
            shown.add_column(column, justify="right")
        for row in self.rows:
            shown.add_row(*(value if isinstance(value, str) else f"{value:.4g}" for value in row))
        return shown

    def as_json(self) -> dict[str, Any]:
        """The rows and the claims for programs."""
        rows = [[value if isinstance(value, str) else round(value, 4) for value in row] for row in self.rows]
        claims = {one.text: one.is_met for one in self.claims}
        return {"columns": list(self.columns), "rows": rows, "claims": claims}
