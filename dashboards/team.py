"""*Team*: by namespace, what is promised and used, GPU-hours, and denials."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import CONTAINER, Kind, Panel, Query, add, new_dashboard, variable

TEAM: Final = '{namespace=~"$namespace"}'
MEMORY: Final = f"max by ({CONTAINER}, gpu) (plimsoll_hook_%s_bytes{TEAM})"
SAMPLES_PER_HOUR: Final = 60
"""The samples of an hour in sub-queries with a step of a minute."""

POD_PAGE: Final = (
    "/d/plimsoll-pod?var-namespace=${__data.fields.namespace}&var-pod=${__value.raw}&${__url_time_range}"
)

HOURS: Final = f"sum_over_time(namespace:plimsoll_%s_gpus:sum{TEAM}[$__range:1m]) / {SAMPLES_PER_HOUR}"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = new_dashboard(
        "Plimsoll / Team", "What each namespace was promised, what it uses, and what it lacks."
    )
    made.with_variable(
        variable("namespace", "Namespace", "label_values(plimsoll_hook_line_bytes, namespace)")
    )
    add(made, "In the shown time", *ACCOUNT_PANELS)
    add(made, "Compute", *COMPUTE_PANELS)
    add(made, "Memory", *MEMORY_PANELS)
    add(made, "What is wrong", *FAULT_PANELS)
    return made


ACCOUNT_PANELS: Final = (
    Panel(
        "GPU-hours",
        "Who takes how much? Promised hours cannot be promised to others; used hours are work. 30 "
        "% of a GPU for ten hours are three GPU-hours. Whole numbers need a shown time of some minutes.",
        Kind.TABLE,
        (
            Query(HOURS % "promised", "promised GPU-hours"),
            Query(HOURS % "used", "used GPU-hours"),
            Query(f"({HOURS % 'used'}) / (({HOURS % 'promised'}) > 0)", "used of promised"),
        ),
        width=12,
        columns=(("namespace", "namespace"),),
        units=(("used of promised", "percentunit"),),
    ),
    Panel(
        "Memory declared and not used",
        "Which pods hold back memory from others? The declaration less the peak of the shown time, the "
        "ten largest.",
        Kind.TABLE,
        (
            Query(
                "topk(10, sum by (namespace, pod) "
                f"({MEMORY % 'line'} - max by ({CONTAINER}, gpu) "
                f"(max_over_time(plimsoll_hook_used_bytes{TEAM}[$__range]))))",
                "not used",
            ),
        ),
        width=12,
        columns=(("namespace", "namespace"), ("pod", "pod")),
        links=(("pod", POD_PAGE),),
        units=(("not used", "bytes"),),
    ),
)


COMPUTE_PANELS: Final = (
    Panel(
        "Promised GPUs",
        "How many GPUs' worth of time is guaranteed to each namespace?",
        Kind.STACKED,
        (Query(f"namespace:plimsoll_promised_gpus:sum{TEAM}", "{{namespace}}"),),
        width=12,
    ),
    Panel(
        "Used GPUs",
        "How many GPUs' worth of time does each namespace use?",
        Kind.STACKED,
        (Query(f"namespace:plimsoll_used_gpus:sum{TEAM}", "{{namespace}}"),),
        width=12,
    ),
)


MEMORY_PANELS: Final = (
    Panel(
        "Promised memory",
        "How much memory do the declarations of each namespace take?",
        Kind.STACKED,
        (Query(f"sum by (namespace) ({MEMORY % 'line'})", "{{namespace}}"),),
        "bytes",
        width=12,
    ),
    Panel(
        "Used memory",
        "How much memory do the containers of each namespace hold?",
        Kind.STACKED,
        (Query(f"sum by (namespace) ({MEMORY % 'used'})", "{{namespace}}"),),
        "bytes",
        width=12,
    ),
)


def _events(title: str, asks: str, metric: str) -> Panel:
    expr = f"sum by (namespace) (increase({metric}{TEAM}[$__rate_interval]))"
    return Panel(title, asks, Kind.LINES, (Query(expr, "{{namespace}}"),))


FAULT_PANELS: Final = (
    _events(
        "Refused allocations",
        "Whose declarations are too small? Each got CUDA's out-of-memory error.",
        "plimsoll_hook_denied_total",
    ),
    _events(
        "Shares not kept",
        "Who wanted the guaranteed time, and got less?",
        "plimsoll_hook_share_unmet_total",
    ),
    _events(
        "Past the line",
        "Whose containers had more than they may?",
        "plimsoll_hook_violated_total",
    ),
)
