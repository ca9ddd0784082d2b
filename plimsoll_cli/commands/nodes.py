"""`plimsoll nodes`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.options import add_output, add_release, add_watch, filled, where


def _declare(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument(
        "--model", metavar="NAME", type=filled, help="only nodes that have a GPU of this model: 'NVIDIA L4'"
    )
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide adds models and report; json and yaml have all fields",
    )
    add_watch(parser)


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli import nodes  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    placer = where(given)
    return shown(lambda width: nodes.nodes(placer, given.model, given.output, width), given)


COMMAND = Command(
    description="""List the nodes that report, each with the sums of its GPUs, the best node first.

MEMORY is in use and usable. FREE and SHARE are the memory and the compute share that no pod was promised; LARGEST is
the most free memory of one GPU. The last column names what keeps pods away.""",
    declare=_declare,
    run=_run,
    exits={"0": "the placer answered", "1": "no placer answers"},
)
