"""`plimsoll convert`."""

import argparse

from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the manifest; - reads standard input")
    parser.add_argument(
        "--gpushare-unit",
        choices=("GiB", "MiB"),
        default="GiB",
        help="the unit of aliyun.com/gpu-mem in the old cluster (GiB)",
    )


def _run(given: argparse.Namespace) -> int:
    from plimsoll.part.errors import PlimsollError  # noqa: PLC0415 - likewise
    from plimsoll_cli.convert import converted  # noqa: PLC0415 - keeps --help fast

    try:
        text, changes = converted(given.file, given.gpushare_unit)
    except PlimsollError as error:
        return output.fail(str(error), REFUSED)
    for change in changes or ["nothing is to be converted"]:
        output.note(change)
    output.write(text)
    return 0


COMMAND = Command(
    description="""Turn a manifest for HAMi, gpushare or KAI into Plimsoll's terms: YAML on standard output.

Each change is reported on standard error. Comments are lost.""",
    declare=_declare,
    run=_run,
    exits={"0": "converted", "2": "nothing is printed, as a pod has no equal counterpart"},
)
