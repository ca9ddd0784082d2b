"""Starts a part with other values for constants of its modules, where a test cannot wait as long as a cluster does.

python -m tests.constants MODULE.NAME=VALUE … PART
"""

import runpy
import sys
from collections.abc import Mapping
from importlib import import_module


def part_with(part: str, constants: Mapping[str, object]) -> tuple[str, ...]:
    """The arguments of Python that run a part, with these values by the full names of constants."""
    given = (f"{name}={value}" for name, value in constants.items())
    return "-m", "tests.constants", *given, part


def main() -> None:
    """Set each constant before the part imports it, and run the part."""
    *given, part = sys.argv[1:]
    for one in given:
        path, _, text = one.partition("=")
        module, _, name = path.rpartition(".")
        owner = import_module(module)
        setattr(owner, name, type(getattr(owner, name))(text))
    sys.argv[1:] = []
    runpy.run_module(part, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
