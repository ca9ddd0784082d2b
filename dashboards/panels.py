"""A panel as its dashboard declares it, and the builders of Grafana's SDK that make it.

What always holds: each panel reads the data source that the dashboard's variable names. A panel without data shows
the reason that its declaration gives.
"""

import enum
from dataclasses import dataclass
from typing import Any, Final, assert_never

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

CONTAINER: Final = "namespace, pod, uid, container"
"""The labels by which a container's series are the same."""

GPU_INFO: Final = "max by (gpu, node, index, model) (plimsoll_gpu_info)"
"""One series for each GPU, with its node, index and model."""

EDGE: Final = "red"
"""The colour of every line that must not be passed."""


class Kind(enum.Enum):
    """The forms of panels."""

    STAT = "one number"
    LINES = "lines over time"
    STACKED = "areas over time that add up"
    BARS = "a bar for each series, now"
    TABLE = "a row for each series, now"
    STATES = "one state after another over time"


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the name of its series: a legend, or in a table the title of its column."""

    expr: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        asks: the question that it answers, and how to read it.
        unit: Grafana's name of it, such as `bytes` or `percentunit`.
        steps: the values from which on the panel is yellow or red, as (value, colour); lines are drawn there.
        base: the colour below the first step.
        edges: the names of series that are drawn as a line that must not be passed.
        maximum: the end of the axis; None for the data's own.
        empty: why it may have no data; empty where it always has some.
        columns: for a table: label of the series to title of the column; other labels are hidden.
        units: for a table: title of the column to its unit.
        links: for a table: label of the column to the address to which its values lead.
        repeat: the variable for each of whose values the panel is drawn.
    """

    title: str
    asks: str
    kind: Kind
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    height: int = 7
    steps: tuple[tuple[float, str], ...] = ()
    base: str = "green"
    edges: tuple[str, ...] = ()
    maximum: float | None = None
    empty: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    repeat: str = ""


def built(panel: Panel) -> Any:  # noqa: ANN401 - the SDK's builders share no type
    """The SDK's builder of a panel."""
    made = _form(panel)
    made.title(panel.title).description(panel.asks).datasource(SOURCE)
    made.span(panel.width).height(panel.height).unit(panel.unit).min(0)
    if panel.maximum is not None:
        made.max(panel.maximum)
    if panel.empty:
        made.no_value(panel.empty)
    if panel.repeat:
        made.repeat(panel.repeat).repeat_direction("h").max_per_row(4)
    if panel.steps:
        made.thresholds(_thresholds(panel))
    for place, query in enumerate(panel.queries):
        made.with_target(_target(panel, query, chr(ord("A") + place)))
    return made


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(ref).datasource(SOURCE)
    match panel.kind:
        case Kind.LINES | Kind.STACKED | Kind.STATES:
            return target.range().legend_format(query.name)
        case Kind.STAT | Kind.BARS:
            return target.instant().legend_format(query.name)
        case Kind.TABLE:
            return target.instant().format(PromQueryFormat.TABLE)
    assert_never(panel.kind)


def _form(panel: Panel) -> Any:  # noqa: ANN401 - likewise
    match panel.kind:
        case Kind.STAT:
            return _with_last(stat.Panel()).color_scheme(_colors(FieldColorModeId.THRESHOLDS))
        case Kind.LINES | Kind.STACKED:
            return _lines(panel)
        case Kind.BARS:
            return _with_last(bargauge.Panel()).orientation(values.VizOrientation.HORIZONTAL)
        case Kind.TABLE:
            return _table(panel)
        case Kind.STATES:
            made = statetimeline.Panel().merge_values(True).row_height(0.8).line_width(0).fill_opacity(70)
            return made.color_scheme(_colors(FieldColorModeId.THRESHOLDS))
    assert_never(panel.kind)


def _with_last(made: Any) -> Any:  # noqa: ANN401 - likewise
    return made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))


def _lines(panel: Panel) -> timeseries.Panel:
    tooltip = common.VizTooltipOptions().mode(values.TooltipDisplayMode.MULTI)
    legend = common.VizLegendOptions().show_legend(True).display_mode(values.LegendDisplayMode.LIST)
    made = timeseries.Panel().tooltip(tooltip).legend(legend.placement(values.LegendPlacement.BOTTOM))
    made.line_width(2).fill_opacity(40 if panel.kind is Kind.STACKED else 8)
    made.show_points(values.VisibilityMode.NEVER)
    if panel.steps:
        made.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(values.GraphThresholdsStyleMode.DASHED)
        )
    if panel.kind is Kind.STACKED:
        made.stacking(common.StackingConfig().mode(values.StackingMode.NORMAL).group("A"))
    for name in panel.edges:
        style = {"fill": "dash", "dash": [10, 6]}
        made.override_by_name(
            name,
            [
                DynamicConfigValue("color", {"mode": "fixed", "fixedColor": EDGE}),
                DynamicConfigValue("custom.lineStyle", style),
                DynamicConfigValue("custom.fillOpacity", 0),
                DynamicConfigValue("custom.stacking", {"mode": "none", "group": "edges"}),
            ],
        )
    return made


def _table(panel: Panel) -> table.Panel:
    made = table.Panel().filterable(True)
    named = {f"Value #{chr(ord('A') + place)}": query.name for place, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        named = {"Value": panel.queries[0].name}
    shown = [*dict(panel.columns), *named]
    made.transformations(
        [
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": shown}}),
            DataTransformerConfig(
                id_val="organize",
                options={
                    "indexByName": {name: place for place, name in enumerate(shown)},
                    "renameByName": {**dict(panel.columns), **named},
                },
            ),
        ]
    )
    for name, address in panel.links:
        link = {"title": "Show ${__value.text}", "url": address}
        made.override_by_name(dict(panel.columns)[name], [DynamicConfigValue("links", [link])])
    for name, unit in panel.units:
        made.override_by_name(name, [DynamicConfigValue("unit", unit)])
    return made


def _thresholds(panel: Panel) -> board.ThresholdsConfig:
    steps = [Threshold(None, panel.base), *(Threshold(value, color) for value, color in panel.steps)]
    return board.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _colors(mode: FieldColorModeId) -> board.FieldColor:
    return board.FieldColor().mode(mode)


def new_dashboard(title: str, description: str) -> board.Dashboard:
    """A dashboard with the data source's variable, and links to the others."""
    links = board.DashboardLink("Plimsoll").type(DashboardLinkType.DASHBOARDS).tags(["plimsoll"])
    made = board.Dashboard(title).description(description).tags(["plimsoll", "gpu"]).readonly()
    made.time("now-1h", "now").refresh("30s").timezone("browser")
    made.with_variable(board.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    return made.link(links.as_dropdown(True).keep_time(True).include_vars(False))


def variable(name: str, label: str, query: str, *, several: bool = True) -> board.QueryVariable:
    """A variable whose values Prometheus knows: `query` as in `label_values(metric, label)`."""
    made = board.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    return made.multi(True).include_all(True).all_value(".*") if several else made


def add(made: board.Dashboard, row: str, *panels: Panel) -> None:
    """Add a row with these panels."""
    made.with_row(board.Row(row))
    for panel in panels:
        made.with_panel(built(panel))
