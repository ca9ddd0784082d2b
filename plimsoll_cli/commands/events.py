"""`plimsoll events`."""

import argparse
import os

from plimsoll_cli import output
from plimsoll_cli.command import Command
from plimsoll_cli.options import add_nats, add_output, filled


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", type=filled, help="a type, task.loaded, or a group of types, task")
    parser.add_argument(
        "--node",
        metavar="NAME",
        type=filled,
        help="only events of this node, and placements on it",
    )
    parser.add_argument(
        "--pod",
        metavar="UID",
        type=filled,
        help="only events of the pod with this uid; or its name, for placement events",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for new events, instead of printing those so far"
    )
    add_nats(parser, "nats://127.0.0.1:4222", "the bus")
    add_output(
        parser, ("table", "wide", "json"), "wide cuts no line; json has the events as published, one a line"
    )


def _run(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.bus.access import BusAccess  # noqa: PLC0415 - likewise
    from plimsoll_cli import events  # noqa: PLC0415 - likewise
    from plimsoll_cli.columns import terminal_columns  # noqa: PLC0415 - likewise

    async def print_all() -> None:
        wanted, access = (
            events.EventFilter(given.type or "", given.node or "", given.pod or ""),
            BusAccess.of(os.environ),
        )
        async for message in events.events(given.nats_url, wanted, access, follow=given.follow):
            width = terminal_columns() if given.output == "table" else None
            output.lines(message.decode() if given.output == "json" else events.line(message, width))

    asyncio.run(print_all())
    return 0


COMMAND = Command(
    description="""Print the events of the bus: those that it keeps, or, with --follow, those from now on. While
following, the command outlives restarts of NATS.""",
    declare=_declare,
    run=_run,
    exits={"0": "all were printed", "1": "NATS does not answer", "2": "there is no such type of event"},
)
