"""`plimsoll gpus`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.options import add_output, add_release, add_watch, filled, where


def _declare(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument("--node", metavar="NAME", type=filled, help="only the GPUs of this node")
    parser.add_argument("--model", metavar="NAME", type=filled, help="only GPUs of this model: 'NVIDIA L4'")
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide adds score, UUID and model; json and yaml have the nodes with all fields",
    )
    add_watch(parser)


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli import gpus  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    placer = where(given)
    return shown(lambda width: gpus.gpus(placer, given.node, given.model, given.output, width), given)


COMMAND = Command(
    description="""Show where there is room: memory and compute time of each GPU, in use and not yet promised.

MEMORY is in use and usable. FREE and SHARE are the memory and the compute share that no pod was promised. IDLE is a
decayed average. The last column names what keeps pods away.""",
    declare=_declare,
    run=_run,
    exits={"0": "the placer answered", "1": "no placer answers"},
)
