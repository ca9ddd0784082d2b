"""Fails where files of our Python packages import each other in a circle.

import-linter's contract is for folders, and only those of `placer.kube` keep it: folders may form a circle though
their files form none. So this reads import-linter's own graph of files. Imports for type checkers alone do not
count: two classes may name each other in annotations.

    python -m tools.imports PACKAGE…
"""

import sys
from collections.abc import Sequence

import grimp

from tools.circles import circles_in


def circles_of(packages: Sequence[str]) -> list[list[str]]:
    """Every set of files, as modules, that import each other at run time."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    return circles_in({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


def main(packages: Sequence[str]) -> int:
    """Name every circle on standard error. Returns the exit status: 1 where there is a circle."""
    circles = circles_of(packages)
    for circle in circles:
        sys.stderr.write(
            f"these files import each other; move functions until none is left: {', '.join(circle)}\n"
        )
    return int(bool(circles))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
