"""The commands that need no cluster: this machine, its GPUs, and files."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Final

from plimsoll.part.errors import InputError, PlimsollError
from plimsoll_cli import output
from plimsoll_cli.command import REFUSED, Command
from plimsoll_cli.options import add_broker_root, add_output, add_watch


def _declare_run(parser: argparse.ArgumentParser) -> None:
    _declare_demand(parser)
    parser.add_argument("--policy", metavar="NAME", help="the policy that chooses among GPUs that fit")
    parser.add_argument(
        "--name", metavar="NAME", help="the name for `plimsoll resize` (by default the program's)"
    )
    add_broker_root(parser)
    parser.add_argument(
        "--hook-library", metavar="FILE", type=Path, help="libplimsoll.so (by default this installation's)"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="program and arguments, after --")


def _declare_demand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu-memory",
        metavar="SIZE",
        help="GPU memory in total, for instance 2Gi. By precedence: this option; the environment's "
        "PLIMSOLL_GPU_MEMORY; 1Gi per GPU. (The label of a container image cannot be read here: there is no "
        "container runtime to ask)",
    )
    parser.add_argument(
        "--gpu-share",
        metavar="PERCENT",
        help="percent of one GPU's compute time guaranteed, in total, for instance 30; commands' shares of a GPU "
        "never pass 100 together",
    )
    parser.add_argument(
        "--gpu",
        metavar="COUNT",
        help="the number of GPUs (1); whole GPUs if neither memory nor a share is given",
    )
    parser.add_argument(
        "--gpu-share-limit",
        metavar="PERCENT",
        help="the most compute time on each GPU, in percent (100), even if others leave more",
    )
    parser.add_argument(
        "--gpu-id",
        metavar="UUID",
        help="the UUID of the GPU to use; or a name of your own: commands with one name share one GPU",
    )
    parser.add_argument("--gpu-model", metavar="NAMES", help="acceptable GPU models, separated by commas")
    parser.add_argument(
        "--best-effort", action="store_true", help="declare no memory: use the memory that is left"
    )


def _run_run(given: argparse.Namespace) -> int:
    from plimsoll_cli.run import run  # noqa: PLC0415 - keeps --help fast

    return run(given)


RUN = Command(
    summary="Run one command on a GPU of this machine, held to its line and its share.",
    description="""Run one command on a GPU of this machine, held to its line and its share: `plimsoll run
--gpu-memory 2Gi -- CMD`. Needs no Kubernetes, no bus and no placer; where no broker answers, one is started for as
long as commands use it.""",
    declare=_declare_run,
    run=_run_run,
    exits={
        "n": "the command's own; 128 + n after signal n",
        "2": "bad input, or a demand that no GPU here can ever meet",
        "75": "no GPU has room now; the same command may work later",
        "1": "any other error",
    },
    remedy="put -- before a command that has options",
)


def _declare_status(parser: argparse.ArgumentParser) -> None:
    add_output(
        parser, ("table", "wide", "json", "yaml"), "wide cuts no line; json and yaml are the broker's answer"
    )
    add_watch(parser)
    add_broker_root(parser)


def _run_status(given: argparse.Namespace) -> int:
    from plimsoll.broker.root import default_root  # noqa: PLC0415 - keeps --help fast
    from plimsoll_cli import status  # noqa: PLC0415 - likewise
    from plimsoll_cli.watching import shown  # noqa: PLC0415 - likewise

    root = given.broker_root or default_root()
    return shown(lambda width: status.status(root, given.output, width), given)


STATUS = Command(
    summary="Show the containers on this machine's GPUs, and why each waits.",
    description="""Show the containers on this machine's GPUs: memory and compute time of each, and why it waits.

Reads this machine's broker: that of `plimsoll run`, or, as root on a node of a cluster, the node's. Takes a second,
the span of the figures for use and waiting.""",
    declare=_declare_status,
    run=_run_status,
    exits={"0": "the broker answered", "1": "there is no broker, or it does not answer"},
)


def _declare_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the manifest; - reads standard input")
    parser.add_argument(
        "--gpushare-unit",
        choices=("GiB", "MiB"),
        default="GiB",
        help="the unit of aliyun.com/gpu-mem in the old cluster (GiB)",
    )


def _run_convert(given: argparse.Namespace) -> int:
    from plimsoll.dialects.gpushare import Gpushare  # noqa: PLC0415 - keeps --help fast
    from plimsoll.dialects.hami import Hami  # noqa: PLC0415 - likewise
    from plimsoll.dialects.kai import Kai  # noqa: PLC0415 - likewise
    from plimsoll.dialects.manifest import convert  # noqa: PLC0415 - likewise

    try:
        dialects = (Hami(), Gpushare(given.gpushare_unit), Kai())
        text, changes = convert(_read_manifest(given.file), dialects)
    except PlimsollError as error:
        return output.fail(str(error), REFUSED)
    for change in changes or ["nothing is to be converted"]:
        output.note(change)
    output.write(text)
    return 0


def _read_manifest(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except UnicodeDecodeError as error:
        raise InputError("FILE", path, f"is no UTF-8 ({error})", "save it as UTF-8") from error
    except OSError as error:
        raise InputError("FILE", path, f"cannot be read ({error})", "name a manifest") from error


CONVERT = Command(
    summary="Turn a manifest for HAMi, gpushare or KAI into Plimsoll's terms.",
    description="""Turn a manifest for HAMi, gpushare or KAI into Plimsoll's terms: YAML on standard output.

Each change is reported on standard error. Comments are lost.""",
    declare=_declare_convert,
    run=_run_convert,
    exits={"0": "converted", "2": "nothing is printed, as a pod has no equal counterpart"},
)


def _run_alerts(given: argparse.Namespace) -> int:
    from plimsoll.part.program import program_of  # noqa: PLC0415 - keeps the list of commands fast

    os.execv(sys.executable, [*program_of("plimsoll_alerts"), *given.words])  # noqa: S606 - no shell wanted


ALERTS = Command(
    summary="Keep what goes wrong with GPUs firing in Alertmanager until it ends.",
    description="",
    declare=lambda _: None,
    run=_run_alerts,
    passes=True,
)


def _run_simulate(given: argparse.Namespace) -> int:
    from plimsoll.part.program import program_of  # noqa: PLC0415 - keeps the list of commands fast

    # Until the simulator can end silently, Ctrl-C waits: an interpreter that starts would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, [*program_of("simulator"), "--as", "plimsoll simulate", *given.words])  # noqa: S606 - no shell wanted


SIMULATE = Command(
    summary="Replay a trace of a cluster, or an experiment of a paper, without a GPU.",
    description="",
    declare=lambda _: None,
    run=_run_simulate,
    passes=True,
)


ENDING = (signal.SIGTERM, signal.SIGHUP)
TERMINATED = 128 + signal.SIGTERM


def _declare_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", action="store_true", help="let everything run on until Ctrl-C, with the live page"
    )


def _run_demo(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from rich.console import Console  # noqa: PLC0415 - likewise

    from plimsoll_cli.demo.demo import run_demo  # noqa: PLC0415 - likewise

    async def until_ended() -> int:
        demo = asyncio.create_task(run_demo(Console(), keep=given.keep))
        # Its servers and its folder must not stay behind. Ctrl-C cancels it anyway.
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as by `nohup`
                asyncio.get_running_loop().add_signal_handler(number, demo.cancel)
        return await demo

    try:
        return asyncio.run(until_ended())
    except asyncio.CancelledError:
        return TERMINATED


DEMO = Command(
    summary="Run a dozen pods on three emulated nodes, live, in under a minute.",
    description="Run a dozen pods on three emulated nodes, live, in under a minute. Needs no GPU and no cluster.",
    declare=_declare_demo,
    run=_run_demo,
    exits={"0": "every promise held", "1": "an invariant broke, or a server did not start"},
)


_SCRIPTS: Final = {
    "bash": """\
_plimsoll() {
  local IFS=$'\\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _plimsoll plimsoll
""",
    "zsh": """\
_plimsoll() {
  local -a found
  found=(${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _plimsoll plimsoll
""",
    "fish": """\
complete -c plimsoll -a '(plimsoll __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
"""The script of each shell. Without a candidate, the shell completes names of files."""


def _declare_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")


def _run_completion(given: argparse.Namespace) -> int:
    output.write(_SCRIPTS[given.shell])
    return 0


COMPLETION = Command(
    summary="Print the script by which a shell completes these commands.",
    description="""Print the script by which a shell completes commands, options and their values.

bash: `source <(plimsoll completion bash)`, in ~/.bashrc to keep it. zsh: `source <(plimsoll completion zsh)`, after
compinit. fish: `plimsoll completion fish | source`.""",
    declare=_declare_completion,
    run=_run_completion,
    exits={"0": "printed"},
)


COMMANDS: Final = {
    "run": RUN,
    "status": STATUS,
    "convert": CONVERT,
    "alerts": ALERTS,
    "simulate": SIMULATE,
    "demo": DEMO,
    "completion": COMPLETION,
}
