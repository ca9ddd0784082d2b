"""Starts a module of this installation as a program, whatever the folder and its files.

`python -m hook.broker` would look in the current folder first, and a user's folder may have a `hook` of its own. So
this file is the program, without the current folder in its path (`-P`), and it runs the module.
"""

import contextlib
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).parents[2])


def program_of(module: str) -> tuple[str, ...]:
    """The command line that runs a module as `python -m` does; the module's arguments follow."""
    return (sys.executable, "-P", __file__, module)


def leave_current_folder() -> None:
    """Find no module in the current folder from now on, as `program_of` does; call it before others are imported."""
    folder = {""}
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        folder.add(str(Path.cwd()))
    sys.path[:] = [root for root in sys.path if root not in folder]
    _find_ours()


def _find_ours() -> None:
    if _ROOT not in sys.path:  # a source tree that is not installed, or not this one
        sys.path.insert(0, _ROOT)


def _run() -> None:
    import runpy  # noqa: PLC0415 - the command line does without

    _find_ours()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
