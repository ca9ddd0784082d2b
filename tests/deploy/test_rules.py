"""Prometheus' own `promtool` accepts the rules, and each alert fires when it must and stays quiet otherwise."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from plimsoll.gpu_events import HealthClass
from plimsoll_alerts.core.book import AlertBook, StreamPlace
from plimsoll_alerts.settings import RUNBOOKS as RUNBOOKS_PATH
from tests.deploy.alert_cases import CASES, CONTAINER, HOUR, Case
from tests.plimsoll_alerts.facts import TIME, A, B, Facts, ill, task
from tests.servers.prometheus import promtool
from tools.chart import CHART, render
from tools.metrics import described

RULES: Final = CHART / "rules"
FILES: Final = tuple(sorted(RULES.glob("*.yaml")))
RUNBOOKS: Final = CHART.parents[1] / "docs" / "runbooks"
FOREIGN: Final = {"up", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}
"""Names of series that others serve."""


GROUPS: Final[list[dict[str, Any]]] = [
    group for path in FILES for group in yaml.safe_load(path.read_text())["groups"]
]


def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    return [rule for group in GROUPS for rule in group["rules"]]


ALERTS: Final = {rule["alert"]: rule for rule in rules() if "alert" in rule}


WALL_S: Final = 2e9
"""A moment after the facts' epochs, in seconds since 1970."""


def of_events() -> dict[str, str]:
    """The severity of each alert that `plimsoll alerts` can send, by its name."""
    facts, book = Facts(heartbeat_s=60.0), AlertBook()
    ills = (ill(A, HealthClass.FATAL), ill(B, HealthClass.DEGRADED))
    bodies = (
        facts.report(task(pid=71), task(pid=72), health=ills, short=(A,)),
        facts.limit("violated", line_bytes=1),
        facts.limit("unenforced", pid=72),
        facts.foreign(),
    )
    for seq, body in enumerate(bodies):
        book.take(body, StreamPlace(seq, 0.0), WALL_S)
    book.bus_away_since = TIME
    sent = [dict(labels) for labels in book.firing(now_s=181.0)]
    return {labels["alertname"]: labels["severity"] for labels in sent}


def run(tmp_path: Path, *tests: dict[str, Any], alert: str = "") -> None:
    """Run unit tests by `promtool`, and show its words if one fails.

    Args:
        tmp_path: the folder of its files.
        tests: the unit tests.
        alert: the only alert beside the recorded series, as each rule costs `promtool` time at each minute.
    """
    kept = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", alert) == alert]}
        for group in GROUPS
    ]
    rules_file, path = tmp_path / "rules.yaml", tmp_path / "test.yaml"
    rules_file.write_text(yaml.safe_dump({"groups": kept}))
    path.write_text(yaml.safe_dump({"rule_files": [str(rules_file)], "tests": list(tests)}))
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout


def given(series: dict[str, str]) -> list[dict[str, str]]:
    """Series as `promtool` takes them."""
    return [{"series": name, "values": values} for name, values in series.items()]


def quiet(case: Case) -> list[dict[str, Any]]:
    """Tests in which the alert fires at no minute of an hour or two."""
    last = case.minute + HOUR - 1
    firing = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}[{last + 1}m]'
    check = {"expr": f"count_over_time({firing})", "exp_samples": [], "eval_time": f"{last}m"}
    return [
        {"interval": "1m", "input_series": given(series), "promql_expr_test": [check]}
        for series in case.quiet
    ]


def test_promtool_accepts_the_rules() -> None:
    """No rule is wrong, and none is there twice."""
    done = promtool("check", "rules", "--lint=all", *map(str, FILES))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{next(iter(case.fires))[:30]}")
def test_an_alert_fires_and_stays_quiet(case: Case, tmp_path: Path) -> None:
    """It fires with the labels that its texts name, and at no minute while nothing is wrong."""
    rule = ALERTS[case.alert]
    labels = {"alertname": case.alert, "alertstate": "firing", **rule["labels"], **case.labels}
    shown = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    fires = {
        "interval": "1m",
        "input_series": given(case.fires),
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}',
                "eval_time": f"{case.minute}m",
                "exp_samples": [{"labels": f"ALERTS{{{shown}}}", "value": 1}],
            }
        ],
    }
    run(tmp_path, fires, *quiet(case), alert=case.alert)


def test_each_alert_has_a_test_and_a_page() -> None:
    """Each alert has cases here, a severity, texts, and a page; no page is left over."""
    assert {case.alert for case in CASES} == set(ALERTS)
    # The rest are alerts that `plimsoll alerts` alone sends.
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*ALERTS, *of_events(), "README"}
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        annotations = rule["annotations"]
        assert annotations["summary"]
        assert annotations["description"]
        assert annotations["runbook_url"] == f"{RUNBOOKS_PATH}/{name}.md"
        assert f"Severity: {rule['labels']['severity']}." in (RUNBOOKS / f"{name}.md").read_text()
        assert f"({name}.md) | {rule['labels']['severity']} |" in (RUNBOOKS / "README.md").read_text()


def test_an_alert_of_metrics_and_of_events_is_one_alert() -> None:
    """The rules of states.yaml have the names and severities that `plimsoll alerts` gives, and no other rule does."""
    states = yaml.safe_load((RULES / "states.yaml").read_text())["groups"]
    severities = {rule["alert"]: rule["labels"]["severity"] for group in states for rule in group["rules"]}
    sent = of_events()
    assert sent.pop("PlimsollBusAway") == "critical"  # only the service can know
    assert severities == sent
    assert {name for name in ALERTS if name in of_events()} == severities.keys()
    index = (RUNBOOKS / "README.md").read_text()
    for name, severity in of_events().items():
        assert f"({name}.md) | {severity} |" in index
        assert f"Severity: {severity}." in (RUNBOOKS / f"{name}.md").read_text()


def test_the_chart_installs_no_rule_for_what_the_service_sends() -> None:
    """With `alerts.enabled`, the rules of states.yaml are left out; without it, all rules are there."""

    def installed(values: dict[str, Any]) -> set[str]:
        rendered = render({"prometheusRule": {"enabled": True}, **values})["monitoring/rules.yaml"]
        groups = [group for one in yaml.safe_load_all(rendered) for group in one["spec"]["groups"]]
        return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}

    service = {"alerts": {"enabled": True, "alertmanagerUrl": "http://alertmanager:9093"}}
    assert installed({}) == ALERTS.keys()
    assert installed(service) == ALERTS.keys() - of_events().keys()


def test_texts_name_labels_that_the_alert_has() -> None:
    """Each label in a text is one of the alert in some case, so that no text has a gap."""
    for name, rule in ALERTS.items():
        known = {label for case in CASES if case.alert == name for label in case.labels}
        known |= {"instance"} if name == "PlimsollNatsDown" else set()  # a target's own
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert named <= known, name


def test_rules_ask_for_metrics_that_are_served() -> None:
    """Each metric in a rule is one of ours, of a recording rule, or of a program that docs/metrics.md names."""
    series = {one.name for metrics in described().values() for one in metrics}
    known = series | {f"{name}_{ending}" for name in series for ending in ("bucket", "sum", "count")}
    known |= {rule["record"] for rule in rules() if "record" in rule} | FOREIGN
    for rule in rules():
        named = set(re.findall(r"\b(?:\w+:)?(?:plimsoll_|DCGM_)[\w:]+|\bup\b", rule["expr"]))
        assert named <= known, rule["expr"]


def test_a_container_behind_an_open_gate_has_the_rest_of_its_gpu(tmp_path: Path) -> None:
    """A metered container has its 30 % of a GPU that is busy all the time, and the other one 70 %."""
    other = CONTAINER.replace('"train"', '"serve"').replace('"u"', '"v"')
    series = {
        'plimsoll_gpu_busy_seconds_total{node="n", gpu="g"}': f"0+60x{HOUR}",
        f'plimsoll_hook_container_info{{{CONTAINER}, gpu="g", whole="false"}}': f"1x{HOUR}",
        f'plimsoll_hook_container_info{{{other}, gpu="g", whole="false"}}': f"1x{HOUR}",
        f"plimsoll_hook_processes{{{CONTAINER}}}": f"1x{HOUR}",
        f"plimsoll_hook_processes{{{other}}}": f"1x{HOUR}",
        f"plimsoll_hook_share_used_ratio{{{CONTAINER}}}": f"0.3x{HOUR}",
        f"plimsoll_hook_share_requested_ratio{{{CONTAINER}}}": f"0.5x{HOUR}",
        f"plimsoll_hook_share_requested_ratio{{{other}}}": f"0.2x{HOUR}",
    }
    used = [
        {"labels": f"container:plimsoll_used:ratio{{{CONTAINER}}}", "value": 0.3},
        {"labels": f"container:plimsoll_used:ratio{{{other}}}", "value": 0.7},
    ]
    promised = [{"labels": 'namespace:plimsoll_promised_gpus:sum{namespace="team"}', "value": 0.7}]
    at = {"eval_time": "10m"}
    checks = [
        {"expr": "container:plimsoll_used:ratio", "exp_samples": used, **at},
        {"expr": "namespace:plimsoll_promised_gpus:sum", "exp_samples": promised, **at},
    ]
    run(tmp_path, {"interval": "1m", "input_series": given(series), "promql_expr_test": checks})


@pytest.mark.parametrize("spelling", ["UUID", "uuid"])
def test_dcgm_exporters_series_are_joined_in_both_spellings(spelling: str, tmp_path: Path) -> None:
    """A temperature gets our label, whichever case the UUID's label has."""
    series = {f'DCGM_FI_DEV_GPU_TEMP{{gpu="0", {spelling}="GPU-1", Hostname="n"}}': f"61x{HOUR}"}
    check = {
        "expr": "gpu:plimsoll_temperature:celsius",
        "eval_time": "5m",
        "exp_samples": [{"labels": 'gpu:plimsoll_temperature:celsius{gpu="GPU-1"}', "value": 61}],
    }
    run(tmp_path, {"interval": "1m", "input_series": given(series), "promql_expr_test": [check]})
