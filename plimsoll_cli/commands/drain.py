"""`plimsoll drain`."""

import argparse
from typing import TYPE_CHECKING

from plimsoll_cli import output
from plimsoll_cli.command import Command
from plimsoll_cli.commands.cordon import EXITS, declare_gpu, run
from plimsoll_cli.options import seconds

if TYPE_CHECKING:
    from plimsoll_cli.asking import Where
    from plimsoll_cli.cluster import Cluster


def _declare(parser: argparse.ArgumentParser) -> None:
    declare_gpu(parser)
    parser.add_argument("--force", action="store_true", help="also end pods that no controller replaces")
    parser.add_argument(
        "--delete-emptydir-data", action="store_true", help="also end pods with an emptyDir, which is lost"
    )
    parser.add_argument(
        "--timeout-s",
        metavar="SECONDS",
        type=seconds,
        help="give up after this time (wait as long as it takes)",
    )


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli.drain import DrainRules, drain  # noqa: PLC0415 - keeps --help fast

    rules = DrainRules(given.force, given.delete_emptydir_data, given.timeout_s)

    async def work(place: "Where", cluster: "Cluster", gpu: str) -> str:
        return await drain(place, cluster, gpu, rules, output.lines)

    return run(given, work)


COMMAND = Command(
    description="""Cordon one GPU, and evict the pods on it; those on other GPUs of its node stay.

Evictions heed disruption budgets, and are tried again until the budgets allow them. Nothing is evicted while one of
the pods has no controller that replaces it, or an emptyDir, unless the options allow that. Afterwards `plimsoll
uncordon` lets pods return. In Kubernetes you need the rights of deploy/cordon-role.yaml.""",
    declare=_declare,
    run=_run,
    exits=EXITS,
)
