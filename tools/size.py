"""Counts the code: lines without blanks, comments and docstrings, by folder, and the settings of the parts.

    python -m tools.size

Only Python and C are counted, in files that git follows. A folder that is named for no other group belongs to
the product, so that a new part of the product is never left out of the sum.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import Final

from tools.settings import count

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = "tests"
MEASURING: Final = "emulator, bench, tools, docs"
PRODUCT: Final = "product"
_GROUPS: Final = {TESTS: TESTS} | dict.fromkeys(
    ("emulator", "simulator", "bench", "dashboards", "tools", "docs"), MEASURING
)
_NO_CODE: Final = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
)
# A comment, or a literal, in which neither /* nor // begins a comment.
_COMMENT_OR_LITERAL: Final = re.compile(
    r"""/\*.*?\*/|//(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)


def python_lines(text: str) -> int:
    """The number of lines with code in a Python file; a text that stands alone as a statement is a docstring."""
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(coded - documented)


def c_lines(text: str) -> int:
    """The number of lines with code in a C file."""
    bare = _COMMENT_OR_LITERAL.sub(_without_comment, text)
    return sum(1 for line in bare.splitlines() if line.strip())


def _without_comment(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n") if found[0].startswith("/") else found[0]


_COUNTS: Final = {".py": python_lines, ".c": c_lines, ".h": c_lines}


def main() -> int:
    """Print a table: each folder with its lines and files, and the sum of each group."""
    listed = subprocess.check_output(("git", "ls-files", "-z"), cwd=ROOT, text=True)  # noqa: S607 - git by its name
    lines, files = defaultdict[str, int](int), defaultdict[str, int](int)
    for path in (ROOT / name for name in listed.split("\0") if name):
        if path.suffix not in _COUNTS or not path.is_file():
            continue
        folder, text = path.relative_to(ROOT).parts[0], path.read_text()
        group = MEASURING if path.parent == ROOT else _GROUPS.get(folder, PRODUCT)
        for name in {group, folder if folder == group else f"{group}/{folder}"}:
            lines[name] += _COUNTS[path.suffix](text)
            files[name] += 1
    for name in sorted(lines, key=lambda name: (name.partition("/")[0] != PRODUCT, name)):
        label = "  " + name.partition("/")[2] if "/" in name else name
        sys.stdout.write(f"{label:<24}{lines[name]:>8} lines{files[name]:>6} files\n")
    sys.stdout.write(f"{'settings':<24}{count():>8}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
