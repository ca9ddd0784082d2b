"""`plimsoll run`."""

import argparse
from pathlib import Path

from plimsoll_cli.command import Command
from plimsoll_cli.options import add_broker_root


def _declare(parser: argparse.ArgumentParser) -> None:
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


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli.run import run  # noqa: PLC0415 - keeps --help fast

    return run(given)


COMMAND = Command(
    description="""Run one command on a GPU of this machine, held to its line and its share: `plimsoll run
--gpu-memory 2Gi -- CMD`. Needs no Kubernetes, no bus and no placer; where no broker answers, one is started for as
long as commands use it.""",
    declare=_declare,
    run=_run,
    exits={
        "n": "the command's own; 128 + n after signal n",
        "2": "bad input, or a demand that no GPU here can ever meet",
        "75": "no GPU has room now; the same command may work later",
        "1": "any other error",
    },
    remedy="put -- before a command that has options",
)
