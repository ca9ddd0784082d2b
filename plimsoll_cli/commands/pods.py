"""`plimsoll pods`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.options import (
    add_namespace,
    add_output,
    add_release,
    add_watch,
    filled,
    namespace_of,
    where,
)


def _declare(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    which = parser.add_mutually_exclusive_group()
    add_namespace(which)
    which.add_argument("-A", "--all-namespaces", action="store_true", help="the pods of all namespaces")
    parser.add_argument("--node", metavar="NAME", type=filled, help="only pods on this node")
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide cuts no line and names each GPU; json and yaml have all fields",
    )
    add_watch(parser)


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli import pods  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    wanted = pods.PodFilter(None if given.all_namespaces else namespace_of(given), given.node)
    placer = where(given)
    return shown(lambda width: pods.pods(placer, wanted, given.output, width), given)


COMMAND = Command(
    description="""List the pods that share GPUs: what each was promised and holds, or why it waits.

MEMORY is held and promised, over all GPUs of the pod; SHARE is the promised compute time, in percent of one GPU. A
pod waits, has no process yet, has started (without its input in memory), is loading, or has loaded. The placer names
the first 200 of the pods that wait.""",
    declare=_declare,
    run=_run,
    exits={"0": "the placer answered", "1": "no placer answers"},
)
