"""The check of the library that a part hands to programs, on the real loader."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.native import BUILD, EMULATOR, HOOK_LIBRARY
from plimsoll.native.preload import preloadable
from plimsoll.part.errors import InputError

ANOTHER = "name the libplimsoll.so of this installation, or leave the name out"


def missing(folder: Path) -> Path:
    """No file."""
    return folder / "libplimsoll.so"


def a_folder(folder: Path) -> Path:
    """A folder in the library's place."""
    return folder


def a_text(folder: Path) -> Path:
    """A file that is no library, and too short for a header."""
    (folder / "text").write_text("x")
    return folder / "text"


def an_empty_file(folder: Path) -> Path:
    """An empty file, as a full disk leaves it."""
    (folder / "empty").write_bytes(b"")
    return folder / "empty"


def another_library(_: Path) -> Path:
    """A library that the loader takes, and that holds nobody to a line."""
    return EMULATOR / "libcuda.so.1"


def of_another_machine(_: Path) -> Path:
    """The library for the other supported machine."""
    return BUILD / "hook" / "other-machine.so"


def cut_off(folder: Path) -> Path:
    """The library without its second half."""
    content = HOOK_LIBRARY.read_bytes()
    (folder / "cut.so").write_bytes(content[: len(content) // 8] + b"\0libplimsoll.so\0")
    return folder / "cut.so"


def for_a_newer_libc(folder: Path) -> Path:
    """The library with a symbol version that no libc has."""
    content = HOOK_LIBRARY.read_bytes()
    version = b"\0GLIBC_2.17\0" if b"\0GLIBC_2.17\0" in content else b"\0GLIBC_2.2.5\0"
    (folder / "newer.so").write_bytes(content.replace(version, version[:-4] + b"9.9\0"))
    return folder / "newer.so"


def behind_a_space(folder: Path) -> Path:
    """The library at a path that LD_PRELOAD cannot hold."""
    (folder / "my project").mkdir()
    return Path(shutil.copy(HOOK_LIBRARY, folder / "my project"))


def behind_a_token(folder: Path) -> Path:
    """The library at a path that the loader rewrites."""
    (folder / "$LIB").mkdir()
    return Path(shutil.copy(HOOK_LIBRARY, folder / "$LIB"))


@pytest.mark.parametrize(
    ("library", "problem", "remedy"),
    [
        (missing, "does not exist", ANOTHER),
        (a_folder, "cannot be read (Is a directory)", ANOTHER),
        (a_text, "is not Plimsoll's library", ANOTHER),
        (an_empty_file, "is not Plimsoll's library", ANOTHER),
        (another_library, "is not Plimsoll's library", ANOTHER),
        (of_another_machine, "and this machine is ", ANOTHER),
        (cut_off, "cannot be preloaded (", ANOTHER),
        (for_a_newer_libc, "9.9' not found", ANOTHER),
        (behind_a_space, "has a space or a colon in its path", "copy the file to a path without them"),
        (behind_a_token, "cannot be preloaded (", ANOTHER),
    ],
)
async def test_a_library_that_the_loader_would_leave_out_is_refused(
    tmp_path: Path, library: Callable[[Path], Path], problem: str, remedy: str
) -> None:
    """The error has the setting, the path, the problem and the remedy."""
    path = library(tmp_path)
    with pytest.raises(InputError) as caught:
        await preloadable("--hook-library", path, os.environ)
    assert (caught.value.field, caught.value.value) == ("--hook-library", str(path))
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


async def test_our_own_library_is_taken_by_its_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path becomes absolute, because a program may start another one in another folder."""
    monkeypatch.chdir(HOOK_LIBRARY.parent)
    assert await preloadable("--hook-library", Path(HOOK_LIBRARY.name), os.environ) == HOOK_LIBRARY
