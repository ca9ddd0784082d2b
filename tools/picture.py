"""`python -m tools.picture URL FILE.svg`: a picture of `plimsoll top` for the documents, of a placer that runs now.

The picture in docs/images is of `plimsoll demo --keep`, half a minute after its start.
"""

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI

from plimsoll_cli.live import LiveCluster, snapshot
from plimsoll_cli.top.draw import Moment, Size, lines
from plimsoll_cli.top.rows import rows
from plimsoll_cli.top.view import View

SIZE: Final = Size(100, 16)
CLOCK: Final = "12:00:00"
FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without the fonts that rich would load from elsewhere: a document loads nothing from the network."""


def main(url: str, path: Path) -> None:
    """Write the picture."""
    path.write_text(picture(asyncio.run(snapshot(url))))


def picture(cluster: LiveCluster) -> str:
    """The screen of a cluster, as SVG."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(
            record=True, width=SIZE.width, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        view = View()
        for line in lines(cluster, rows(cluster, view), view, SIZE, Moment(CLOCK)):
            console.print(line, soft_wrap=True)
    svg = console.export_svg(title="plimsoll top", theme=MONOKAI, code_format=FORMAT, unique_id="top")
    return "".join(line.rstrip() + "\n" for line in svg.splitlines())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
