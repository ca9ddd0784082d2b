"""The commands that change a cluster, or, for `resize`, a command of `plimsoll run`."""

import argparse
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import (
    add_broker_root,
    add_cluster,
    add_namespace,
    add_release,
    filled,
    namespace_of,
    seconds,
    where,
)

if TYPE_CHECKING:
    from plimsoll.placer_api.rpc import Resize
    from plimsoll_cli.asking import Where
    from plimsoll_cli.cluster import Cluster

_EXITS: Final = {
    "0": "it is done",
    "2": "the GPU is unknown or not named clearly",
    "1": "the cluster refused or did not answer",
}
_RIGHTS: Final = "In Kubernetes you need `get` and `patch` on nodes (deploy/cordon-role.yaml)."


def _declare_gpu(parser: argparse.ArgumentParser) -> None:
    """The GPU, and the options by which the cluster is found."""
    parser.add_argument(
        "gpu",
        metavar="GPU",
        help="a UUID, or the beginning of one, or NODE/INDEX, which means a divided card as a whole",
    )
    add_release(parser)


def _change_gpu(given: argparse.Namespace, work: Callable[..., Coroutine[Any, Any, str]]) -> int:
    """Do the work of a command, and print its line."""
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.part.log import log_nothing  # noqa: PLC0415 - likewise
    from plimsoll_cli.cluster import Cluster  # noqa: PLC0415 - likewise

    # The command has one line for each outcome; the log of its parts would stand between.
    log_nothing()
    line = asyncio.run(work(where(given), Cluster(given.kubeconfig, given.context), given.gpu))
    output.lines(*([line] if line else []))
    return 0


def _run_cordon(given: argparse.Namespace) -> int:
    from plimsoll_cli import cordon  # noqa: PLC0415 - keeps --help fast

    return _change_gpu(given, cordon.cordon)


CORDON = Command(
    summary="Keep new pods away from one GPU.",
    description=f"""Keep new pods away from one GPU; the pods that it has stay.

A cordoned GPU is shown as such by `plimsoll gpus` and on the page, and waiting pods name it. It stays cordoned until
`plimsoll uncordon`. {_RIGHTS}""",
    declare=_declare_gpu,
    run=_run_cordon,
    exits=_EXITS,
)


def _run_uncordon(given: argparse.Namespace) -> int:
    from plimsoll_cli import cordon  # noqa: PLC0415 - keeps --help fast

    return _change_gpu(given, cordon.uncordon)


UNCORDON = Command(
    summary="Let a cordoned GPU take pods again.",
    description=f"""Let a cordoned GPU take pods again.

The UUID of a card that was taken out can be named too, which ends its cordon. {_RIGHTS}""",
    declare=_declare_gpu,
    run=_run_uncordon,
    exits=_EXITS,
)


def _declare_drain(parser: argparse.ArgumentParser) -> None:
    _declare_gpu(parser)
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


def _run_drain(given: argparse.Namespace) -> int:
    from plimsoll_cli.drain import DrainRules, drain  # noqa: PLC0415 - keeps --help fast

    rules = DrainRules(given.force, given.delete_emptydir_data, given.timeout_s)

    async def work(place: "Where", cluster: "Cluster", gpu: str) -> str:
        return await drain(place, cluster, gpu, rules, output.lines)

    return _change_gpu(given, work)


DRAIN = Command(
    summary="Cordon one GPU, and evict the pods on it.",
    description="""Cordon one GPU, and evict the pods on it; those on other GPUs of its node stay.

Evictions heed disruption budgets, and are tried again until the budgets allow them. Nothing is evicted while one of
the pods has no controller that replaces it, or an emptyDir, unless the options allow that. Afterwards `plimsoll
uncordon` lets pods return. In Kubernetes you need the rights of deploy/cordon-role.yaml.""",
    declare=_declare_drain,
    run=_run_drain,
    exits=_EXITS,
)


RUN_NAMESPACE = "plimsoll-run"
"""As `plimsoll.broker.wire.RUN_NAMESPACE`, which takes 70 ms to import."""

CHANGES = ("--gpu-memory", "--gpu-share", "--gpu-share-limit")


def _declare_resize(parser: argparse.ArgumentParser) -> None:
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


def _run_resize(given: argparse.Namespace) -> int:
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


RESIZE = Command(
    summary="Change a running container's memory line, share or share limit.",
    description="""Change a running container's memory line, share or share limit, or several of them together.

Promised shares of a GPU never pass 100. No process is killed: if a container holds more than its new line, further
growth is refused until it holds less.

In Kubernetes, you need `get` and `patch` on pods and the verb `resize` on pods, in the pod's namespace; the API
server asks for them in your name.""",
    declare=_declare_resize,
    run=_run_resize,
    exits={
        "0": "all requested changes are in force",
        "2": "the changes were refused, and nothing was changed",
        "1": "the changes are not confirmed",
    },
)


COMMANDS: Final = {
    "cordon": CORDON,
    "uncordon": UNCORDON,
    "drain": DRAIN,
    "resize": RESIZE,
}
