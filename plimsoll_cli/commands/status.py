"""`plimsoll status`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.options import add_broker_root, add_output, add_watch


def _declare(parser: argparse.ArgumentParser) -> None:
    add_output(
        parser, ("table", "wide", "json", "yaml"), "wide cuts no line; json and yaml are the broker's answer"
    )
    add_watch(parser)
    add_broker_root(parser)


def _run(given: argparse.Namespace) -> int:
    from plimsoll.broker.root import default_root  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli import status  # noqa: PLC0415 - likewise
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    root = given.broker_root or default_root()
    return shown(lambda width: status.status(root, given.output, width), given)


COMMAND = Command(
    description="""Show the containers on this machine's GPUs: memory and compute time of each, and why it waits.

Reads this machine's broker: that of `plimsoll run`, or, as root on a node of a cluster, the node's. Takes a second,
the span of the figures for use and waiting.""",
    declare=_declare,
    run=_run,
    exits={"0": "the broker answered", "1": "there is no broker, or it does not answer"},
)
