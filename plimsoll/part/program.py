"""Starts a module of this installation as a program, whatever the folder and its files.

`python -m hook.broker` would look in the current folder first, and a user's folder may have a `hook` of its own. So
this file is the program, without the current folder in its path (`-P`), and it runs the module.
"""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Final, NoReturn

_ROOT: Final = str(Path(__file__).parents[2])


def program_of(module: str) -> tuple[str, ...]:
    """The command line that runs a module as `python -m` does; the module's arguments follow."""
    return (sys.executable, "-P", __file__, module)


def become(module: str, arguments: list[str]) -> NoReturn:
    """Run a module's `main` in this process, in place of the program that it is.

    A new interpreter would make half of the module's imports once more. The current folder leaves the path, as above.
    """
    folder = {""}
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        folder.add(str(Path.cwd()))
    sys.path[:] = [root for root in sys.path if root not in folder]
    _find_ours()
    sys.exit(importlib.import_module(module).main(arguments))


def _find_ours() -> None:
    if _ROOT not in sys.path:  # a source tree that is not installed, or not this one
        sys.path.insert(0, _ROOT)


def _run() -> None:
    import runpy  # noqa: PLC0415 - `become` does without

    _find_ours()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
