"""The wheel for this machine, in an environment that has nothing but our locked dependencies."""

import asyncio
import platform
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from plimsoll.native import FILES
from tests.package.installed import ROOT, Installed, built, ended, succeeded, uv

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# It builds a wheel, and an environment for it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PACKAGES = {"plimsoll", "plimsoll_alerts", "plimsoll_cli", "monitor", "placer", "solo", "hook", "simulator"}


@pytest.fixture(name="wheel", scope="module")
async def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(name="installed", scope="module")
async def _installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The package in a clean environment, and a folder with a `hook` and a `solo` of its own."""
    place = tmp_path_factory.mktemp("installed")
    installed = Installed(place / "environment", place / "folder")
    for name in ("hook", "solo"):
        (installed.folder / name).mkdir(parents=True)
        (installed.folder / name / "__init__.py").write_text("raise SystemExit('a folder of the user')\n")
    # The locked packages are in uv's cache, because our own environment has them.
    only_ours = ("--frozen", "--quiet", "--no-default-groups", "--no-install-project")
    sync = (uv(), "sync", *only_ours, "--python", sys.executable)
    await succeeded(*sync, UV_PROJECT_ENVIRONMENT=str(installed.environment))
    await succeeded(uv(), "pip", "install", "--quiet", "--no-deps", "--python", installed.python, wheel)
    return installed


def test_it_holds_programs_and_no_sources(wheel: Path) -> None:
    """The packages, their data and the files that C made; no C source, test or benchmark."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"plimsoll/native/built/{file}" for file in FILES} < names
    assert {"placer/stores/scores.lua", "plimsoll_cli/demo/pods.yaml"} < names
    ours = {name for name in names if ".dist-info/" not in name and "native/built/" not in name}
    assert {Path(name).parts[0] for name in ours} == PACKAGES
    page = {name for name in ours if name.startswith("placer/live/page/")}
    assert {Path(name).suffix for name in page} == {".html", ".css", ".js", ".svg"}
    assert {Path(name).suffix for name in ours - page} == {".py", ".lua", ".yaml"}
    assert not any(name.startswith("hook/lib/") for name in names)


def test_its_tag_is_that_of_its_files(wheel: Path) -> None:
    """For this machine and glibc 2.17, so an installer takes it nowhere else."""
    machine = platform.machine()
    assert wheel.name.endswith(f"-py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}.whl")
    metadata = zipfile.ZipFile(wheel).read(f"plimsoll-{VERSION}.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in metadata


async def test_the_same_tree_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """A second build is the first one, byte for byte."""
    again = await built(tmp_path)
    assert await asyncio.to_thread(lambda: again.read_bytes() == wheel.read_bytes())


async def test_files_for_another_machine_are_not_mixed(tmp_path: Path) -> None:
    """A build from files of two machines, or without one of them, is refused by name."""
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path)
    end = await ended(*command, more={"PLIMSOLL_WHEEL_FILES": str(tmp_path)})
    assert end.code != 0
    assert f"{tmp_path}/{FILES[0]} is missing; remedy: `make wheel`" in end.errors


async def test_run_holds_a_command_from_any_folder(installed: Installed) -> None:
    """A command gets its memory and no more, though the folder has packages of our parts' names."""
    busy = installed.files / "bin" / "busy"
    within = await installed.run("--gpu-memory", "2Gi", "--", busy, "--memory", "1Gi")
    assert (within.code, within.errors) == (0, "")
    past = await installed.run("--gpu-memory", "2Gi", "--", busy, "--memory", "3Gi")
    assert past.code == 2
    assert "CUDA_ERROR_OUT_OF_MEMORY" in past.output


async def test_the_command_knows_its_version(installed: Installed) -> None:
    """`plimsoll --version` prints name and version."""
    end = await ended(installed.plimsoll, "--version", folder=installed.folder)
    assert (end.code, end.output) == (0, f"plimsoll {VERSION}\n")


async def test_a_part_starts_from_the_package_and_knows_its_library(installed: Installed) -> None:
    """The placer starts, and pods get the package's own library. `make wheel-check` starts every part."""
    end = await ended(installed.python, "-P", "-m", "placer", "--help")
    assert (end.code, end.errors) == (0, "")
    asked = "from plimsoll.native import HOOK_LIBRARY; print(HOOK_LIBRARY)"
    end = await ended(installed.python, "-P", "-c", asked)
    assert end.output == f"{installed.files / 'hook' / 'libplimsoll.so'}\n"


async def test_without_its_library_nothing_is_started(installed: Installed) -> None:
    """`plimsoll run` ends with 2 before its command starts, and the demo with 1; both say the path and the remedy."""
    library, aside = installed.files / "hook" / "libplimsoll.so", installed.folder.parent / "aside.so"
    await asyncio.to_thread(library.rename, aside)
    try:
        run = await installed.run("--", "touch", "started")
        demo = await ended(installed.plimsoll, "demo", folder=installed.folder)
    finally:
        await asyncio.to_thread(aside.rename, library)
    remedy = "install Plimsoll's wheel for this machine again"
    assert (run.code, demo.code) == (2, 1)
    assert run.errors == f"plimsoll run: --hook-library: '{library}' does not exist; {remedy}\n"
    assert f"{library} is missing; {remedy}" in demo.errors
    assert not (installed.folder / "started").exists()
