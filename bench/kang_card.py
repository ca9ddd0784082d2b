"""Kang et al. 2024, Table I on an emulated card: one task more than fits makes several tasks fail.

23, 24 and 25 tasks of 60,000 data run on one card, again and again, without Plimsoll. The model is that of
`bench.kang`: the paper's Table I itself bounds the constant part of a task by "23 complete, 24 do not". The number of
tasks that fail is no part of the model, and differs from run to run: a failed task frees its memory and begins again,
and so may take the room of the next one, or not.

The times in Table I and Figures 1 and 2 are not repeated. They grow because tasks compete for the GPU's time, and
these tasks keep their own clock on purpose, so that a loaded machine does not change the order in which they ask for
memory.

Source: J. Kang, H. Lee, D. Lee, IJASEIT 2024, §II.A, Table I, Figures 1 and 2.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.kang import (
    LARGE,
    NODE_1,
    NODES,
    RUN_S,
    SETTLED_RUNS,
    WATCH_S,
    RunningTask,
    start_task,
    until_settled,
)
from plimsoll.cli.demo.cluster import LocalCluster

PAPER: Final = {23: 0, 24: 6, 25: 15}
"""The tasks that did not complete in Table I, by their number; 23 is from its text."""


async def failed_of(count: int) -> int:
    """The tasks of which a run fails, of so many on one card, in eight runs of each."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-kang-card-") as folder:
        node = next(one for one in NODES if one.name == NODE_1)
        async with LocalCluster(Path(folder), (node,)) as cluster, asyncio.TaskGroup() as readers:
            tasks: list[RunningTask] = []
            try:
                for index in range(count):
                    command = LARGE.command(phase_s=RUN_S * index / count)
                    tasks.append(await start_task(cluster, NODE_1, command, readers))
                await until_settled(tasks)
                await asyncio.sleep(WATCH_S - SETTLED_RUNS * RUN_S)  # the rest of the eight runs
                return sum(task.failed for task in tasks)
            finally:
                for task in tasks:
                    if task.process.returncode is None:
                        task.process.kill()


async def main() -> int:
    """Run the three numbers of tasks; 1 if tasks fail where the paper's complete, or none where they fail."""
    table = Table(title="Tasks that fail on one card (Kang et al., Table I)")
    for column in ("tasks", "failed", "paper"):
        table.add_column(column, justify="right")
    found = {count: await failed_of(count) for count in PAPER}
    for count, failed in found.items():
        table.add_row(str(count), str(failed), str(PAPER[count]))
    Console().print(table)
    is_as_published = all((failed > 0) == (PAPER[count] > 0) for count, failed in found.items())
    several = min(found[24], found[25]) > 1
    result = {f"failed_tasks.{count}": failed for count, failed in found.items()}
    print(
        json.dumps({**result, "completes_as_published": is_as_published, "one_more_fails_several": several})
    )
    return 0 if is_as_published else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
