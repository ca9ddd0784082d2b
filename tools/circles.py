"""Fails where the C files of a folder form a circle.

A unit is a .c file and the .h file of the same path and stem. A unit depends on every unit whose header one
of its files includes, and on every unit that defines a function which one of its files calls. Units that depend
on each other in a circle can be understood, tested and changed only together, so no circle is allowed.

    python -m tools.circles FOLDER…

Definitions and calls are found by regular expressions. A static function of a .c file counts for that file
alone. A function that a macro defines is not seen, nor is a call through a pointer.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

_OPAQUE: Final = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_INCLUDE: Final = re.compile(r"^\s*#\s*include\s+\"([^\"]+)\"", re.MULTILINE)
_DEFINITION: Final = re.compile(
    r"^(?P<kind>[A-Za-z_](?:(?!else\b|return\b)[\w\s*()])*?[\s*])(?P<name>[A-Za-z_]\w*)\([^;{}]*\)\s*\{",
    re.MULTILINE,
)
_DECLARATION: Final = re.compile(r"^(?:[A-Za-z_]\w*[\s*]+)+[A-Za-z_]\w*\([^;{}]*\)[^;{}()]*;", re.MULTILINE)
_CALL: Final = re.compile(r"(?<![\w.>#])([A-Za-z_]\w*)\s*\(")

Graph: TypeAlias = Mapping[str, set[str]]


def graph_of(folder: Path) -> Graph:
    """The units below `folder`, by path without suffix, each with the units that it depends on.

    Raises:
        OSError: a file cannot be read.
    """
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".c", ".h")
    }
    units = {path: str(path.with_suffix("").relative_to(folder)) for path in texts}
    codes = {path: _OPAQUE.sub(" ", text) for path, text in texts.items()}
    homes: dict[str, str] = {}
    for path, code in codes.items():
        homes.update(dict.fromkeys(_shared_functions(path, code), units[path]))
    graph: dict[str, set[str]] = {unit: set() for unit in units.values()}
    for path, text in texts.items():
        own = {match["name"] for match in _DEFINITION.finditer(codes[path])}
        calls = _CALL.findall(_DECLARATION.sub(" ", codes[path]))
        called = {homes[name] for name in calls if name in homes and name not in own}
        graph[units[path]] |= (called | _included(path, text, folder, units)) - {units[path]}
    return graph


def _shared_functions(path: Path, code: str) -> Iterable[str]:
    """The functions that one file defines for others: static ones only where the file is a header."""
    return (
        match["name"]
        for match in _DEFINITION.finditer(code)
        if path.suffix == ".h" or "static" not in match["kind"].split()
    )


def _included(path: Path, text: str, folder: Path, units: Mapping[Path, str]) -> set[str]:
    """The units of the headers that one file includes, found beside the file or from `folder`."""
    names = _INCLUDE.findall(text)
    return {units[place] for name in names for place in (path.parent / name, folder / name) if place in units}


def circles_in(graph: Graph) -> list[list[str]]:
    """Every set of units that reach each other, largest first, each sorted by name."""
    reached = {unit: _reach(graph, unit) for unit in graph}
    found = {
        tuple(sorted(other for other in reached[unit] if unit in reached[other]))
        for unit in graph
        if unit in reached[unit]
    }
    return sorted((list(circle) for circle in found), key=lambda circle: (-len(circle), circle))


def _reach(graph: Graph, start: str) -> set[str]:
    """The units that `start` depends on, directly or through others."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        unit = waiting.pop()
        if unit not in seen:
            seen.add(unit)
            waiting += graph[unit]
    return seen


def main(folders: list[Path]) -> int:
    """Check each folder; names every circle on standard error. Returns the exit status: 1 where there is a circle."""
    failed = False
    for folder in folders:
        graph = graph_of(folder)
        for circle in circles_in(graph):
            failed = True
            sys.stderr.write(
                f"{folder}: {len(circle)} files form a circle; move functions until none is left:\n"
            )
            for unit in circle:
                arrows = ", ".join(sorted(graph[unit] & set(circle)))
                sys.stderr.write(f"  {unit} depends on {arrows}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main([Path(folder) for folder in sys.argv[1:]]))
