"""A wheel, and a clean environment into which it is installed."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.waiting import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
GPU: Final = "GPU-00000000-0000-4000-8000-000000000013"
NODE: Final = f"[gpu 0]\nmodel = NVIDIA L4\nmemory = 24Gi\nuuid = {GPU}\n"

AUTHORITIES: Final = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}
"""Read as the tests are collected. While they run, the variable names an empty file."""
INSTALL_S: Final = 600.0
"""Seconds that an installer may take where it fetches packages, or that a demo may take on a loaded machine."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int | None
    output: str
    errors: str


async def ended(
    *command: str | Path,
    folder: Path = ROOT,
    patience_s: float = PATIENCE_S,
    more: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program to its end, without the variables that would lead it to our own environment.

    It trusts the authorities that the machine trusts: an installer asks the index.

    Args:
        command: the program and its arguments.
        folder: its current folder.
        patience_s: the time after which it is killed, and `TimeoutError` raised.
        more: variables in addition to ours.
    """
    ours = {"PYTHONPATH", "VIRTUAL_ENV", "LD_PRELOAD", "SSL_CERT_FILE"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=kept | AUTHORITIES | dict(more or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(patience_s):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(process.returncode, output.decode(), errors.decode())


async def succeeded(*command: str | Path, **more: str) -> str:
    """Run a program, with more variables, that must end with 0; returns its output."""
    end = await ended(*command, patience_s=INSTALL_S, more=more)
    assert end.code == 0, f"{command}: {end}"
    return end.output


async def built(directory: Path) -> Path:
    """Build a wheel for this machine from the files of `make native`, or of `PLIMSOLL_WHEEL_FILES`."""
    await succeeded(
        *(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory)
    )
    [wheel] = await asyncio.to_thread(lambda: list(directory.glob("*.whl")))
    return wheel


def uv() -> Path:
    """The installer that `tools/bootstrap` uses."""
    found = shutil.which("uv")
    return Path(found) if found else ROOT / ".cache" / "uv" / "bin" / "uv"


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the package, and an empty folder to work in."""

    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.environment / "bin" / "python"

    @property
    def plimsoll(self) -> Path:
        """The command."""
        return self.environment / "bin" / "plimsoll"

    @property
    def files(self) -> Path:
        """The folder of the files that C made."""
        [packages] = (self.environment / "lib").glob("python3.*/site-packages")
        return packages / "plimsoll" / "native" / "built"

    async def run(self, *words: str | Path) -> Ended:
        """Run `plimsoll run` with a private broker, on an emulated GPU of 24 GiB."""
        config = self.folder.parent / "node.conf"
        await asyncio.to_thread(config.write_text, NODE)
        root = self.folder.parent / "broker"
        emulated = {"PLIMSOLL_EMULATOR": str(config), "LD_LIBRARY_PATH": str(self.files / "emulator")}
        command = (self.plimsoll, "run", "--broker-root", root, *words)
        return await ended(*command, folder=self.folder, more=emulated)
