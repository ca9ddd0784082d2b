"""Whether the loader preloads the library into programs. Without it, a program would run without its line.

ld.so leaves out a library that it cannot preload, writes a line to standard error, and starts the program all the
same. So each part that hands the library to programs asks here first.
"""

import asyncio
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from plimsoll.native import HOOK_LIBRARY, MACHINES, REMEDY
from plimsoll.part.errors import InputError

PROBE_S: Final = 20.0
"""Seconds that a small program may take to start on a loaded machine."""

_PROBE: Final = """
import ctypes, os, sys
try:  # RTLD_NOLOAD finds only what the loader has loaded already
    ctypes.CDLL(sys.argv[1], os.RTLD_NOLOAD | os.RTLD_LAZY)
except OSError:
    sys.exit("the loader leaves it out")
"""

_SEPARATORS: Final = " :"
"""ld.so divides LD_PRELOAD at these, and no character escapes them."""
_DIVIDED: Final = "has a space or a colon in its path, and the loader divides LD_PRELOAD there"

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_SONAME: Final = b"\0libplimsoll.so\0"


async def preloadable(field: str, library: Path, environment: Mapping[str, str]) -> Path:
    """Refuse a library that the loader would not preload; cancelling is safe.

    A small program is started with the library, without a GPU. That takes some 30 ms.

    Args:
        field: the option or variable that names the library, for the error.
        library: the path; a relative one begins at the current folder.
        environment: the variables of the programs that will get the library.

    Returns:
        The absolute path, because a program may change its folder before it starts another one.

    Raises:
        InputError: the file is missing, unreadable, for another machine, not our library, or cannot be loaded.
    """
    path = await asyncio.to_thread(library.absolute)
    problem = await asyncio.to_thread(_problem_of_file, path) or await _problem_of_loader(path, environment)
    if problem is None:
        return path
    if problem == _DIVIDED:
        remedy = "copy the file to a path without them, and name the copy"
    elif path == HOOK_LIBRARY:
        remedy = REMEDY
    else:
        remedy = "name the libplimsoll.so of this installation, or leave the name out"
    raise InputError(field, str(path), problem, remedy)


def _problem_of_file(path: Path) -> str | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    machine = MACHINES.get(int.from_bytes(content[18:20], "little"), "another machine")
    if not content.startswith(_ELF_64_LITTLE) or _SONAME not in content:
        return "is not Plimsoll's library"
    if machine != platform.machine():
        return f"is for {machine}, and this machine is {platform.machine()}"
    return _DIVIDED if any(separator in str(path) for separator in _SEPARATORS) else None


async def _problem_of_loader(path: Path, environment: Mapping[str, str]) -> str | None:
    """The loader's own reason, from a program that it starts with the library."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _PROBE, str(path)),
        env={**environment, "LD_PRELOAD": str(path)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROBE_S):
            _, errors = await process.communicate()
    except TimeoutError:
        return f"keeps a program from starting for {PROBE_S:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    # The loader's line comes first, where it has written one.
    status = f"a program with it ends with status {process.returncode}"
    reason = next(iter(errors.decode(errors="replace").splitlines()), status)
    return f"cannot be preloaded ({reason})"
