"""The commands of `plimsoll`. Heavy imports stay inside the commands, so that `--help` answers at once."""

import asyncio
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.models import OptionInfo

from plimsoll.broker.root import default_root
from plimsoll.broker.wire import RUN_NAMESPACE
from plimsoll.ids import ContainerName
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.program import program_of
from plimsoll.part.variables import unknown_variables
from plimsoll.placer_api.rpc import DEFAULT_NAMESPACE, Resize

REFUSED: Final = 2
RELEASE_NAMESPACE: Final = "plimsoll-system"
"""The namespace of docs/install.md."""

BROKER_ROOT: Final[OptionInfo] = typer.Option(
    help="The broker's directory, where `plimsoll run` was given one."
)
PLACER: Final[OptionInfo] = typer.Option(
    envvar="PLIMSOLL_PLACER_URL",
    help="The URL of the placer's HTTP port (http://127.0.0.1:8080), or its control socket.",
)

app = typer.Typer(
    help="Share GPUs safely: places pods where GPU memory and compute really are free, and holds them to it.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # also those of the commands
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the form of an option's callback
    if wanted:
        try:
            version = importlib.metadata.version("plimsoll")
        except importlib.metadata.PackageNotFoundError:
            version = "(from a source tree that is not installed)"
        Console().print(f"plimsoll {version}", highlight=False, soft_wrap=True)
        raise typer.Exit


@app.callback()
def plimsoll(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Refuse misspelt variables before any command."""
    problems = list(unknown_variables(os.environ))
    if problems:
        _fail("\nplimsoll: ".join(map(str, problems)), REFUSED)


@app.command()
def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Let everything run on until Ctrl-C, with the live page.")
    ] = False,
) -> None:
    """Run a dozen pods on three emulated nodes, live, in under a minute. Needs no GPU and no cluster."""
    from plimsoll.cli.demo.demo import run_demo  # noqa: PLC0415 - keeps --help fast

    try:
        code = asyncio.run(run_demo(Console(), keep=keep))
    except PlimsollError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def run() -> None:
    """Run one command on a GPU of this machine, held to its line and its share: `run --gpu-memory 2Gi -- CMD`."""
    # This process becomes the program of `solo`, which parses the options, so signals and exit code are the
    # command's. The arguments come from sys.argv, because the parser here would swallow the `--`.
    words = sys.argv[sys.argv.index("run") + 1 :]
    os.execv(sys.executable, [*program_of("solo"), *words])  # noqa: S606 - no shell wanted


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def simulate() -> None:
    """Replay a trace of a cluster and compare policies: `simulate TRACE --policy plimsoll --seeds 42..51`."""
    # The simulator is a part of its own, which the command line does not import.
    words = sys.argv[sys.argv.index("simulate") + 1 :]
    os.execv(sys.executable, [*program_of("simulator"), "trace", *words])  # noqa: S606 - no shell wanted


@app.command()
def status(
    broker_root: Annotated[Path | None, BROKER_ROOT] = None,
) -> None:
    """Show the containers on this machine's GPUs: memory and compute time of each, and why it waits.

    Reads this machine's broker: that of `plimsoll run`, or, as root on a node of
    a cluster, the node's. Takes a second, the span of the figures for use and waiting.
    """
    from plimsoll.cli.status import status as status_of  # noqa: PLC0415 - keeps --help fast

    try:
        lines = asyncio.run(status_of(broker_root or default_root()))
    except PlimsollError as error:
        _fail(str(error))
    for line in lines:
        Console().print(line, soft_wrap=True, markup=False, highlight=False)


@app.command()
def gpus(
    placer: Annotated[str, PLACER] = "",
    node: Annotated[str | None, typer.Option(help="Only the GPUs of this node.")] = None,
    model: Annotated[str | None, typer.Option(help="Only GPUs of this model: 'NVIDIA L4'.")] = None,
    output: Annotated[
        Literal["table", "wide", "json"],
        typer.Option(
            "--output", "-o", help="Or with score, UUID and model; or the nodes as one JSON object."
        ),
    ] = "table",
) -> None:
    """Show where there is room: memory and compute time of each GPU, in use and not yet promised.

    MEMORY is in use and usable. FREE and SHARE are the memory and the compute
    share that no pod was promised. IDLE is a decayed average. The last column
    names what keeps pods away. The exit code is 1 if no placer answers.
    """
    import msgspec  # noqa: PLC0415 - keeps --help fast

    from plimsoll.cli import gpus as listing  # noqa: PLC0415 - likewise

    try:
        nodes = asyncio.run(listing.nodes_of(placer, node, model))
    except PlimsollError as error:
        _fail(str(error))
    if output == "json":
        _write(msgspec.json.encode({"items": nodes}).decode() + "\n")
        return
    lines = list(listing.shown(nodes, wide=output == "wide"))
    if lines:
        _write("\n".join(lines) + "\n")
    else:
        which = "no GPU is like that" if node or model else "no node has reported a GPU"
        Console(stderr=True).print(f"plimsoll: {which}", soft_wrap=True, markup=False)


@app.command()
def explain(
    pod: Annotated[str, typer.Argument(help="The pod.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = DEFAULT_NAMESPACE,
    placer: Annotated[str, PLACER] = "",
    nodes: Annotated[
        int, typer.Option(min=1, max=500, help="The most nodes that are listed one by one.")
    ] = 10,
    reason: Annotated[
        str | None, typer.Option(help="List only nodes whose first reason is this text.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the placer's answer as it is.")] = False,
) -> None:
    """Say why a pod waits, or where it runs and whether its limit, its neighbours or its host slow it.

    The exit code is 0 if the placer explained the pod, whatever its state, 2 if
    it knows no such pod, and 1 if no placer answers or it cannot answer now.
    """
    from plimsoll.cli import explain as explaining  # noqa: PLC0415 - keeps --help fast
    from plimsoll.placer_api.client import NoSuchPodError  # noqa: PLC0415 - likewise

    try:
        answer = asyncio.run(explaining.explanation(placer, namespace, pod, nodes, reason))
    except PlimsollError as error:
        _fail(str(error), REFUSED if isinstance(error, NoSuchPodError) else 1)
    if json:
        sys.stdout.write(answer.decode() + "\n")
        return
    for part in explaining.shown(answer):
        Console().print(part, highlight=False, soft_wrap=isinstance(part, Text))


@app.command()
def doctor(  # noqa: PLR0913, PLR0917 - each option of a command is a parameter
    nats_url: Annotated[
        str, typer.Option(envvar="PLIMSOLL_NATS_URL", help="The bus, with a user who may read the stream.")
    ] = "",
    redis_url: Annotated[str, typer.Option(envvar="PLIMSOLL_REDIS_URL", help="The sorted list.")] = "",
    placer: Annotated[str, PLACER] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace of the release.")
    ] = RELEASE_NAMESPACE,
    kubeconfig: Annotated[
        str,
        typer.Option(help="As for kubectl. Without it: KUBECONFIG, a service account, or ~/.kube/config."),
    ] = "",
    context: Annotated[str | None, typer.Option(help="As for kubectl.")] = None,
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Or all findings as one JSON object.")
    ] = "table",
    broker_root: Annotated[Path | None, BROKER_ROOT] = None,
) -> None:
    """Look for what is broken: on this machine, on the bus, and in the cluster, with a remedy for each finding.

    Nothing is changed. A part whose address is not given is skipped. The exit
    code is 0 if no check failed, also with warnings, and 1 if one did.
    """
    import logging  # noqa: PLC0415 - keeps --help fast

    import msgspec  # noqa: PLC0415 - likewise
    import structlog  # noqa: PLC0415 - likewise

    from plimsoll.bus_access import BusAccess  # noqa: PLC0415 - likewise
    from plimsoll.cli.doctor.examine import Places, examine  # noqa: PLC0415 - likewise
    from plimsoll.cli.doctor.finding import Verdict  # noqa: PLC0415 - likewise
    from plimsoll.cli.doctor.machine import Machine  # noqa: PLC0415 - likewise
    from plimsoll.cli.doctor.report import shown  # noqa: PLC0415 - likewise
    from plimsoll.cli.resize_pod import Cluster  # noqa: PLC0415 - likewise
    from plimsoll.native import HOOK_LIBRARY  # noqa: PLC0415 - likewise

    # The findings say what the log of the clients would say, with a remedy.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    library = Path(os.environ.get("PLIMSOLL_HOOK_LIBRARY") or HOOK_LIBRARY)
    places = Places(
        machine=Machine(broker_root or default_root(), library),
        nats_url=nats_url,
        access=BusAccess.of(os.environ),
        redis_url=redis_url,
        placer=placer,
        cluster=Cluster(kubeconfig, context),
        namespace=namespace,
    )
    try:
        groups = asyncio.run(examine(places))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if output == "json":
        _write(msgspec.json.encode({"groups": groups}).decode() + "\n")
    else:
        console = Console()
        for line in shown(groups, console.width):
            console.print(line, highlight=False, soft_wrap=True)
    if any(one.verdict is Verdict.FAILED for group in groups for one in group.findings):
        raise typer.Exit(1)


@app.command()
def resize(  # noqa: PLR0913, PLR0917 - each option of a command is a parameter
    pod: Annotated[str, typer.Argument(help="The pod, or, with -n plimsoll-run, a command's name or uid.")],
    gpu_memory: Annotated[
        str | None, typer.Option(help="The new line in total over the container's GPUs: 6Gi.")
    ] = None,
    gpu_share: Annotated[
        str | None,
        typer.Option(help="Compute time guaranteed, in percent of one GPU, in total over its GPUs: 40."),
    ] = None,
    gpu_share_limit: Annotated[
        str | None, typer.Option(help="Compute time at most, in percent of each GPU: 80.")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help=f"{RUN_NAMESPACE} for commands of `plimsoll run`.")
    ] = DEFAULT_NAMESPACE,
    container: Annotated[str | None, typer.Option(help="Needed where several have a GPU.")] = None,
    kubeconfig: Annotated[
        str,
        typer.Option(help="As for kubectl. Without it: KUBECONFIG, a service account, or ~/.kube/config."),
    ] = "",
    context: Annotated[str | None, typer.Option(help="As for kubectl.")] = None,
    nats_url: Annotated[
        str,
        typer.Option(
            envvar="PLIMSOLL_NATS_URL", help="The bus of a placer's local nodes, without Kubernetes."
        ),
    ] = "",
    timeout_s: Annotated[
        float, typer.Option(min=0.1, max=3600, help="For placer and broker together.")
    ] = 30.0,
    broker_root: Annotated[Path | None, BROKER_ROOT] = None,
) -> None:
    """Change a running container's memory line, share or share limit, or several of them together.

    The exit code is 0 only once all requested changes hold, and 2 if they were
    refused; nothing is changed then. Promised shares of a GPU never pass 100.
    No process is killed: if a container holds more than its new line, further
    growth is refused until it holds less.

    In Kubernetes, you need `get` and `patch` on pods and the verb `resize` on
    pods, in the pod's namespace; the API server asks for them in your name.
    """
    asked = {"--gpu-memory": gpu_memory, "--gpu-share": gpu_share, "--gpu-share-limit": gpu_share_limit}
    given = {option: value for option, value in asked.items() if value is not None}
    if not given:
        _fail(f"nothing is to be changed; give at least one of {', '.join(asked)}", REFUSED)
    if namespace == RUN_NAMESPACE:
        named = {"--broker-root": str(broker_root or ""), "--container": container or ""}
        given |= {option: value for option, value in named.items() if value}
        words = [pod, *(f"{option}={value}" for option, value in given.items())]
        os.execv(sys.executable, [*program_of("solo.resize"), *words])  # noqa: S606 - as above
    import logging  # noqa: PLC0415 - keeps --help fast

    import structlog  # noqa: PLC0415 - likewise

    from plimsoll.cli import resize as resizing  # noqa: PLC0415 - likewise
    from plimsoll.cli.resize_pod import Cluster, resize_pod  # noqa: PLC0415 - likewise

    name = ContainerName(container) if container else None
    request = Resize(
        pod=pod,
        namespace=namespace,
        gpu_memory=gpu_memory,
        gpu_share=gpu_share,
        gpu_share_limit=gpu_share_limit,
        container=name,
    )
    # The command has one line for each outcome; the log of its parts would stand between.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        if nats_url:
            confirmed = asyncio.run(resizing.resize(request, nats_url, timeout_s))
        else:
            confirmed = asyncio.run(resize_pod(request, Cluster(kubeconfig, context), timeout_s))
    except PlimsollError as error:
        _fail(str(error), REFUSED if isinstance(error, resizing.NotResizedError | InputError) else 1)
    for line in confirmed.lines():
        Console().print(f"{namespace}/{pod}: {line}", soft_wrap=True, markup=False, highlight=False)


@app.command()
def events(
    type: Annotated[str, typer.Option(help="A type, task.loaded, or a group of types, task.")] = "",  # noqa: A002 - the option's name
    node: Annotated[str, typer.Option(help="Only events of this node, and placements on it.")] = "",
    pod: Annotated[
        str, typer.Option(help="Only events of the pod with this uid; or its name, for placement events.")
    ] = "",
    output: Annotated[
        Literal["table", "json"],
        typer.Option("--output", "-o", help="Or the events as published, one a line."),
    ] = "table",
    nats_url: Annotated[
        str, typer.Option(envvar="PLIMSOLL_NATS_URL", help="The bus.")
    ] = "nats://127.0.0.1:4222",
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new events, in place of those so far.")
    ] = False,
) -> None:
    """Print the events of the bus: those that it keeps, or, with --follow, those from now on.

    The exit code is 1 if NATS does not answer, and 2 for a type that is none.
    While following, the command outlives restarts of NATS.
    """
    from plimsoll.bus_access import BusAccess  # noqa: PLC0415 - keeps --help fast
    from plimsoll.cli import events as printing  # noqa: PLC0415 - likewise

    async def print_all() -> None:
        wanted, access = printing.Wanted(type, node, pod), BusAccess.of(os.environ)
        async for message in printing.events(nats_url, wanted, access, follow=follow):
            sys.stdout.write((message.decode() if output == "json" else printing.line(message)) + "\n")
            sys.stdout.flush()

    try:
        asyncio.run(print_all())
    except PlimsollError as error:
        _fail(str(error), REFUSED if isinstance(error, InputError) else 1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:  # `plimsoll events | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def alerts() -> None:
    """Keep what goes wrong with GPUs firing in Alertmanager until it ends; `alerts --help` names its variables."""
    # As for `run`: this process becomes the service, so signals and exit code are its own.
    words = sys.argv[sys.argv.index("alerts") + 1 :]
    os.execv(sys.executable, [*program_of("plimsoll.alerts"), *words])  # noqa: S606 - no shell wanted


@app.command()
def convert(
    file: Annotated[str, typer.Argument(help="The manifest; - reads standard input.")],
    gpushare_unit: Annotated[
        Literal["GiB", "MiB"], typer.Option(help="The unit of aliyun.com/gpu-mem in the old cluster.")
    ] = "GiB",
) -> None:
    """Turn a manifest for HAMi, gpushare or KAI into Plimsoll's terms: YAML on standard output.

    Each change is reported on standard error. The exit code is 2, and nothing
    is printed, if a pod has no equal counterpart. Comments are lost.
    """
    from plimsoll.cli.convert import converted  # noqa: PLC0415 - keeps --help fast

    try:
        text, changes = converted(file, gpushare_unit)
    except PlimsollError as error:
        _fail(str(error), REFUSED)
    for change in changes or ["nothing is to be converted"]:
        Console(stderr=True).print(change, soft_wrap=True, markup=False, highlight=False)
    _write(text)


def _write(text: str) -> None:
    """Write a whole document to standard output, or end with 1 and say why not."""
    if sys.stdout is None:  # as after `>&-`
        _fail("standard output is closed; open it, for instance by `> FILE`")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer would fail once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"standard output cannot be written ({error.strerror}); give it a place that has room")


def _fail(message: str, code: int = 1) -> NoReturn:
    Console(stderr=True).print(f"plimsoll: {message}", style="red", soft_wrap=True, markup=False)
    sys.exit(code)
