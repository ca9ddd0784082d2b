"""The queries of dashboards and rules, as Prometheus takes them: with values for the variables of Grafana."""

import re
from collections.abc import Iterator, Mapping
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
