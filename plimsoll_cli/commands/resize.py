"""`plimsoll resize`."""

import argparse
from typing import TYPE_CHECKING

from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import (
    add_broker_root,
    add_cluster,
    add_namespace,
    filled,
    namespace_of,
    seconds,
)

if TYPE_CHECKING:
    from plimsoll.placer_api.rpc import Resize

RUN_NAMESPACE = "plimsoll-run"
"""As `plimsoll.broker.wire.RUN_NAMESPACE`, which takes 70 ms to import."""

CHANGES = ("--gpu-memory", "--gpu-share", "--gpu-share-limit")


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pod", metavar="POD", help=f"the pod, or, with -n {RUN_NAMESPACE}, a command's name or uid"
    )
    parser.add_argument(
        "--gpu-memory", metavar="SIZE", help="the new line in total over the container's GPUs: 6Gi"
    )
    parser.add_argument(
        "--gpu-share",
        metavar="PERCENT",
        help="guaranteed compute time, in percent of one GPU, in total over the container's GPUs: 40",
    )
    parser.add_argument(
        "--gpu-share-limit", metavar="PERCENT", help="the most compute time, in percent of each GPU: 80"
    )
    add_namespace(parser, more=f"{RUN_NAMESPACE} for commands of `plimsoll run`, as with --broker-root")
    parser.add_argument(
        "--container", metavar="NAME", type=filled, help="needed where several containers have a GPU"
    )
    add_cluster(parser)
    parser.add_argument(
        "--timeout-s",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="time for the answers of API server, placer and broker together (30)",
    )
    add_broker_root(parser)


def _run(given: argparse.Namespace) -> int:
    values = (given.gpu_memory, given.gpu_share, given.gpu_share_limit)
    asked = {name: value for name, value in zip(CHANGES, values, strict=True) if value is not None}
    if not asked:
        return output.fail(f"nothing is to be changed; give at least one of {', '.join(CHANGES)}", REFUSED)
    _check(asked)
    given.namespace = given.namespace or (RUN_NAMESPACE if given.broker_root else namespace_of(given))
    if given.namespace == RUN_NAMESPACE:
        return _resize_here(given)
    if given.broker_root:
        problem = (
            f"has no commands of `plimsoll run`; leave it out, or leave out --broker-root {given.broker_root}"
        )
        return output.fail(f"--namespace: {given.namespace!r} {problem}", REFUSED)
    return _resize_pod(given)


def _check(asked: dict[str, str]) -> None:
    """Refuse what no placer takes before anybody is asked."""
    from plimsoll.quantity import parse_size, parse_whole  # noqa: PLC0415 - keeps --help fast

    for option, text in asked.items():
        if option == "--gpu-memory":
            parse_size(text, option)
        else:
            parse_whole(text, option, "percent")


def _request(given: argparse.Namespace) -> "Resize":
    from plimsoll.ids import ContainerName  # noqa: PLC0415 - keeps --help fast
    from plimsoll.placer_api.rpc import Resize  # noqa: PLC0415 - likewise

    return Resize(
        pod=given.pod,
        namespace=given.namespace,
        gpu_memory=given.gpu_memory,
        gpu_share=given.gpu_share,
        gpu_share_limit=given.gpu_share_limit,
        container=ContainerName(given.container) if given.container else None,
    )


def _resize_here(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.broker.root import default_root  # noqa: PLC0415 - likewise
    from plimsoll.part.log import log_plainly  # noqa: PLC0415 - likewise
    from solo.resize import resize_command  # noqa: PLC0415 - likewise

    log_plainly()
    changes = asyncio.run(resize_command(given.broker_root or default_root(), _request(given)))
    output.lines(*map(output.printable, changes))
    return 0


def _resize_pod(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.part.log import log_nothing  # noqa: PLC0415 - likewise
    from plimsoll_cli.cluster import Cluster  # noqa: PLC0415 - likewise
    from plimsoll_cli.resize_pod import NotResizedError, resize_pod  # noqa: PLC0415 - likewise

    # The command has one line for each outcome; the log of its parts would stand between.
    log_nothing()
    cluster = Cluster(given.kubeconfig, given.context)
    try:
        confirmed = asyncio.run(resize_pod(_request(given), cluster, given.timeout_s))
    except NotResizedError as error:
        return output.fail(str(error), REFUSED)
    output.lines(*(f"{given.namespace}/{given.pod}: {line}" for line in confirmed.lines()))
    return 0


COMMAND = Command(
    description="""Change a running container's memory line, share or share limit, or several of them together.

Promised shares of a GPU never pass 100. No process is killed: if a container holds more than its new line, further
growth is refused until it holds less.

In Kubernetes, you need `get` and `patch` on pods and the verb `resize` on pods, in the pod's namespace; the API
server asks for them in your name.""",
    declare=_declare,
    run=_run,
    exits={
        "0": "all requested changes are in force",
        "2": "the changes were refused, and nothing was changed",
        "1": "the changes are not confirmed",
    },
)
