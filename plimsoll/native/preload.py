"""Whether a file is the library, and the loader preloads it. Without it, a program would run without its line.

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

_SEPARATORS: Final = " :"
"""ld.so divides LD_PRELOAD at these, and no character escapes them."""

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_SONAME: Final = b"\0libplimsoll.so\0"


async def preloadable(field: str, library: Path, environment: Mapping[str, str]) -> Path:
    """Refuse a library that the loader would not preload; cancelling is safe.

    A small program is started with the library, without a GPU, in some 5 ms: Python, which writes its version. musl's
    loader says nothing of a damaged library; the broker then reports the programs without it.

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
    await asyncio.to_thread(read_library, field, path)
    if any(separator in str(path) for separator in _SEPARATORS):
        problem = "has a space or a colon in its path, and the loader divides LD_PRELOAD there"
        remedy = "copy the file to a path without them, and name the copy"
        raise InputError(field, str(path), problem, remedy)
    if (reason := await _problem_of_loader(path, environment)) is not None:
        raise InputError(field, str(path), reason, _remedy(path))
    return path


def read_library(field: str, path: Path) -> bytes:
    """The content of a file that is Plimsoll's library for this machine. Blocks on the disk.

    Args:
        field: the option or variable that names the library, for the error.
        path: the file.

    Raises:
        InputError: the file is missing, unreadable, not our library, or for another machine.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(field, str(path), "does not exist", _remedy(path)) from error
    except OSError as error:
        raise InputError(field, str(path), f"cannot be read ({error.strerror})", _remedy(path)) from error
    if not content.startswith(_ELF_64_LITTLE) or _SONAME not in content:
        raise InputError(field, str(path), "is not Plimsoll's library", _remedy(path))
    machine = MACHINES.get(int.from_bytes(content[18:20], "little"), "another machine")
    if machine != platform.machine():
        problem = f"is for {machine}, and this machine is {platform.machine()}"
        raise InputError(field, str(path), problem, _remedy(path))
    return content


def _remedy(path: Path) -> str:
    if path == HOOK_LIBRARY:
        return REMEDY
    return "name the libplimsoll.so of this installation, or leave the name out"


async def _problem_of_loader(path: Path, environment: Mapping[str, str]) -> str | None:
    """Why a program does not start with the library, in the loader's own words; None if it starts."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-V"),
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
    # The loader's line about what it leaves out names the variable, also where the user has its other lines shown.
    lines = errors.decode(errors="replace").splitlines()
    left_out = [line for line in lines if "LD_PRELOAD" in line]
    if process.returncode == 0 and not left_out:
        return None
    status = f"a program with it ends with status {process.returncode}"
    return f"cannot be preloaded ({next(iter(left_out or lines), status)})"
