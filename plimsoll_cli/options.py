"""The options that several commands share, so that each has one name and one meaning everywhere."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from plimsoll_cli.asking import Where

DEFAULT_NAMESPACE: Final = "default"

RELEASE_NAMESPACE: Final = "plimsoll-system"
"""The namespace of docs/install.md."""

WATCH_S: Final = 2.0


def add_placer(parser: argparse.ArgumentParser) -> None:
    """`--placer`; `given.placer` is empty where the user named none."""
    parser.add_argument(
        "--placer",
        metavar="URL",
        default=os.environ.get("PLIMSOLL_PLACER_URL", ""),
        help="the placer's HTTP port (http://127.0.0.1:8080) or its control socket; or PLIMSOLL_PLACER_URL",
    )


def add_release(parser: argparse.ArgumentParser) -> None:
    """`--placer`, and the options that find the placer of a cluster; `where` reads them."""
    add_placer(parser)
    parser.add_argument(
        "--release-namespace",
        metavar="NAME",
        default=os.environ.get("PLIMSOLL_RELEASE_NAMESPACE", RELEASE_NAMESPACE),
        help=f"without --placer: the namespace of the placer in the cluster ({RELEASE_NAMESPACE}); or "
        "PLIMSOLL_RELEASE_NAMESPACE",
    )
    add_cluster(parser)


def where(given: argparse.Namespace) -> "Where":
    """The placer that the options of `add_release` name, or that of the kubeconfig's cluster."""
    if given.placer:
        placer: str = given.placer
        return placer
    from plimsoll_cli.cluster import Cluster  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.service_proxy import PlacerService  # noqa: PLC0415 - likewise

    return PlacerService(Cluster(given.kubeconfig, given.context), given.release_namespace)


def add_namespace(parser: argparse._ActionsContainer, default: str | None = None, more: str = "") -> None:
    """`-n`; `more` is a sentence for its help. Without a default, `namespace_of` reads the option."""
    shown = (
        default or f"as for kubectl: that of the kubeconfig's context, of this pod, or {DEFAULT_NAMESPACE}"
    )
    text = f"the namespace ({shown}){'; ' if more else ''}{more}"
    parser.add_argument("-n", "--namespace", metavar="NAME", default=default, help=text)


def namespace_of(given: argparse.Namespace) -> str:
    """`-n`, or the namespace that kubectl would take; `default` where the options name local nodes or no cluster.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    named: str | None = given.namespace
    if named is not None:
        return named
    placer = getattr(given, "placer", "")
    if placer and "://" not in placer:  # a socket of local nodes
        return DEFAULT_NAMESPACE
    from plimsoll.part.errors import InputError  # noqa: PLC0415 - likewise
    from plimsoll_cli.cluster import Cluster, namespace_in  # noqa: PLC0415 - keeps --help fast

    try:
        return namespace_in(Cluster(given.kubeconfig, given.context)) or DEFAULT_NAMESPACE
    except InputError as error:
        if error.value is not None and (not placer or given.kubeconfig or given.context):
            raise
        # There is none, or a placer was named that needs none: a command that needs one says so.
        return DEFAULT_NAMESPACE


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """`--kubeconfig` and `--context`."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="as for kubectl; without it: KUBECONFIG, ~/.kube/config, or a service account",
    )
    parser.add_argument("--context", metavar="NAME", help="the context in it, as for kubectl")


def add_output(parser: argparse.ArgumentParser, forms: Sequence[str], more: str = "") -> None:
    """`-o`; the first form is the default."""
    text = f"the form of the output ({forms[0]}){'; ' if more else ''}{more}"
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=text)


def add_watch(parser: argparse.ArgumentParser) -> None:
    """`--watch`; `given.watch_s` is None without it."""
    parser.add_argument(
        "-w",
        "--watch",
        dest="watch_s",
        metavar="SECONDS",
        nargs="?",
        type=seconds,
        const=WATCH_S,
        help=f"show it again and again until Ctrl-C, every so many seconds ({WATCH_S:g})",
    )


def add_broker_root(parser: argparse.ArgumentParser) -> None:
    """`--broker-root`; `given.broker_root` is None where it is not given."""
    parser.add_argument(
        "--broker-root",
        metavar="FOLDER",
        type=_folder,
        help="the broker's directory, where `plimsoll run` was given one",
    )


def add_nats(parser: argparse.ArgumentParser, default: str, text: str) -> None:
    """`--nats-url`."""
    url = os.environ.get("PLIMSOLL_NATS_URL", default)
    parser.add_argument("--nats-url", metavar="URL", default=url, help=f"{text}; or PLIMSOLL_NATS_URL")


def _folder(text: str) -> Path:
    """A path that holds in any working directory: programs find their pages by it, and may change theirs."""
    try:
        folder = Path(text).absolute()
        str(folder).encode()
    except UnicodeEncodeError as error:
        message = f"{text!r} is not UTF-8, with its working directory; give a path that is"
        raise argparse.ArgumentTypeError(message) from error
    except OSError as error:
        message = f"{text!r} has no working directory to begin in ({error}); give a path that begins with /"
        raise argparse.ArgumentTypeError(message) from error
    return folder


def filled(given: str) -> str:
    """A name from an option. An empty variable of a shell must not mean all, nor none."""
    if not given.strip():
        raise argparse.ArgumentTypeError(f"{given!r} is empty; give a value, or leave the option out")
    return given


def seconds(text: str) -> float:
    """A time of 0.1 s to an hour, from an option."""
    return _within(_number(float, text), 0.1, 3600.0, "seconds")


def nodes(text: str) -> int:
    """A number of nodes that one answer may list, from an option."""
    return int(_within(_number(int, text), 1, 500, "nodes"))


def _number(kind: Callable[[str], float], text: str) -> float:
    try:
        return kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; give one such as 5") from error


def _within(value: float, least: float, most: float, unit: str) -> float:
    if not least <= value <= most:  # also for nan
        raise argparse.ArgumentTypeError(f"{value:g} is not from {least:g} to {most:g} {unit}")
    return value
