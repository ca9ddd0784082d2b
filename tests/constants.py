"""Starts a part with other values for constants of its modules, where a test cannot wait as long as a cluster does.

python -m tests.constants MODULE.NAME=EXPRESSION … PART
"""

import runpy
import sys
from collections.abc import Mapping
from importlib import import_module


def part_with(part: str, *constants: str) -> tuple[str, ...]:
    """The arguments of Python that run a part with these constants, each as `module.NAME=expression`."""
    return "-m", "tests.constants", *constants, part


def start_of(
    part: str, prefix: str, given: Mapping[str, object], constants: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments of Python, and the variables, with which a part starts.

    Args:
        part: its module.
        prefix: the beginning of the variables of its settings.
        given: settings, and constants, by their names in lower case.
        constants: of each constant, how it is written: `module.NAME={}`. A module stands before those that import it.
    """
    written = (form.format(given[name]) for name, form in constants.items() if name in given)
    settings = {name: str(value) for name, value in given.items() if name not in constants}
    return part_with(part, *written), {f"{prefix}{name.upper()}": value for name, value in settings.items()}


def main() -> None:
    """Set each constant before the part imports it, and run the part."""
    *given, part = sys.argv[1:]
    for one in given:
        path, _, expression = one.partition("=")
        module, _, name = path.rpartition(".")
        names = vars(import_module(module))
        assert name in names, path
        names[name] = eval(expression, dict(names))  # noqa: S307 - a test wrote it
    sys.argv[1:] = []
    runpy.run_module(part, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
