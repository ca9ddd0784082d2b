"""Checks that hooks.h or passes.txt names every function of NVIDIA's headers, and writes the names for C.

A driver function that nobody classified is a way around the memory line. So the build fails when a header declares
a function that neither table names. It also fails when a table names a function that no header declares, because a
misspelt name hides the real one. The variants behind the headers' macros (`_v2`, `_ptds`, `_ptsz`) count as
functions of their own, because programs get those.

    python -m hook.lib.classify OUTPUT.h INCLUDE_FOLDER…

`OUTPUT.h` gets every classified name, sorted, for `driver/routing.c`.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
HEADERS: Final = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
PROFILER_TYPES: Final = "cudaProfilerTypedefs.h"
"""NVIDIA packages cudaProfiler.h apart. The types of its functions are beside cuda.h."""

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DECLARED: Final = re.compile(r"\b(?:CUDAAPI\s+|CUresult\s+)(cu[A-Z]\w*)\s*\(")
_RENAMED: Final = re.compile(
    r"#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_(PTDS|PTSZ)\(\s*)?(cu[A-Z]\w*|__CUDA_API_CONCAT)"
)
_TYPE: Final = re.compile(r"\bPFN_(cu[A-Z]\w*?)_v\d+")
_HOOKED: Final = re.compile(r"\bX\((cu[A-Z]\w*)[,)]")
_PASSING: Final = re.compile(r"^ +(cu[A-Z].*)$", re.MULTILINE)
_LONGEST: Final = 63


def declared_in(include: Path) -> set[str]:
    """Every function of the driver that one folder of NVIDIA's headers declares or names in a macro.

    Raises:
        OSError: a header is missing.
    """
    found: set[str] = set()
    for header in HEADERS:
        text = _COMMENT.sub(" ", (include / header).read_text(encoding="utf-8"))
        found.update(_DECLARED.findall(text))
        for name, stream, target in _RENAMED.findall(text):
            found.update({name, target, f"{target}_{stream.lower()}" if stream else target})
    found.update(_TYPE.findall((include / PROFILER_TYPES).read_text(encoding="utf-8")))
    return found


def classified_in(hooks: str, passes: str) -> Counter[str]:
    """How often each function stands in the two tables, given their text."""
    hooked = _HOOKED.findall(_COMMENT.sub(" ", hooks))
    return Counter(hooked) + Counter(" ".join(_PASSING.findall(passes)).split())


def faults(declared: set[str], classified: Counter[str]) -> list[str]:
    """One sentence for each fault, with its remedy; empty where there is no fault."""
    return [
        *(
            f"{name} is declared by NVIDIA and classified nowhere: does it take, free or report GPU memory,"
            " make a context, or put work on a GPU? Then give it a wrapper and a line in hooks.h; if not, a place in"
            " passes.txt under the reason that fits"
            for name in sorted(declared - classified.keys())
        ),
        *(
            f"{name} is in hooks.h or passes.txt and no header declares it: correct the name, or take it out"
            for name in sorted(classified.keys() - declared)
        ),
        *(
            f"{name} is classified {count} times: leave the one that is true"
            for name, count in sorted(classified.items())
            if count > 1
        ),
        *(
            f"{name} is longer than {_LONGEST} letters: raise _LONGEST here"
            for name in sorted(classified)
            if len(name) > _LONGEST
        ),
    ]


def main(output: Path, includes: list[Path]) -> int:
    """Check the tables beside this file against all folders together; write `output` if they agree."""
    declared = set().union(*(declared_in(include) for include in includes))
    classified = classified_in(
        (HERE / "hooks.h").read_text(encoding="utf-8"), (HERE / "passes.txt").read_text(encoding="utf-8")
    )
    found = faults(declared, classified)
    if found:
        sys.stderr.write("".join(f"hook/lib/classify.py: {fault}\n" for fault in found))
        return 1
    names = "".join(f'    "{name}",\n' for name in sorted(classified))
    text = f"/* Made by classify.py: every function that hooks.h or passes.txt names, sorted. */\n{names}"
    output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]]))
