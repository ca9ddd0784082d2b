"""The preload library on the node, one directory for each version. Everything here blocks.

A version's directory is the root of volumes: the library in `lib`, beside empty directories for their other parts.

What always holds: an installed file is never changed and never removed. A directory appears with the whole file in
it. So a running process, a container that starts again in an old pod, and a new pod each keep the version that they
began with. A version takes about a quarter of a megabyte on the disk.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from hook.broker.core.volume import LIBRARY_PART, PARTS
from plimsoll.native.preload import read_library

LIBRARY_NAME: Final = "libplimsoll.so"
VERSIONS_NAME: Final = "library"
DIGITS: Final = 16
"""Hexadecimal digits of a version's directory: enough that two builds never share one by chance."""

DIRECTORY_MODE: Final = 0o755
LIBRARY_MODE: Final = 0o755


def install(library: Path, root: Path) -> Path:
    """Copy the library below the broker's root, if this version is not there; returns the version's directory.

    Args:
        library: the file to install.
        root: the broker's root directory.

    Raises:
        InputError: the file cannot be read, or is not our library for this machine.
        OSError: the disk is full or read-only.
    """
    content = read_library(library.name, library)
    versions = root / VERSIONS_NAME
    home = versions / hashlib.sha256(content).hexdigest()[:DIGITS]
    if _has(home, content):
        return home
    versions.mkdir(exist_ok=True)
    versions.chmod(DIRECTORY_MODE)
    draft = versions / f".{home.name}.new"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(draft)
    for directory in (draft, *(draft / part for part in PARTS)):
        directory.mkdir()
        directory.chmod(DIRECTORY_MODE)
    _write(draft / LIBRARY_PART / LIBRARY_NAME, content)
    if home.exists():  # damaged: a disk lost its content, or laid out by an earlier broker
        home.rename(versions / f".{home.name}.damaged.{os.urandom(4).hex()}")
    draft.rename(home)
    _sync(versions)
    return home


def _has(home: Path, content: bytes) -> bool:
    try:
        return (home / LIBRARY_PART / LIBRARY_NAME).read_bytes() == content
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), LIBRARY_MODE)
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
