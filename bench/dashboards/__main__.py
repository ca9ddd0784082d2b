"""`python -m bench.dashboards [--quick]`: all queries of dashboards and rules, in a real Prometheus over a demo.

Progress, and the panels without data with the reasons that they give, go to standard error. Standard output gets one
JSON line; see bench/results/README.md. The exit code is 1 if a query is wrong, or a panel has no data and no reason.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from bench.dashboards.demo import demo, scrapes
from bench.dashboards.queries import (
    Answer,
    PanelQuery,
    QueryReport,
    filled,
    numbers,
    of_dashboard,
    query_report,
)
from bench.measures.progress import say
from dashboards.output import FOLDER
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.cluster import assets
from tests.cluster.build import ensure
from tests.servers import alertmanager
from tests.servers.debian import MissingPackageError, debian_program
from tests.servers.prometheus import PACKAGE, prometheus, query
from tests.servers.waiting import until
from tools.chart import CHART

RULES: Final = tuple(sorted((CHART / "rules").glob("*.yaml")))
FULL_S: Final = 150.0
"""Seconds of scrapes: longer than the spans of the rules that dashboards need."""
QUICK_S: Final = 70.0
"""Longer than a minute: sub-queries with a step of a minute are evaluated at whole minutes alone."""

STEP: Final = "1s"
ONE_POD: Final = "$pod"

Json = dict[str, Any]


async def run(seconds: float, folder: Path) -> Json:
    """Run the demo under Prometheus for this long, and ask everything; returns the figures."""
    say("four nodes, an API server, pods of two teams")
    async with (
        demo(folder / "demo") as running,
        prometheus(folder / "prometheus", scrapes(running.targets), RULES) as server,
        aiohttp.ClientSession() as http,
    ):
        began_s = time.time()
        targets = sum(len(of_job) for of_job in running.targets.values())
        await until(lambda: _scraped(http, server, targets))
        pods = await running.work()
        say(f"{len(pods)} pods were created; Prometheus scrapes for {seconds:.0f} s")
        await asyncio.sleep(seconds / 2)  # the time that the dashboards show
        await running.ask()  # a rate needs what was before: the first question makes the series
        await asyncio.sleep(seconds / 2)
        asking = _Asking(http, server, began_s)
        answers = [answer async for answer in asking.all(pods)]
        failing = await asking.failing_rules()
    found = query_report(answers)
    _tell(found, failing)
    return {
        "panels": found.panels,
        "panels_without_data": len(found.empty),
        "queries": found.queries,
        "query_errors": len(found.errors) + len(failing),
        "unexplained": found.unexplained,
        "without_data": sorted(f"{dashboard}: {panel}" for dashboard, panel in found.empty),
        "rules": len(list(_rules())),
        "scraped_s": seconds,
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


async def _scraped(http: aiohttp.ClientSession, server: EmbeddedServer, targets: int) -> bool:
    """Whether all are read: Prometheus begins some seconds after its start, and a rate needs what was before."""
    found = await query(http, server, "sum(up)")
    return bool(found) and float(found[0]["value"][1]) == targets


class _Asking:
    """Asks Prometheus about the time since the demo ran."""

    def __init__(self, http: aiohttp.ClientSession, server: EmbeddedServer, began_s: float) -> None:
        self._http, self._server = http, server
        self._span = {"start": str(began_s), "end": str(time.time()), "step": STEP}

    async def all(self, pods: Sequence[tuple[str, str]]) -> AsyncIterator[Answer]:
        """Every query of every dashboard and rule; those about one pod for each of these pods."""
        for path in sorted(FOLDER.glob("*.json")):
            for asked in of_dashboard(json.loads(path.read_text())):
                chosen = [{"namespace": team, "pod": name} for team, name in pods]
                for values in chosen if ONE_POD in asked.expr else ({},):
                    yield await self._answer(path.stem, asked, filled(asked.expr, values))
        for name, rule in _rules():
            yield await self._answer(name, PanelQuery("", rule["expr"]), rule["expr"])

    async def _answer(self, dashboard: str, asked: PanelQuery, expr: str) -> Answer:
        url = f"{self._server.url}/api/v1/query_range"
        async with self._http.post(url, data={"query": expr, **self._span}) as answer:
            body = await answer.json()
        if body["status"] != "success":
            return Answer(dashboard, asked, error=body["error"])
        return Answer(dashboard, asked, numbers(body["data"]["result"]))

    async def failing_rules(self) -> dict[str, str]:
        """The rules that Prometheus itself could not evaluate, with its words."""
        async with self._http.get(f"{self._server.url}/api/v1/rules") as answer:
            groups = (await answer.json())["data"]["groups"]
        return {
            rule["name"]: rule["lastError"]
            for group in groups
            for rule in group["rules"]
            if rule.get("lastError")
        }


def _rules() -> Iterator[tuple[str, Json]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path.stem, rule


def _tell(found: QueryReport, failing: dict[str, str]) -> None:
    for (dashboard, panel), why in sorted(found.empty.items()):
        say(f"no data: {dashboard}: {panel}: {why or 'it gives no reason'}")
    for name, words in {**found.errors, **failing}.items():
        say(f"error: {name}: {words}")


def main() -> int:
    """Ask everything, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboards", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="70 s of scrapes in place of 150")
    given = parser.parse_args()
    try:
        debian_program(PACKAGE, "prometheus")
        alertmanager.program()
    except MissingPackageError as error:
        say(str(error))
        return 1
    ensure(assets.NEEDED)
    with tempfile.TemporaryDirectory(prefix="plimsoll-dashboards-") as folder:
        found = asyncio.run(run(QUICK_S if given.quick else FULL_S, Path(folder)))
    print(json.dumps(found))
    return 1 if found["query_errors"] or found["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
