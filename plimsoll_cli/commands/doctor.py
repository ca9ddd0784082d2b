"""`plimsoll doctor`."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_cli import output
from plimsoll_cli.command import Command
from plimsoll_cli.options import (
    RELEASE_NAMESPACE,
    add_broker_root,
    add_cluster,
    add_namespace,
    add_nats,
    add_output,
    add_placer,
)

if TYPE_CHECKING:
    from plimsoll_cli.doctor.examine import Places


def _declare(parser: argparse.ArgumentParser) -> None:
    add_nats(parser, "", "the URL of NATS, with a user who may read the stream")
    url = os.environ.get("PLIMSOLL_REDIS_URL", "")
    parser.add_argument(
        "--redis-url", metavar="URL", default=url, help="the sorted list; or PLIMSOLL_REDIS_URL"
    )
    add_placer(parser)
    add_namespace(parser, RELEASE_NAMESPACE, "the release's namespace")
    add_cluster(parser)
    add_broker_root(parser)
    add_output(parser, ("table", "json", "yaml"), "json and yaml have all findings")
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        type=Path,
        help="also write a .tar.gz for a bug report: findings, state, events and metrics, with secrets removed",
    )


def _run(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast
    import logging  # noqa: PLC0415 - likewise

    from plimsoll.part.log import log_nothing  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.bundle import write_bundle  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.examine import examine  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.finding import Verdict  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.report import WIDTH, shown  # noqa: PLC0415 - likewise

    # The findings say what the log of the clients would say, with a remedy.
    log_nothing()
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    places = _places(given)
    groups = asyncio.run(examine(places))
    if given.output == "table":
        console = output.console()
        # Sentences are broken between words, also in a pipe; no word is.
        for line in shown(groups, console.width if console.is_terminal else WIDTH):
            console.print(line, soft_wrap=True)
    else:
        output.write(output.document({"groups": groups}, given.output))
    if given.bundle is not None:
        output.note(asyncio.run(write_bundle(given.bundle, places, groups)))
    return int(any(one.verdict is Verdict.FAILED for group in groups for one in group.findings))


def _places(given: argparse.Namespace) -> "Places":
    from plimsoll.broker.root import default_root  # noqa: PLC0415 - keeps --help fast
    from plimsoll.bus.access import BusAccess  # noqa: PLC0415 - likewise
    from plimsoll.native import HOOK_LIBRARY  # noqa: PLC0415 - likewise
    from plimsoll_cli.cluster import Cluster  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.examine import Places  # noqa: PLC0415 - likewise
    from plimsoll_cli.doctor.machine import Machine  # noqa: PLC0415 - likewise
    from plimsoll_cli.service_proxy import PlacerService  # noqa: PLC0415 - likewise

    cluster = Cluster(given.kubeconfig, given.context)
    return Places(
        machine=Machine(given.broker_root or default_root(), HOOK_LIBRARY),
        nats_url=given.nats_url,
        access=BusAccess.of(os.environ),
        redis_url=given.redis_url,
        placer=given.placer or PlacerService(cluster, given.namespace),
        cluster=cluster,
        namespace=given.namespace,
    )


COMMAND = Command(
    description="""Look for what is broken: on this machine, on the bus, and in the cluster, with a remedy for each
finding.

Nothing is changed. A part whose address is not given is skipped.""",
    declare=_declare,
    run=_run,
    exits={
        "0": "no check failed; warnings are possible",
        "1": "a check failed, or the bundle cannot be written",
    },
)
