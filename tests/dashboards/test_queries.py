"""Prometheus takes every query of every dashboard, with values for its variables."""

import json
from pathlib import Path

import aiohttp

from bench.dashboards.queries import filled, of_dashboard
from dashboards.output import FOLDER
from tests.deploy.test_rules import FILES
from tests.servers.prometheus import QueryError, prometheus, query


async def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    """Each is PromQL that Prometheus evaluates, beside the rules. `make bench-dashboards` asks them over data."""
    boards = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    refused = {}
    async with prometheus(tmp_path, [], FILES) as server, aiohttp.ClientSession() as http:
        for uid, board in boards.items():
            for one in of_dashboard(board):
                try:
                    await query(http, server, filled(one.expr, {"namespace": "team", "pod": "train"}))
                except QueryError as error:
                    refused[uid, one.panel] = str(error)
    assert not refused
