"""The questions that NVIDIA's runtime asks the driver, and the program that asks them.

Run as a program, this module prints the table of questions that follows from the pinned headers.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.hook.lib.program import ROOT, compiled
from tests.servers.waiting import PATIENCE_S

HEADERS = [
    next(ROOT.glob(f".venv/lib/python3.*/site-packages/nvidia/{package}/include"))
    for package in ("cuda_runtime", "cu13")
]
ALLOCATING = {
    "cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
    "cuMemCreate", "cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate",
}  # fmt: skip
"""The functions that allocate with addresses of 64 bits; the older forms cannot succeed on any machine of today."""


class Answer(NamedTuple):
    """One answer of the look-up."""

    name: str
    version: str
    flags: str
    result: str
    status: str
    file: str
    symbol: str


def names_in(headers: list[Path]) -> set[tuple[str, int]]:
    """Every name of a driver function, with every version whose type NVIDIA gives."""
    found = [
        re.findall(
            r"\*PFN_(cu[A-Z]\w*?)_v(\d+)(?:_pt[ds]s|_ptsz)?\)", (folder / "cudaTypedefs.h").read_text("utf-8")
        )
        for folder in headers
    ]
    return {(name, int(version)) for each in found for name, version in each}


def hooked_symbols() -> set[str]:
    """The functions for which the library has a wrapper."""
    return set(re.findall(r"\bX\((cu\w+),", (ROOT / "hook/lib/hooks.h").read_text("utf-8")))


def run(environment: dict[str, str], *arguments: str) -> list[str]:
    """The lines that the program printed."""
    done = subprocess.run(
        [compiled("lookups"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def answers(environment: dict[str, str], symbol: str) -> list[Answer]:
    """The answers of this look-up to every question."""
    return [Answer(*line.split()) for line in run(environment, "all", symbol)]


if __name__ == "__main__":
    sys.stdout.writelines(f"QUESTION({name}, {version})\n" for name, version in sorted(names_in(HEADERS)))
