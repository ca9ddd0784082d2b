"""A real Alertmanager (Debian's) on loopback, and what fires there.

A machine without it, or without apt and a mirror, skips the tests that need it, and says what it lacks.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.servers.debian import MissingPackageError, debian_program
from tests.servers.waiting import until

PACKAGE = "prometheus-alertmanager"

TEMPLATES = b"/usr/share/prometheus/alertmanager"
"""The folder of templates in Debian's executable; as long as `./` seventeen times."""

CONFIGURATION = """
route:
  receiver: nobody
  group_by: [alertname]
receivers: [{name: nobody}]
"""


def program() -> Path:
    """The executable. Blocks, the first time for some seconds.

    Raises:
        MissingPackageError: it is neither installed nor to be had.
    """
    found = debian_program(PACKAGE, PACKAGE)
    if TEMPLATES not in (content := found.read_bytes()) or _templates(Path("/")).exists():
        return found
    # It names Debian's folder of templates, which needs root: have it read them from the current folder.
    own = found.with_name("alertmanager-here")
    if not own.exists():
        partial = own.with_suffix(f".{os.getpid()}")  # several workers may want it first
        partial.write_bytes(content.replace(TEMPLATES, (b"./" * len(TEMPLATES))[: len(TEMPLATES)]))
        partial.chmod(0o755)
        partial.rename(own)
    return own


def _templates(root: Path) -> Path:
    return root / "usr" / "share" / "prometheus" / "alertmanager"


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
    except MissingPackageError as error:
        pytest.skip(str(error))
    await asyncio.to_thread(_lay_out, directory)
    async with running(kind, directory) as server:
        yield server


def _lay_out(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "alertmanager.yml").write_text(CONFIGURATION)
    for template in _templates(program().parents[2]).glob("*.tmpl"):
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
