"""`make bench-kang`: both ways of placing, their table, and one line of JSON."""

import asyncio
import json
import sys

from rich.console import Console
from rich.table import Table

from bench.kang.scenario import (
    NODE_1,
    NODE_2,
    RESIDENT,
    SETTLED_RUNS,
    WATCH_S,
    ByPlimsoll,
    BySlots,
    PlacingResult,
    scenario,
)


def show(console: Console, slots: PlacingResult, plimsoll: PlacingResult) -> None:
    """Print both ways side by side, beside the paper's figures."""
    table = Table(title="Two 1205 MiB pods arrive (Kang et al., Tables IV and V)")
    for column in (
        "node",
        "resident",
        "slots: placed",
        "slots: failed",
        "Plimsoll: placed",
        "Plimsoll: failed",
    ):
        table.add_column(column, justify="right")
    paper = {NODE_1: (2, 14, 0, 0), NODE_2: (0, 0, 2, 0)}
    for node, (kind, count) in RESIDENT.items():
        table.add_row(
            node,
            f"{count} × {kind.peak_mib} MiB",
            f"{slots.placed[node]} (paper {paper[node][0]})",
            f"{slots.failed[node]} (paper {paper[node][1]})",
            f"{plimsoll.placed[node]} (paper {paper[node][2]})",
            f"{plimsoll.failed[node]} (paper {paper[node][3]})",
        )
    console.print(table)


async def main() -> int:
    """Run both ways; the exit code is 0 if the scene was valid."""
    console = Console()
    console.print(f"by free slots: 48 resident tasks, 2 new ones, about {2 * SETTLED_RUNS + WATCH_S:.0f} s …")
    slots = await scenario(BySlots())
    console.print("by Plimsoll: the same …")
    plimsoll = await scenario(ByPlimsoll())
    show(console, slots, plimsoll)
    result = {
        "slots_only": {"failed": sum(slots.failed.values()), "placed_on_node_1": slots.placed[NODE_1]},
        "plimsoll": {"failed": sum(plimsoll.failed.values()), "placed_on_node_2": plimsoll.placed[NODE_2]},
        "unfit_before": slots.unfit + plimsoll.unfit,
    }
    print(json.dumps(result))
    return 1 if result["unfit_before"] else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
