"""`make wheel-check`: the wheels of `make wheel`, on the oldest and the newest Python, with pip and with the demo.

An interpreter of each supported version that this machine has is a candidate; arguments name others. Both wheels'
files are read, and their dependencies are looked up for both machines, also where this machine cannot run them.
"""

import asyncio
import platform
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from plimsoll.native import FILES, MACHINES
from tests.hook.lib.elf import read_library
from tests.package.installed import INSTALL_S, ROOT, Installed, ended, succeeded, uv

WHEELS: Final = ROOT / "build" / "wheels"
PACKED: Final = ROOT / "build" / "packed"
OLDEST_GLIBC: Final = (2, 17)
"""The newest glibc of manylinux2014, the tag of our wheels."""

DEPENDENCIES_GLIBC: Final = "manylinux_2_28"
"""NATS's server in the extra `demo` asks for glibc 2.28; without the extra, all dependencies make do with 2.17."""

PARTS: Final = (
    "hook.broker",
    "monitor",
    "placer",
    "placer.pool",
    "placer.webhook",
    "simulator",
    "plimsoll",
    "plimsoll_alerts",
)
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14", "3.15")


async def main(interpreters: list[str]) -> None:
    """Check all, print a line for each fact; `AssertionError` names what does not hold."""
    wheels = {machine: _wheel_of(machine) for machine in MACHINES.values()}
    for machine, wheel in wheels.items():
        _check_files(machine)
        for version in VERSIONS[:-1]:
            await _check_dependencies(wheel, machine, version)
    candidates = [Path(name) for name in interpreters] or await _found()
    by_version = {await _version(python): python for python in candidates}
    for found in sorted({min(by_version), max(by_version)}):
        with tempfile.TemporaryDirectory(prefix="plimsoll-wheel-") as folder:
            await _check_installed(by_version[found], Path(folder), wheels[platform.machine()])


def _wheel_of(machine: str) -> Path:
    [wheel] = WHEELS.glob(f"plimsoll-*-py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}.whl")
    return wheel


def _check_files(machine: str) -> None:
    """Each file of a wheel is for its machine, and asks for no newer glibc than the wheel's tag."""
    for file in FILES:
        path = PACKED / machine / file
        assert MACHINES[int.from_bytes(path.read_bytes()[18:20], "little")] == machine, path
        newest = read_library(path).newest_glibc
        assert newest <= OLDEST_GLIBC, f"{path} asks for glibc {newest}"
        print(f"{machine} {file}: glibc {'.'.join(map(str, newest))} or newer")


async def _check_dependencies(wheel: Path, machine: str, version: str) -> None:
    """Every dependency has a wheel. nkeys has none at all: it is pure Python and built when it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "asked.txt")
        await asyncio.to_thread(asked.write_text, f"plimsoll[demo] @ {wheel.as_uri()}\n")
        place = ("--python-platform", f"{machine}-{DEPENDENCIES_GLIBC}", "--python-version", version)
        built = ("--only-binary", ":all:", "--no-binary", "nkeys")
        listed = await succeeded(uv(), "pip", "compile", "--quiet", asked, *place, *built)
    print(f"{machine} Python {version}: wheels of {len(re.findall('==', listed))} dependencies")


async def _found() -> list[Path]:
    """The interpreters of supported versions: on the PATH, and pyenv's."""
    names = [shutil.which(f"python{version}") for version in VERSIONS]
    pyenv = (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")
    candidates = [sys.executable, *filter(None, names), *map(str, pyenv)]
    works = [Path(name) for name in candidates if (await ended(name, "-c", "")).code == 0]
    return [python for python in works if await _version(python) >= (3, 11)]


async def _version(python: Path) -> tuple[int, ...]:
    numbers = await succeeded(python, "-c", "import sys; print(*sys.version_info[:3])")
    return tuple(map(int, numbers.split()))


async def _check_installed(python: Path, directory: Path, wheel: Path) -> None:
    """Install by pip into a new environment, run a command within and past its line, and the demo."""
    installed = Installed(directory / "environment", directory / "folder")
    await asyncio.to_thread(installed.folder.mkdir)
    await succeeded(python, "-m", "venv", installed.environment)
    pip = (installed.python, "-m", "pip")
    await succeeded(*pip, "install", "--quiet", "--disable-pip-version-check", f"{wheel}[demo]")
    version = await succeeded(installed.python, "--version")
    said = f"{version.strip()}, {' '.join((await succeeded(*pip, '--version')).split()[:2])}"
    print(f"{said}: {(await succeeded(installed.plimsoll, '--version')).strip()} installed")
    busy = installed.files / "bin" / "busy"
    within = await installed.run("--gpu-memory", "2Gi", "--", busy, "--memory", "1Gi")
    past = await installed.run("--gpu-memory", "2Gi", "--", busy, "--memory", "3Gi")
    assert (within.code, past.code) == (0, 2), (within, past)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in past.output
    print(f"{said}: `plimsoll run` holds a command to its line")
    for part in PARTS:
        await succeeded(installed.python, "-P", "-m", part, "--help")
    print(f"{said}: {', '.join(PARTS)} answer --help")
    begin = time.monotonic()
    demo = await ended(installed.plimsoll, "demo", folder=installed.folder, patience_s=INSTALL_S)
    assert demo.code == 0, demo
    print(f"{said}: `plimsoll demo` took {time.monotonic() - begin:.0f} s: {demo.output.splitlines()[-1]}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
