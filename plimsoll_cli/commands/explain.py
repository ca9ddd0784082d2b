"""`plimsoll explain`."""

import argparse

from plimsoll.part.errors import InputError
from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import add_namespace, add_output, add_release, filled, namespace_of, nodes, where


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod")
    add_namespace(parser)
    add_release(parser)
    parser.add_argument(
        "--nodes",
        metavar="COUNT",
        type=nodes,
        default=10,
        help="the most nodes that are listed one by one (10)",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", type=filled, help="list only nodes whose first reason is this text"
    )
    add_output(parser, ("table", "json", "yaml"), "json and yaml are the placer's answer as it is")
    parser.add_argument("--json", action="store_const", const="json", dest="output", help="as -o json")


def _run(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.placer_api.client import NoSuchPodError  # noqa: PLC0415 - likewise
    from plimsoll_cli import explain  # noqa: PLC0415 - likewise

    namespace = namespace_of(given)
    for field, name in (("POD", given.pod), ("--namespace", namespace)):
        if not name or "/" in name:
            raise InputError(field, name, "is no name", "name a pod, and its namespace with -n")
    asked = explain.explanation(where(given), namespace, given.pod, given.nodes, given.reason)
    try:
        answer = asyncio.run(asked)
    except NoSuchPodError as error:
        return output.fail(str(error), REFUSED)
    if given.reason is not None:
        explain.check_reason(answer, given.reason)
    output.answer(answer, given.output, explain.shown)
    return 0


COMMAND = Command(
    description="Say why a pod waits, or where it runs and whether its limit, its neighbours or its host slow it.",
    declare=_declare,
    run=_run,
    exits={
        "0": "the placer explained the pod, whatever its state",
        "2": "the placer knows no such pod, or a name, reason or address is wrong",
        "1": "no placer answers, or it cannot answer now",
    },
)
