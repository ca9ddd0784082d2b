"""The queries of dashboards and rules, as Prometheus takes them, and what its answers say of the panels.

What always holds: a panel has data if any of its queries had a number at any moment of the shown time. A query is
counted once, however many pods it was asked for.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

EVERYTHING: Final = ".*"
"""The value of a variable that nobody has chosen: Grafana's *All*."""

OF_GRAFANA: Final = {"__rate_interval": "20s", "__range": "2m"}
"""Values of Grafana's own variables for a cluster that is minutes old: the time that a rate is taken over, and the
time that is shown."""

_LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query of a panel.

    Attributes:
        panel: the panel's title; empty for the values of a variable.
        expr: as in the dashboard.
        why_empty: the panel's own words on why it may have no data.
    """

    panel: str
    expr: str
    why_empty: str = ""


def of_dashboard(dashboard: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Every query of a dashboard: of its variables, then of its panels."""
    for variable in dashboard["templating"]["list"]:
        found = _LABEL_VALUES.fullmatch(str(variable.get("query", "")))
        if found is not None:
            yield PanelQuery("", f"group by ({found[2]}) ({found[1]})")
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            why = panel["fieldConfig"]["defaults"].get("noValue", "")
            yield PanelQuery(panel["title"], target["expr"], why)


def filled(expr: str, chosen: Mapping[str, str]) -> str:
    """The query with a value for each variable: the chosen one, Grafana's own, or everything."""

    def value(found: re.Match[str]) -> str:
        return OF_GRAFANA.get(found[1]) or chosen.get(found[1], EVERYTHING)

    return re.sub(r"\$\{?(\w+)\}?", value, expr)


@dataclass(frozen=True, slots=True)
class Answer:
    """Prometheus's answer to a query.

    Attributes:
        dashboard: the dashboard's uid, or the name of a file of rules.
        query: the question.
        numbers: how many samples it has that are numbers.
        error: Prometheus' own words, if it refused.
    """

    dashboard: str
    query: PanelQuery
    numbers: int = 0
    error: str = ""


def numbers(result: Iterable[Mapping[str, Any]]) -> int:
    """The samples of a range query's result that are numbers: a histogram without observations has none."""
    return sum(not math.isnan(float(value)) for series in result for _, value in series["values"])


@dataclass(frozen=True, slots=True)
class QueryReport:
    """The answers to all queries.

    Attributes:
        panels: how many there are.
        empty: the panels without data as (dashboard, panel), and the reason that each gives; "" for none.
        queries: how many were asked.
        errors: those that were refused, with Prometheus' words.
    """

    panels: int
    empty: dict[tuple[str, str], str]
    queries: int
    errors: dict[str, str]

    @property
    def unexplained(self) -> list[str]:
        """Panels without data that do not say why."""
        return [f"{dashboard}: {panel}" for (dashboard, panel), why in self.empty.items() if not why]


def query_report(answers: Iterable[Answer]) -> QueryReport:
    """Judge the answers of all dashboards and rules. Rules and variables are queries, and no panels."""
    panels: dict[tuple[str, str], int] = {}
    reasons: dict[tuple[str, str], str] = {}
    asked: set[tuple[str, str]] = set()
    errors: dict[str, str] = {}
    for one in answers:
        asked.add((one.dashboard, one.query.expr))
        if one.error:
            errors[one.query.expr] = one.error
        if one.query.panel:
            key = (one.dashboard, one.query.panel)
            panels[key] = panels.get(key, 0) + one.numbers
            reasons[key] = one.query.why_empty
    empty = {key: reasons[key] for key, count in panels.items() if not count}
    return QueryReport(len(panels), empty, len(asked), errors)
