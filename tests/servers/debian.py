"""Programs of Debian's packages for the tests: from the PATH, or unpacked into the cache folder, without root.

What always holds: nothing is installed on the machine. A package is fetched once, by the machine's own apt and its
keys, and unpacked beside the Kubernetes binaries. Only programs that need no other package can be had so.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.assets import cache_root

PROGRAMS: Final = (("prometheus", "promtool"), ("prometheus-alertmanager", "prometheus-alertmanager"))
"""The packages and programs that tests use. `python -m tests.servers.debian` fetches them, before the tests."""

FETCH_S: Final = 300.0
"""The time that one call of apt may take: a mirror may be slow."""

_RETRIES: Final = ("-o", "Acquire::Retries=5")


class MissingPackageError(Exception):
    """A program is not on the PATH, and its package cannot be fetched. The message has the remedy."""


def debian_program(package: str, name: str) -> Path:
    """The path of a program. Blocks, the first time for some seconds.

    Args:
        package: Debian's package, such as `prometheus`.
        name: the program's name in the package's `/usr/bin`, such as `promtool`.

    Raises:
        MissingPackageError: there is no apt, or no mirror answers.
    """
    if found := shutil.which(name):
        return Path(found)
    return debian_file(package, f"usr/bin/{name}")


def debian_file(package: str, name: str) -> Path:
    """The path of an executable file of a package, such as `usr/bin/sudo`; otherwise as `debian_program`."""
    folder = cache_root() / "debian" / package
    program = folder / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers of one run may want it first
        if not os.access(program, os.X_OK):
            _fetch(package, folder)
    return program


def program_or_skip(package: str, name: str) -> Path:
    """Like `debian_program`, for a test: it is skipped where the program is not to be had, and says so."""
    try:
        return debian_program(package, name)
    except MissingPackageError as error:
        pytest.skip(str(error))


def _fetch(package: str, folder: Path) -> None:
    work = folder.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        _download(package, work)
        [archive] = work.glob("*.deb")
        _run(("dpkg-deb", "--extract", str(archive), str(work)), work)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", None) or error
        remedy = f"remedy: apt-get install {package}"
        raise MissingPackageError(
            f"Debian's package {package} cannot be fetched ({output}); {remedy}"
        ) from error
    archive.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def _download(package: str, work: Path) -> None:
    """Download by apt's lists as they are; where they are missing or old, by lists of our own."""
    try:
        _run(("apt-get", *_RETRIES, "download", package), work)
    except subprocess.CalledProcessError:
        lists, cache = work / "lists", work / "cache"
        for each in (lists / "partial", cache / "archives" / "partial"):
            each.mkdir(parents=True)
        own = (*_RETRIES, "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}")
        _run(("apt-get", *own, "update"), work)
        _run(("apt-get", *own, "download", package), work)
        shutil.rmtree(lists)
        shutil.rmtree(cache)


def _run(command: tuple[str, ...], folder: Path) -> None:
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_S,
    )


def main() -> None:
    """Fetch all `PROGRAMS`; name what cannot be had, whose tests are then skipped."""
    for package, name in PROGRAMS:
        try:
            debian_program(package, name)
        except MissingPackageError as error:
            print(f"plimsoll: {error}")


if __name__ == "__main__":
    main()
