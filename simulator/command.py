"""Replays a trace of a cluster (TRACE), or the EXPERIMENT of a paper, and prints tables; experiments of papers also
print one line of JSON, last."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_whole
from simulator.convgpu import experiment, paper, report
from simulator.convgpu.workload import DURATIONS, USABLE_BYTES
from simulator.gaia import command as gaia_command
from simulator.kang import command as kang_command
from simulator.kubeshare import report as kubeshare_report
from simulator.trace import command as trace_command

BAD_INPUT: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130
PIPE_BROKEN: Final = 141
AS: Final = "--as"
"""The first word, where `--help` must show another program's name, as for `plimsoll simulate`."""
TABLE_WIDTH: Final = 110


def main(words: Sequence[str] | None = None) -> int:
    """Replay the experiment of the command line; 0, or 2 for options that cannot work."""
    given_words = list(sys.argv[1:] if words is None else words)
    program = "python -m simulator"
    if given_words[:1] == [AS]:
        program, given_words = given_words[1], given_words[2:]
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    experiments = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    convgpu = experiments.add_parser(
        "convgpu", help="ConVGPU, Tables IV and V: 4 to 38 containers on one 5 GB GPU"
    )
    convgpu.add_argument(
        "--containers", default="", help="the numbers of containers, such as 4,16,38 (default: the paper's)"
    )
    convgpu.add_argument(
        "--draws", type=int, default=100, help="draws per number of containers (%(default)s)"
    )
    convgpu.add_argument("--seed", type=int, default=0, help="the first draw (%(default)s)")
    convgpu.add_argument(
        "--rule", choices=list(experiment.RULES), default="plimsoll", help="the rule by which memory is given"
    )
    convgpu.add_argument(
        "--durations", choices=list(DURATIONS), default="by-type", help="the running times of the types"
    )
    convgpu.add_argument("--memory", default=str(USABLE_BYTES), help="the card's memory, such as 4800Mi")
    convgpu.add_argument("--charts", type=Path, help="a folder for two SVG pictures")
    convgpu.set_defaults(run=_convgpu)
    gaia = experiments.add_parser("gaia", help="Gaia, Tables I to IV, Figures 10 to 12: the GPUs of one node")
    gaia_command.describe(gaia)
    gaia.set_defaults(run=gaia_command.run)
    kang = experiments.add_parser(
        "kang", help="Kang et al., Tables IV and V with 3, 30 and 300 nodes, and a burst"
    )
    kang_command.describe(kang)
    kang.set_defaults(run=kang_command.execute)
    kubeshare = experiments.add_parser(
        "kubeshare",
        help="KubeShare, Figures 3, 5, 8, 9 and 11 to 13: sharing, locality and interference on 32 GPUs",
    )
    kubeshare.add_argument("--figures", default="", help="such as 3,8a,13 (default: all)")
    kubeshare.add_argument("--jobs", type=int, default=320, help="jobs of a run (%(default)s)")
    kubeshare.add_argument(
        "--runs", type=int, default=5, help="runs to average, as in the paper (%(default)s)"
    )
    kubeshare.add_argument("--seed", type=int, default=42, help="the seed of the first run (%(default)s)")
    kubeshare.add_argument("--charts", type=Path, help="a folder for an SVG picture of each figure")
    kubeshare.set_defaults(run=_kubeshare)
    trace = experiments.add_parser("trace", help="a trace of a cluster, pod by pod: `plimsoll simulate`")
    trace_command.add_options(trace)
    trace.set_defaults(run=trace_command.simulate)
    given = parser.parse_args(_completed(given_words))
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


def _kubeshare(given: argparse.Namespace) -> int:
    names = given.figures.split(",") if given.figures else list(kubeshare_report.FIGURES)
    for name in names:
        if name not in kubeshare_report.FIGURES:
            known = ", ".join(kubeshare_report.FIGURES)
            raise InputError("--figures", name, "is no figure that the simulator has", f"choose of {known}")
    for field, value in (("--jobs", given.jobs), ("--runs", given.runs)):
        if value < 1:
            raise InputError(field, value, "is below 1", "give 1 or more")
    _prepare(given.charts)
    seeds = tuple(range(given.seed, given.seed + given.runs))
    figures = [kubeshare_report.FIGURES[name](given.jobs, seeds) for name in names]
    console = Console(width=TABLE_WIDTH)
    for figure in figures:
        console.print(figure.table(), *(f"- {claim.verdict}" for claim in figure.claims), sep="\n")
    for path in kubeshare_report.write_charts(given.charts, figures) if given.charts is not None else ():
        console.print(f"wrote {path}")
    sys.stdout.write(json.dumps({figure.name: figure.as_json() for figure in figures}) + "\n")
    return 0


def _convgpu(given: argparse.Namespace) -> int:
    _prepare(given.charts)
    plan = experiment.Plan(
        counts=_counts(given.containers),
        seeds=tuple(range(given.seed, given.seed + _draws(given.draws))),
        durations=given.durations,
        usable_bytes=_memory(given.memory),
    )
    cells = experiment.run(experiment.RULES[given.rule], plan)
    console = Console(width=TABLE_WIDTH)
    for what in report.FIGURES:
        console.print(report.table(what, given.rule, cells))
    if given.charts is not None:
        for path in report.write_charts(given.charts, cells):
            console.print(f"wrote {path}")
    result = {f"{what}_s": report.as_json(what, cells) for what in report.FIGURES}
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def _prepare(charts: Path | None) -> None:
    """Make the folder before the replays, which take long.

    Raises:
        OSError: the folder cannot be made.
    """
    if charts is not None:
        charts.mkdir(parents=True, exist_ok=True)


def _counts(text: str) -> tuple[int, ...]:
    if not text:
        return paper.COUNTS
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise InputError(
            "--containers", text, "is not a list of numbers above 0", "write for example 4,16,38"
        )
    return counts


def _draws(count: int) -> int:
    if count < 1:
        raise InputError("--draws", count, "is below 1", "ask for one draw or more")
    return count


def _memory(text: str) -> int:
    usable_bytes = parse_whole(text, "--memory", "bytes")
    if usable_bytes < (largest := experiment.LARGEST_BYTES):
        raise InputError("--memory", text, "cannot hold the largest type", f"give {largest} bytes or more")
    return usable_bytes
