"""*Cluster*: where is room, and what waits and why."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import GPU_INFO, Kind, Panel, Query, add, new_dashboard, variable

MODEL: Final = f'({GPU_INFO} and on (gpu) plimsoll_gpu_info{{model=~"$model"}})'
"""The GPUs of the chosen models, each as 1."""


def _of_gpus(expr: str) -> str:
    """An expression with one series per GPU, of the chosen models, with node, index and model."""
    return f"{MODEL} * on (gpu) group_left () max by (gpu) ({expr})"


USABLE: Final = _of_gpus("plimsoll_gpu_usable_bytes")
USED: Final = _of_gpus("plimsoll_gpu_used_bytes")
PROMISED: Final = _of_gpus("plimsoll_placer_promised_bytes or plimsoll_gpu_usable_bytes * 0")
SHARE: Final = _of_gpus("plimsoll_placer_promised_share_ratio or plimsoll_gpu_usable_bytes * 0")
BUSY: Final = _of_gpus("gpu:plimsoll_busy:ratio")
TAKEN: Final = f"(({PROMISED}) > ({USED}) or ({USED}))"
"""The larger of promised and measured memory: what decisions count as taken."""

NOBODY: Final = "no pod was placed or refused in this time"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = new_dashboard(
        "Plimsoll / Cluster", "Where is room on the cluster's GPUs, and which pods wait and why."
    )
    made.with_variable(variable("model", "GPU model", "label_values(plimsoll_gpu_info, model)"))
    add(made, "Now", *TOTAL_PANELS)
    add(made, "Where is room", *ROOM_PANELS)
    add(made, "What waits, and why", *WAITING_PANELS)
    add(made, "What is wrong", *FAULT_PANELS)
    return made


def _stat(title: str, asks: str, expr: str, unit: str = "percentunit", *, low: float = 0.85) -> Panel:
    steps = ((low, "yellow"), (0.97, "red")) if unit == "percentunit" else ()
    return Panel(title, asks, Kind.STAT, (Query(expr),), unit, width=4, height=4, steps=steps)


TOTAL_PANELS: Final = (
    _stat("GPUs", "How many GPUs do monitors report?", f"count({MODEL})", "short"),
    _stat(
        "Memory promised",
        "How much of the usable memory do pods' declarations take? New pods fit into the rest.",
        f"sum({PROMISED}) / sum({USABLE})",
    ),
    _stat(
        "Memory measured",
        "How much of the usable memory do processes hold? Far below what is promised: declarations are "
        "too large.",
        f"sum({USED}) / sum({USABLE})",
    ),
    _stat(
        "Compute promised",
        "How much of the GPUs' time is guaranteed to pods? New requests fit into the rest.",
        f"sum({SHARE}) / count({MODEL})",
    ),
    _stat("Compute used", "How much of the time do the GPUs work?", f"avg({BUSY})", low=2),
    Panel(
        "Waiting pods",
        "How many pods have no node yet?",
        Kind.STAT,
        (Query('sum(plimsoll_placer_waiting_pods{place!="given_up"})'),),
        width=4,
        height=4,
        steps=((1, "yellow"),),
    ),
)


ROOM_PANELS: Final = (
    Panel(
        "Largest free piece of memory",
        "Would a pod of this size fit on some GPU of the model? Free is usable less what is promised or"
        " measured, whichever is more.",
        Kind.BARS,
        (Query(f"max by (model) (({USABLE}) - {TAKEN})", "{{model}}"),),
        "bytes",
    ),
    Panel(
        "Memory",
        "Does the cluster fill up? New pods fit while promised is below usable.",
        Kind.LINES,
        (
            Query(f"sum({USABLE})", "usable"),
            Query(f"sum({PROMISED})", "promised"),
            Query(f"sum({USED})", "measured"),
        ),
        "bytes",
        edges=("usable",),
    ),
    Panel(
        "Compute, in GPUs",
        "Are there too few GPUs, or are they promised and not used?",
        Kind.LINES,
        (
            Query(f"count({MODEL})", "GPUs"),
            Query(f"sum({SHARE})", "promised"),
            Query(f"sum({BUSY})", "used"),
        ),
        edges=("GPUs",),
    ),
    Panel(
        "GPUs",
        "Which GPU has room? Sort by a column. `free` and `share free` are what a new pod can be promised.",
        Kind.TABLE,
        (
            Query(f"({USABLE}) - {TAKEN}", "free"),
            Query(f"1 - ({SHARE})", "share free"),
            Query(USABLE, "usable"),
            Query(PROMISED, "promised"),
            Query(USED, "measured"),
            Query(BUSY, "busy"),
        ),
        width=24,
        height=9,
        columns=(("node", "node"), ("index", "GPU"), ("model", "model"), ("gpu", "UUID")),
        links=(
            ("node", "/d/plimsoll-node?var-node=${__value.raw}&${__url_time_range}"),
            ("gpu", "/d/plimsoll-node?var-gpu=${__value.raw}&${__url_time_range}"),
        ),
        units=(
            *((name, "bytes") for name in ("free", "usable", "promised", "measured")),
            *((name, "percentunit") for name in ("share free", "busy")),
        ),
    ),
)


_WAITED: Final = "sum by (le) (rate(plimsoll_placer_pending_bound_seconds_bucket[$__rate_interval]))"
_QUANTILE: Final = f"histogram_quantile({{}}, {_WAITED})"
WAITING_PANELS: Final = (
    Panel(
        "Pods without a node",
        "How many pods wait, and at which step? `parked` fit nowhere, `given_up` are malformed.",
        Kind.STACKED,
        (Query("max by (place) (plimsoll_placer_waiting_pods)", "{{place}}"),),
    ),
    Panel(
        "Why parked pods wait",
        "What is short? A pod may have several causes.",
        Kind.BARS,
        (Query("max by (cause) (plimsoll_placer_parked_pods) > 0", "{{cause}}"),),
        empty="no pod is parked for a cause",
    ),
    Panel(
        "From first sight to bound",
        "How long do pods wait for a place?",
        Kind.LINES,
        (Query(_QUANTILE.format(0.5), "half"), Query(_QUANTILE.format(0.99), "99 of 100")),
        "s",
        empty=NOBODY,
    ),
    Panel(
        "Decisions",
        "How often are pods placed, and how often refused?",
        Kind.LINES,
        (
            Query(
                "sum by (outcome) (rate(plimsoll_placer_decisions_total[$__rate_interval]))",
                "{{outcome}}",
            ),
        ),
        "ops",
        width=12,
        empty=NOBODY,
    ),
    Panel(
        "Preempted pods",
        "Are pods deleted to make room for others of higher priority?",
        Kind.LINES,
        (Query("sum(increase(plimsoll_placer_preempted_pods_total[$__rate_interval]))", "preempted"),),
        width=12,
    ),
)


FAULT_PANELS: Final = (
    Panel(
        "Nodes that do not report",
        "Which nodes get no pod because their monitors are silent?",
        Kind.STAT,
        (Query("max(plimsoll_placer_silent_nodes)"),),
        width=4,
        steps=((1, "red"),),
    ),
    Panel(
        "Pods past their lines",
        "How many pods hold more memory than they declared, in spite of enforcement?",
        Kind.STAT,
        (Query("max(plimsoll_placer_violating_pods)"),),
        width=4,
        steps=((1, "red"),),
    ),
    Panel(
        "GPUs that are not healthy",
        "Are GPUs lost to errors? `fatal` ones take no pod.",
        Kind.LINES,
        (Query("max by (class) (plimsoll_placer_unhealthy_gpus)", "{{class}}"),),
        width=8,
    ),
    Panel(
        "Alerts",
        "Which alerts of Prometheus' rules fire? docs/runbooks has a page for each. Those of `plimsoll alerts` "
        "are in Alertmanager alone.",
        Kind.TABLE,
        (Query('ALERTS{alertname=~"Plimsoll.*", alertstate="firing"}', "fires"),),
        width=8,
        empty="no alert fires",
        columns=(
            ("alertname", "alert"),
            ("severity", "severity"),
            ("node", "node"),
            ("namespace", "namespace"),
            ("pod", "pod"),
        ),
    ),
)
