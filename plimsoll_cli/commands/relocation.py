"""`plimsoll relocation`."""

import argparse

from plimsoll.part.errors import InputError
from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import (
    DEFAULT_NAMESPACE,
    add_namespace,
    add_output,
    add_release,
    namespace_of,
    where,
)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", nargs="?", help="a pod that waits; without it, a whole GPU")
    add_namespace(parser, more="without POD it does not count")
    add_release(parser)
    add_output(parser, ("table", "json", "yaml"), "json and yaml are the placer's answer as it is")


def _run(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.placer_api.client import NoSuchPodError  # noqa: PLC0415 - likewise
    from plimsoll_cli import relocation  # noqa: PLC0415 - likewise

    namespace = DEFAULT_NAMESPACE if given.pod is None else namespace_of(given)
    for field, name in (("POD", given.pod), ("--namespace", namespace)):
        if name is not None and (not name or "/" in name):
            raise InputError(field, name, "is no name", "name a pod, and its namespace with -n")
    try:
        answer = asyncio.run(relocation.preview(where(given), namespace, given.pod))
    except NoSuchPodError as error:
        return output.fail(str(error), REFUSED)
    output.answer(answer, given.output, relocation.shown)
    return 0


COMMAND = Command(
    description="""Say which pods would move so that a waiting pod fits, or so that a whole GPU is free.

The plan is that of the placer's own search, with the costs that owners stated. Nothing is moved by this command:
the placer moves pods where PLIMSOLL_RELOCATION is on. Pods that may not be moved are counted by reason.""",
    declare=_declare,
    run=_run,
    exits={
        "0": "the placer answered, with a plan or without",
        "2": "it knows no such pod, or a name or address cannot be one",
        "1": "no placer answers, or it cannot answer now",
    },
)
