"""`plimsoll top`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.options import add_release, where


def _declare(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument(
        "--once", action="store_true", help="print the GPUs and what waits once, and end; so does a pipe"
    )
    parser.add_argument(
        "--sort",
        choices=("name", "used", "promised", "free", "share", "idle"),
        default="name",
        help="the order of the GPUs at first (name)",
    )


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli.top.app import top  # noqa: PLC0415 - keeps --help fast

    return top(where(given), given.sort, once=given.once)


COMMAND = Command(
    description="""Watch the cluster: GPUs with bars of measured and promised memory, pods by state, waiting pods with
reasons, events. Reads the placer's stream, changes nothing, and goes on by itself when the placer comes back.

Keys: g p w e go to GPUs, pods, waiting pods, events; Tab to the next; arrows, j, k, PgUp, PgDn, Home, End scroll; s
chooses the column to sort by, r reverses; / filters by node, model, namespace or pod; space holds the screen; ? shows
all keys; q or Ctrl-C quits.""",
    declare=_declare,
    run=_run,
    exits={"0": "you quit", "1": "no placer answers at the start"},
)
