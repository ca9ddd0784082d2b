"""The rows of the emulator's tables of functions."""

import re
from typing import NamedTuple

from tests.emulator.cuda_program import ROOT

_ROW = re.compile(r"^(?:FUNCTION|BOTH)\((\w+), (\d+), (\w+)(?:, (\d+), (\w+))?\)", re.MULTILINE)


class Function(NamedTuple):
    """A symbol that a name means from a CUDA version on; the suffix of its per-thread form, or nothing."""

    name: str
    version: int
    symbol: str
    suffix: str


def functions_of(table: str) -> list[Function]:
    """The rows of `emulator/cuda/{table}.def`, those of per-thread forms included."""
    functions = []
    text = (ROOT / "emulator" / "cuda" / f"{table}.def").read_text("utf-8")
    for name, version, symbol, per_thread_version, suffix in _ROW.findall(text):
        functions.append(Function(name, int(version), symbol, ""))
        if suffix:
            functions.append(Function(name, int(per_thread_version), symbol + suffix, suffix))
    return functions
