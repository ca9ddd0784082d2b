"""The committed dashboards are what the generator gives, are of Grafana's schema, and ask for served metrics."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from bench.dashboards.queries import of_dashboard
from dashboards.output import DASHBOARDS, FOLDER, outputs
from tests.deploy.test_rules import FOREIGN, rules
from tools.chart import CHART, DEPLOY, render
from tools.metrics import described

COMMITTED: Final = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
COLUMNS: Final = 24
"""The width of Grafana's grid."""


def panels(uid: str) -> Iterator[dict[str, Any]]:
    """The panels of a dashboard, without its rows."""
    return (panel for panel in COMMITTED[uid]["panels"] if panel["type"] != "row")


def test_the_committed_files_are_the_generators() -> None:
    """`python -m dashboards` changes nothing, and leaves no other file."""
    assert {path: path.read_text() for path in sorted(FOLDER.iterdir())} == outputs()


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_a_dashboard_is_of_grafanas_schema(uid: str) -> None:
    """Grafana's own types read it whole: what they write again is the same."""
    register_default_plugins()
    read = Dashboard.from_json(json.loads(json.dumps(COMMITTED[uid])))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == COMMITTED[uid]


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_each_panel_is_complete(uid: str) -> None:
    """Each panel has a title, a question, a unit, queries, an id of its own, and the dashboard's data source."""
    assert COMMITTED[uid]["uid"] == uid
    for panel in panels(uid):
        assert panel["title"]
        assert "?" in panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    numbers = [panel["id"] for panel in COMMITTED[uid]["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_panels_do_not_overlap(uid: str) -> None:
    """Each cell of Grafana's grid belongs to one panel or row at most."""
    taken: set[tuple[int, int]] = set()
    for panel in COMMITTED[uid]["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_queries_name_variables_and_metrics_that_exist(uid: str) -> None:
    """Each variable is one of the dashboard or of Grafana, and each metric is served or recorded."""
    own = {one["name"] for one in COMMITTED[uid]["templating"]["list"]}
    grafanas = {"__rate_interval", "__range", "__value", "__url_time_range", "__data"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(COMMITTED[uid]["panels"]))) <= own | grafanas
    series = {one.name for metrics in described().values() for one in metrics}
    known = series | {f"{name}_{ending}" for name in series for ending in ("bucket", "sum", "count")}
    known |= {rule["record"] for rule in rules() if "record" in rule} | FOREIGN
    for query in of_dashboard(COMMITTED[uid]):
        named = set(re.findall(r"\b(?:\w+:)?plimsoll_[\w:]+|\bprocess_\w+|\bDCGM_\w+", query.expr))
        assert named <= known, query.expr


def test_links_lead_to_dashboards_and_their_variables() -> None:
    """Each address in a table names a dashboard that is here, and variables that it has."""
    for uid, variables in re.findall(r'"/d/([a-z-]+)\?([^"]*)"', json.dumps(list(COMMITTED.values()))):
        own = {one["name"] for one in COMMITTED[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", variables)) <= own


def test_the_chart_and_the_compose_file_ship_them() -> None:
    """The chart makes a ConfigMap of each and a PrometheusRule of each file; Compose mounts both folders."""
    rendered = render({"dashboards": {"enabled": True}, "prometheusRule": {"enabled": True}})
    maps = list(yaml.safe_load_all(rendered["monitoring/dashboards.yaml"]))
    shipped = {name: json.loads(text) for one in maps for name, text in one["data"].items()}
    assert shipped == {f"{uid}.json": board for uid, board in COMMITTED.items()}
    installed = list(yaml.safe_load_all(rendered["monitoring/rules.yaml"]))
    groups = [group for one in installed for group in one["spec"]["groups"]]
    assert [rule for group in groups for rule in group["rules"]] == rules()
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    mounted = {
        one.split(":")[0]: one.split(":")[1]
        for name in ("grafana", "prometheus")
        for one in services[name]["volumes"]
    }
    [provider] = yaml.safe_load((DEPLOY / "compose" / "dashboards.yaml").read_text())["providers"]
    assert mounted["../chart/dashboards"] == provider["options"]["path"]
    assert (DEPLOY / "compose" / "../chart/dashboards").resolve() == FOLDER
    assert mounted["../chart/rules"] == "/etc/prometheus/rules"
    assert (CHART / "rules").is_dir()
