"""The installation of the library on a node, without a node."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hook.broker.csi.library import LIBRARY_NAME, install
from plimsoll.native import BUILD, EMULATOR, HOOK_LIBRARY
from plimsoll.part.errors import InputError


def another_library(_: Path) -> Path:
    """A library of this machine that holds nobody to a line."""
    return EMULATOR / "libcuda.so.1"


def of_another_machine(_: Path) -> Path:
    """The library for the other supported machine."""
    return BUILD / "hook" / "other-machine.so"


def a_text(folder: Path) -> Path:
    """A file that is no library."""
    (folder / "text").write_text("x")
    return folder / "text"


@pytest.mark.parametrize(
    ("library", "problem"),
    [
        (another_library, "is not Plimsoll's library"),
        (of_another_machine, "and this machine is"),
        (a_text, "is not Plimsoll's library"),
        (lambda folder: folder / "none", "does not exist"),
    ],
)
def test_a_file_that_would_not_hold_pods_is_not_installed(
    tmp_path: Path, library: Callable[[Path], Path], problem: str
) -> None:
    """Pods with such a library would run without their lines; the error has the file and the remedy."""
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(InputError, match=problem) as refused:
        install(library(tmp_path), root)
    assert (refused.value.field, refused.value.remedy) == (
        library(tmp_path).name,
        "name the libplimsoll.so of this installation, or leave the name out",
    )
    assert not list(root.iterdir())


def test_a_version_is_installed_once(tmp_path: Path) -> None:
    """The same library has one directory, however often it is installed."""
    home = install(HOOK_LIBRARY, tmp_path)
    assert install(HOOK_LIBRARY, tmp_path) == home
    assert (home / "lib" / LIBRARY_NAME).read_bytes() == HOOK_LIBRARY.read_bytes()
