"""Replays a trace of a cluster (TRACE), or the EXPERIMENT of a paper, and prints tables; experiments of papers also
print one line of JSON, last."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from plimsoll.part.errors import InputError
from simulator.convgpu import command as convgpu
from simulator.gaia import command as gaia
from simulator.kang import command as kang
from simulator.kubeshare import command as kubeshare
from simulator.trace import command as trace

BAD_INPUT: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130
PIPE_BROKEN: Final = 141
AS: Final = "--as"
"""The first word, where `--help` must show another program's name, as for `plimsoll simulate`."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment of the command line.

    Attributes:
        help: the line about it in `--help`.
        add_options: adds its options to its parser.
        run: runs it with these options; returns the exit code.
    """

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        "convgpu": Experiment(
            "ConVGPU, Tables IV and V: 4 to 38 containers on one 5 GB GPU", convgpu.add_options, convgpu.run
        ),
        "gaia": Experiment(
            "Gaia, Tables I to IV, Figures 10 to 12: the GPUs of one node", gaia.add_options, gaia.run
        ),
        "kang": Experiment(
            "Kang et al., Tables IV and V with 3, 30 and 300 nodes, and a burst", kang.add_options, kang.run
        ),
        "kubeshare": Experiment(
            "KubeShare, Figures 3, 5, 8, 9 and 11 to 13: sharing, locality and interference on 32 GPUs",
            kubeshare.add_options,
            kubeshare.run,
        ),
        "trace": Experiment(
            "a trace of a cluster, pod by pod: `plimsoll simulate`", trace.add_options, trace.run
        ),
    }
)


def main(words: Sequence[str] | None = None) -> int:
    """Replay the experiment of the command line; 0, or 2 for options that cannot work."""
    given_words = list(sys.argv[1:] if words is None else words)
    program = "python -m simulator"
    if given_words[:1] == [AS]:
        program, given_words = given_words[1], given_words[2:]
    given = _parser(program).parse_args(_completed(given_words))
    try:
        code: int = given.run(given)
        sys.stdout.flush()
    except InputError as error:
        sys.stderr.write(f"simulator: {error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _unwritten(error)
    return code


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    experiments = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    for name, experiment in EXPERIMENTS.items():
        options = experiments.add_parser(name, help=experiment.help)
        experiment.add_options(options)
        options.set_defaults(run=experiment.run)
    return parser


def _unwritten(error: OSError) -> int:
    """Report an output that cannot be written. A reader that has gone, as after `| head`, is no error."""
    if error.filename is not None:
        sys.stderr.write(
            f"simulator: {error.filename}: cannot be written ({error.strerror}); name another place\n"
        )
        return BAD_INPUT
    # The rest of the buffer would fail once more at the end of the process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return PIPE_BROKEN
    sys.stderr.write(
        f"simulator: standard output cannot be written ({error.strerror}); give it a place with room\n"
    )
    return FAILED


def _completed(words: list[str]) -> list[str]:
    """The command line with the name of the experiment, which a list of pods does not need.

    No experiment has a dot, a slash or a hyphen in its name, and options may stand before the list.
    """
    is_trace = bool(words) and words[0] not in ("-h", "--help") and any(mark in words[0] for mark in "./-")
    return ["trace", *words] if is_trace else words
