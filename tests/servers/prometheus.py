"""A real Prometheus (Debian's) on loopback, and `promtool`."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.servers.debian import debian_program, program_or_skip
from tests.servers.waiting import PATIENCE_S

PACKAGE: Final = "prometheus"
INTERVAL: Final = "1s"
"""Between two scrapes, and between two evaluations of rules."""


class QueryError(Exception):
    """Prometheus refused a query; the message is its own."""


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `promtool` to its end, whatever it says. Blocks.

    Skips the test where Debian's package is not to be had, as `prometheus` does.
    """
    program = program_or_skip(PACKAGE, "promtool")
    return subprocess.run(
        (str(program), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@asynccontextmanager
async def prometheus(
    directory: Path, scrapes: Sequence[dict[str, Any]], rules: Sequence[Path] = ()
) -> AsyncIterator[EmbeddedServer]:
    """Run Prometheus until the context ends.

    Args:
        directory: the folder of its data.
        scrapes: its `scrape_configs`.
        rules: files of rules.
    """
    await asyncio.to_thread(program_or_skip, PACKAGE, "prometheus")
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    settings = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(path.absolute()) for path in rules],
        "scrape_configs": list(scrapes),
    }
    config = directory / "prometheus.yaml"
    await asyncio.to_thread(config.write_text, yaml.safe_dump(settings))
    kind = ServerKind(
        name="prometheus",
        scheme="http",
        ready="Server is ready to receive web requests",
        program=partial(debian_program, PACKAGE, "prometheus"),
        arguments=lambda port, folder: (
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ),
    )
    async with running(kind, directory) as server:
        yield server


async def query(
    session: aiohttp.ClientSession, server: EmbeddedServer, expression: str
) -> list[dict[str, Any]]:
    """The samples of an instant query.

    Raises:
        QueryError: the query is wrong.
    """
    async with session.get(f"{server.url}/api/v1/query", params={"query": expression}) as answer:
        body = await answer.json()
    if body["status"] != "success":
        raise QueryError(body["error"])
    found: list[dict[str, Any]] = body["data"]["result"]
    return found
