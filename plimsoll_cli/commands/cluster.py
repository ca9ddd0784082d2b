"""The commands that look at a cluster, and change nothing in it."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plimsoll.part.errors import InputError
from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import (
    DEFAULT_NAMESPACE,
    RELEASE_NAMESPACE,
    add_broker_root,
    add_cluster,
    add_namespace,
    add_nats,
    add_output,
    add_placer,
    add_release,
    add_watch,
    filled,
    namespace_of,
    nodes,
    where,
)

if TYPE_CHECKING:
    from plimsoll_cli.doctor.examine import Places


def _declare_top(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument(
        "--once", action="store_true", help="print the GPUs and what waits once, and end; so does a pipe"
    )
    parser.add_argument(
        "--sort",
        choices=("name", "used", "promised", "free", "share", "idle"),
        default="name",
        help="the order of the GPUs at first (name)",
    )


def _run_top(given: argparse.Namespace) -> int:
    from plimsoll_cli.top.app import top  # noqa: PLC0415 - keeps --help fast

    return top(where(given), given.sort, once=given.once)


TOP = Command(
    summary="Watch GPUs, pods and waiting pods, live, until you quit.",
    description="""Watch the cluster: GPUs with bars of measured and promised memory, pods by state, waiting pods with
reasons, events. Reads the placer's stream, changes nothing, and goes on by itself when the placer comes back.

Keys: g p w e go to GPUs, pods, waiting pods, events; Tab to the next; arrows, j, k, PgUp, PgDn, Home, End scroll; s
chooses the column to sort by, r reverses; / filters by node, model, namespace or pod; space holds the screen; ? shows
all keys; q or Ctrl-C quits.""",
    declare=_declare_top,
    run=_run_top,
    exits={"0": "you quit", "1": "no placer answers at the start"},
)


def _declare_nodes(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument(
        "--model", metavar="NAME", type=filled, help="only nodes that have a GPU of this model: 'NVIDIA L4'"
    )
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide adds models and report; json and yaml have all fields",
    )
    add_watch(parser)


def _run_nodes(given: argparse.Namespace) -> int:
    from plimsoll_cli import nodes  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    placer = where(given)
    return shown(lambda width: nodes.nodes(placer, given.model, given.output, width), given)


NODES = Command(
    summary="List the nodes: what each has, holds and still has to promise.",
    description="""List the nodes that report, each with the sums of its GPUs, the best node first.

MEMORY is in use and usable. FREE and SHARE are the memory and the compute share that no pod was promised; LARGEST is
the most free memory of one GPU. The last column names what keeps pods away.""",
    declare=_declare_nodes,
    run=_run_nodes,
    exits={"0": "the placer answered", "1": "no placer answers"},
)


def _declare_gpus(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    parser.add_argument("--node", metavar="NAME", type=filled, help="only the GPUs of this node")
    parser.add_argument("--model", metavar="NAME", type=filled, help="only GPUs of this model: 'NVIDIA L4'")
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide adds score, UUID and model; json and yaml have the nodes with all fields",
    )
    add_watch(parser)


def _run_gpus(given: argparse.Namespace) -> int:
    from plimsoll_cli import gpus  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    placer = where(given)
    return shown(lambda width: gpus.gpus(placer, given.node, given.model, given.output, width), given)


GPUS = Command(
    summary="List the GPUs: memory and compute time, in use and not yet promised.",
    description="""Show where there is room: memory and compute time of each GPU, in use and not yet promised.

MEMORY is in use and usable. FREE and SHARE are the memory and the compute share that no pod was promised. IDLE is a
decayed average. The last column names what keeps pods away.""",
    declare=_declare_gpus,
    run=_run_gpus,
    exits={"0": "the placer answered", "1": "no placer answers"},
)


def _declare_pods(parser: argparse.ArgumentParser) -> None:
    add_release(parser)
    which = parser.add_mutually_exclusive_group()
    add_namespace(which)
    which.add_argument("-A", "--all-namespaces", action="store_true", help="the pods of all namespaces")
    parser.add_argument("--node", metavar="NAME", type=filled, help="only pods on this node")
    add_output(
        parser,
        ("table", "wide", "json", "yaml"),
        "wide cuts no line and names each GPU; json and yaml have all fields",
    )
    add_watch(parser)


def _run_pods(given: argparse.Namespace) -> int:
    from plimsoll_cli import pods  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    wanted = pods.PodFilter(None if given.all_namespaces else namespace_of(given), given.node)
    placer = where(given)
    return shown(lambda width: pods.pods(placer, wanted, given.output, width), given)


PODS = Command(
    summary="List the pods that share GPUs: what each was promised, holds, or waits for.",
    description="""List the pods that share GPUs: what each was promised and holds, or why it waits.

MEMORY is held and promised, over all GPUs of the pod; SHARE is the promised compute time, in percent of one GPU. A
pod waits, has no process yet, has started (without its input in memory), is loading, or has loaded. The placer names
the first 200 of the pods that wait.""",
    declare=_declare_pods,
    run=_run_pods,
    exits={"0": "the placer answered", "1": "no placer answers"},
)


def _declare_explain(parser: argparse.ArgumentParser) -> None:
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


def _run_explain(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.placer_api.client import NoSuchPodError  # noqa: PLC0415 - likewise
    from plimsoll_cli import explain  # noqa: PLC0415 - likewise

    namespace = namespace_of(given)
    _check_names(given.pod, namespace)
    asked = explain.explanation(where(given), namespace, given.pod, given.nodes, given.reason)
    try:
        answer = asyncio.run(asked)
    except NoSuchPodError as error:
        return output.fail(str(error), REFUSED)
    if given.reason is not None:
        explain.check_reason(answer, given.reason)
    output.answer(answer, given.output, explain.shown)
    return 0


def _check_names(pod: str | None, namespace: str) -> None:
    for field, name in (("POD", pod), ("--namespace", namespace)):
        if name is not None and (not name or "/" in name):
            raise InputError(field, name, "is no name", "name a pod, and its namespace with -n")


EXPLAIN = Command(
    summary="Say why a pod waits, or where it runs and what may slow it.",
    description="Say why a pod waits, or where it runs and whether its limit, its neighbours or its host slow it.",
    declare=_declare_explain,
    run=_run_explain,
    exits={
        "0": "the placer explained the pod, whatever its state",
        "2": "the placer knows no such pod, or a name, reason or address is wrong",
        "1": "no placer answers, or it cannot answer now",
    },
)


def _declare_relocation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", nargs="?", help="a pod that waits; without it, a whole GPU")
    add_namespace(parser, more="without POD it does not count")
    add_release(parser)
    add_output(parser, ("table", "json", "yaml"), "json and yaml are the placer's answer as it is")


def _run_relocation(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from plimsoll.placer_api.client import NoSuchPodError  # noqa: PLC0415 - likewise
    from plimsoll_cli import relocation  # noqa: PLC0415 - likewise

    namespace = DEFAULT_NAMESPACE if given.pod is None else namespace_of(given)
    _check_names(given.pod, namespace)
    try:
        answer = asyncio.run(relocation.preview(where(given), namespace, given.pod))
    except NoSuchPodError as error:
        return output.fail(str(error), REFUSED)
    output.answer(answer, given.output, relocation.shown)
    return 0


RELOCATION = Command(
    summary="Say which pods would move so that a waiting pod fits.",
    description="""Say which pods would move so that a waiting pod fits, or so that a whole GPU is free.

The plan is that of the placer's own search, with the costs that owners stated. Nothing is moved by this command:
the placer moves pods where PLIMSOLL_RELOCATION is on. Pods that may not be moved are counted by reason.""",
    declare=_declare_relocation,
    run=_run_relocation,
    exits={
        "0": "the placer answered, with a plan or without",
        "2": "it knows no such pod, or a name or address cannot be one",
        "1": "no placer answers, or it cannot answer now",
    },
)


def _declare_events(parser: argparse.ArgumentParser) -> None:
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


def _run_events(given: argparse.Namespace) -> int:
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


EVENTS = Command(
    summary="Print the events of the bus, those so far or those from now on.",
    description="""Print the events of the bus: those that it keeps, or, with --follow, those from now on. While
following, the command outlives restarts of NATS.""",
    declare=_declare_events,
    run=_run_events,
    exits={"0": "all were printed", "1": "NATS does not answer", "2": "there is no such type of event"},
)


def _declare_doctor(parser: argparse.ArgumentParser) -> None:
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


def _run_doctor(given: argparse.Namespace) -> int:
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


DOCTOR = Command(
    summary="Look for what is broken, with a remedy for each finding.",
    description="""Look for what is broken: on this machine, on the bus, and in the cluster, with a remedy for each
finding.

Nothing is changed. A part whose address is not given is skipped.""",
    declare=_declare_doctor,
    run=_run_doctor,
    exits={
        "0": "no check failed; warnings are possible",
        "1": "a check failed, or the bundle cannot be written",
    },
)


COMMANDS: Final = {
    "top": TOP,
    "nodes": NODES,
    "gpus": GPUS,
    "pods": PODS,
    "explain": EXPLAIN,
    "relocation": RELOCATION,
    "events": EVENTS,
    "doctor": DOCTOR,
}
