"""The commands of `plimsoll`, a module each: texts, options, and the way from options to the work.

What always holds: a module imports nothing slow, so its help is shown at once. Its work is in a module of
`plimsoll_cli` with the command's name, or in the program of another part.
"""

import importlib
from typing import Final

from plimsoll_cli.command import Command

SUMMARIES: Final = {
    "top": "Watch GPUs, pods and waiting pods, live, until you quit.",
    "nodes": "List the nodes: what each has, holds and still has to promise.",
    "gpus": "List the GPUs: memory and compute time, in use and not yet promised.",
    "pods": "List the pods that share GPUs: what each was promised, holds, or waits for.",
    "explain": "Say why a pod waits, or where it runs and what may slow it.",
    "relocation": "Say which pods would move so that a waiting pod fits.",
    "events": "Print the events of the bus, those so far or those from now on.",
    "doctor": "Look for what is broken, with a remedy for each finding.",
    "cordon": "Keep new pods away from one GPU.",
    "uncordon": "Let a cordoned GPU take pods again.",
    "drain": "Cordon one GPU, and evict the pods on it.",
    "resize": "Change a running container's memory line, share or share limit.",
    "run": "Run one command on a GPU of this machine, held to its line and its share.",
    "status": "Show the containers on this machine's GPUs, and why each waits.",
    "convert": "Turn a manifest for HAMi, gpushare or KAI into Plimsoll's terms.",
    "alerts": "Keep what goes wrong with GPUs firing in Alertmanager until it ends.",
    "simulate": "Replay a trace of a cluster, or an experiment of a paper, without a GPU.",
    "demo": "Run a dozen pods on three emulated nodes, live, in under a minute.",
    "completion": "Print the script by which a shell completes these commands.",
}
"""The sentence about each command in `plimsoll --help`."""


def command_of(name: str) -> Command:
    """A command of `SUMMARIES`."""
    module = importlib.import_module(f"{__name__}.{name}")
    command: Command = module.COMMAND
    return command
