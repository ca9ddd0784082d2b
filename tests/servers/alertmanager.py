"""Debian's prometheus-alertmanager for tests: the installed one, or the package of this machine's Debian, unpacked.

`apt-get download` brings the package without root and without installing it; apt checks its hash by Debian's signed
lists. A machine without apt, or without a mirror, skips the tests that need Alertmanager, and says what it lacks.
"""

import asyncio
import fcntl
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from plimsoll.cli.demo.servers import EmbeddedServer, EmbeddedServerError, ServerKind, running
from tests.cluster.assets import cache_root
from tests.servers.waiting import until

PACKAGE = "prometheus-alertmanager"

TEMPLATES = b"/usr/share/prometheus/alertmanager"
"""The folder of templates in Debian's executable; as long as `./` seventeen times."""

FETCH_S = 120
"""Seconds for a mirror: the package has 10 MB."""

CONFIGURATION = """
route:
  receiver: nobody
  group_by: [alertname]
receivers: [{name: nobody}]
"""


def program() -> Path:
    """The executable.

    Raises:
        EmbeddedServerError: it is neither installed nor to be had.
    """
    if found := shutil.which(PACKAGE):
        return Path(found)
    folder = cache_root() / "alertmanager"
    executable = folder / "root" / "usr" / "bin" / PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not executable.exists():
            _unpack(folder)
    return executable


def _unpack(folder: Path) -> None:
    partial = folder / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    lists = ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]
    for place in ("lists/partial", "cache/archives/partial"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    # With the machine's own lists; where it has none, as in many images, with lists of our own.
    tries = (
        [["apt-get", "-qq", "download", PACKAGE]],
        [["apt-get", "-qq", *lists, "update"], ["apt-get", "-qq", *lists, "download", PACKAGE]],
    )
    words: list[str] = []
    for commands in tries:
        try:
            for command in commands:
                subprocess.run(
                    command, cwd=partial, check=True, capture_output=True, text=True, timeout=FETCH_S
                )
            [package] = partial.glob("*.deb")
            unpack = ["dpkg-deb", "-x", str(package), str(partial / "root")]
            subprocess.run(unpack, check=True, capture_output=True, text=True, timeout=FETCH_S)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            words.append(str(getattr(error, "stderr", "") or error).strip())
        else:
            _relocate(partial / "root")
            (partial / "root").rename(folder / "root")
            return
    msg = f"{PACKAGE} cannot be had; remedy: apt-get install {PACKAGE}; {'; '.join(words)}"
    raise EmbeddedServerError(msg)


def _relocate(root: Path) -> None:
    """Have the program read its templates from the current folder: it names Debian's folder, which needs root."""
    executable = root / "usr" / "bin" / PACKAGE
    here = (b"./" * len(TEMPLATES))[: len(TEMPLATES)]
    executable.write_bytes(executable.read_bytes().replace(TEMPLATES, here))


@asynccontextmanager
async def alertmanager(directory: Path, *options: str) -> AsyncIterator[EmbeddedServer]:
    """Run Alertmanager until the context ends; skips the test where it is not to be had."""

    def arguments(port: int, place: Path) -> Sequence[str]:
        return (
            f"--config.file={place / 'alertmanager.yml'}",
            f"--storage.path={place / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            *options,
        )

    kind = ServerKind("alertmanager", "http", "Listening on", program, arguments)
    try:
        await asyncio.to_thread(program)
    except EmbeddedServerError as error:
        pytest.skip(str(error))
    await asyncio.to_thread(_lay_out, directory)
    async with running(kind, directory) as server:
        yield server


def _lay_out(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "alertmanager.yml").write_text(CONFIGURATION)
    for template in (program().parents[1] / "share" / "prometheus" / "alertmanager").glob("*.tmpl"):
        shutil.copy(template, directory)


async def alerts(url: str, **options: object) -> dict[str, dict[str, object]]:
    """The alerts that fire there, by name and the GPU or node that they are about."""
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/api/v2/alerts", params={"active": "true"}, **options)  # type: ignore[arg-type]
        assert answer.status == 200, await answer.text()
        found = await answer.json()
    return {named(one["labels"]): one for one in found}


def named(labels: dict[str, str]) -> str:
    """`PlimsollGpuFatal GPU-a`."""
    about = labels.get("container") or labels.get("gpu") or labels.get("node") or ""
    return f"{labels['alertname']} {about}".strip()


async def until_firing(url: str, *names: str, **options: object) -> dict[str, dict[str, object]]:
    """Wait until exactly these alerts fire, and return them."""

    found: dict[str, dict[str, object]] = {}

    async def look() -> bool:
        found.clear()
        found.update(await alerts(url, **options))
        return found.keys() == set(names)

    try:
        await until(look)
    except AssertionError as error:
        raise AssertionError(f"{error}; firing: {sorted(found)}, expected: {sorted(names)}") from None
    return found
