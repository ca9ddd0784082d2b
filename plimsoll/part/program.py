"""Starts a module of this installation as a program, whatever the folder and its files.

`python -m hook.broker` would look in the current folder first, and a user's folder may have a `hook` of its own. So
this file is the program, without the current folder in its path (`-P`), and it runs the module.
"""

import runpy
import sys
from pathlib import Path


def program_of(module: str) -> tuple[str, ...]:
    """The command line that runs a module as `python -m` does; the module's arguments follow."""
    return (sys.executable, "-P", __file__, module)


def _run() -> None:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:  # a source tree that is not installed, or not this one
        sys.path.insert(0, root)
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
