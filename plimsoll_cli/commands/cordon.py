"""`plimsoll cordon`."""

import argparse
from collections.abc import Awaitable, Callable

from plimsoll_cli import output
from plimsoll_cli.command import Command
from plimsoll_cli.options import add_release, where

EXITS = {
    "0": "it is done",
    "2": "the GPU is unknown or not named clearly",
    "1": "the cluster refused or did not answer",
}
RIGHTS = "In Kubernetes you need `get` and `patch` on nodes (deploy/cordon-role.yaml)."


def declare_gpu(parser: argparse.ArgumentParser) -> None:
    """The GPU, and the options by which the cluster is found."""
    parser.add_argument(
        "gpu",
        metavar="GPU",
        help="a UUID, or the beginning of one, or NODE/INDEX, which means a divided card as a whole",
    )
    add_release(parser)


def run(given: argparse.Namespace, work: Callable[..., Awaitable[str]]) -> int:
    """Do the work of a command, and print its line."""
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.part.log import log_nothing  # noqa: PLC0415 - likewise
    from plimsoll_cli.cluster import Cluster  # noqa: PLC0415 - likewise

    # The command has one line for each outcome; the log of its parts would stand between.
    log_nothing()
    line = asyncio.run(_done(work(where(given), Cluster(given.kubeconfig, given.context), given.gpu)))
    output.lines(*([line] if line else []))
    return 0


async def _done(work: Awaitable[str]) -> str:
    return await work


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli import cordon  # noqa: PLC0415 - keeps --help fast

    return run(given, cordon.cordon)


COMMAND = Command(
    description=f"""Keep new pods away from one GPU; the pods that it has stay.

A cordoned GPU is shown as such by `plimsoll gpus` and on the page, and waiting pods name it. It stays cordoned until
`plimsoll uncordon`. {RIGHTS}""",
    declare=declare_gpu,
    run=_run,
    exits=EXITS,
)
