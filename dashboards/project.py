"""*Plimsoll itself*: latencies, lag, drift, leader, and what the parts cost."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import Kind, Panel, Query, add, new_dashboard

RATE: Final = "[$__rate_interval]"
WHICH: Final = "{{job}} {{instance}}"
OURS: Final = "* on (job, instance) group_left (part) plimsoll_build_info"
"""Restricts `process_*` to Plimsoll's parts, and names the part."""

NO_POOL: Final = "no pool's controller runs"
NO_WEBHOOK: Final = "no webhook runs, or none was asked in this time"
NO_EXTENDER: Final = "kube-scheduler does not use the placer as its extender"
NO_ALERTS: Final = "no alert fires, or `plimsoll alerts` does not run"
NO_POD: Final = "no pod was placed in this time"


def _quantiles(metric: str, by: str = "") -> tuple[Query, ...]:
    """The median, and the 99th of 100."""
    labels = f"{by}, le" if by else "le"
    return tuple(
        Query(
            f"histogram_quantile({part}, sum by ({labels}) (rate({metric}_bucket{RATE}))) >= 0",
            f"{name}{' {{' + by + '}}' if by else ''}",
        )
        for part, name in ((0.5, "half"), (0.99, "99 of 100"))
    )


def dashboard() -> Dashboard:
    """The dashboard."""
    made = new_dashboard(
        "Plimsoll / Plimsoll itself", "Are Plimsoll's own parts well, quick, and up to date."
    )
    add(made, "Are the parts there", *PART_PANELS)
    add(made, "Is the placer quick", *LATENCY_PANELS)
    add(made, "Is the placer up to date", *FRESHNESS_PANELS)
    add(made, "Webhook, extender and pool", *WEBHOOK_AND_POOL_PANELS)
    add(made, "Alerts by events", *ALERT_PANELS)
    add(made, "What it costs", *COST_PANELS)
    return made


def _stat(title: str, asks: str, expr: str) -> Panel:
    steps = ((1, "green"),)
    return Panel(title, asks, Kind.STAT, (Query(expr),), width=4, height=5, steps=steps, base="red")


PART_PANELS: Final = (
    Panel(
        "Parts",
        "Which parts run, in which version?",
        Kind.TABLE,
        (Query("count by (part, version) (plimsoll_build_info)", "processes"),),
        width=8,
        height=5,
        columns=(("part", "part"), ("version", "version")),
    ),
    _stat("Leaders", "Does exactly one placer lead?", "sum(plimsoll_placer_leader)"),
    _stat(
        "Placers that reach NATS",
        "Can the placers read reports?",
        "sum(plimsoll_placer_nats_up)",
    ),
    _stat("Monitors that reach NATS", "Can the nodes report?", "sum(plimsoll_nats_up)"),
    _stat("Redis", "Is the published list kept?", "min(plimsoll_placer_redis_up)"),
    Panel(
        "Changes of the leader",
        "Does the Lease go from one placer to another?",
        Kind.LINES,
        (
            Query("max(plimsoll_placer_lease_transitions)", "changes so far"),
            Query(f"sum(increase(plimsoll_placer_lease_failures_total{RATE}))", "renewals without an answer"),
        ),
    ),
    Panel(
        "Scrapes that fail",
        "Which part does not answer Prometheus?",
        Kind.LINES,
        (Query("1 - (up and on (job, instance) plimsoll_build_info)", WHICH),),
        maximum=1,
    ),
)


LATENCY_PANELS: Final = (
    Panel(
        "Decisions",
        "How long does a decision take?",
        Kind.LINES,
        _quantiles("plimsoll_placer_decision_seconds"),
        "s",
        empty=NO_POD,
    ),
    Panel(
        "Binds",
        "How long does the API server take for a Binding?",
        Kind.LINES,
        _quantiles("plimsoll_placer_bind_seconds"),
        "s",
        empty=NO_POD,
    ),
    Panel(
        "In the queue",
        "How long do pods stand ready before they are tried? Above a second the placer is overloaded.",
        Kind.LINES,
        _quantiles("plimsoll_placer_queue_wait_seconds"),
        "s",
        empty=NO_POD,
    ),
    Panel(
        "GPUs read per decision",
        "Do decisions stay cheap as the cluster grows? 20 at most is usual.",
        Kind.LINES,
        (
            Query(
                f"sum(rate(plimsoll_placer_gpus_read_total{RATE})) / "
                f"(sum(rate(plimsoll_placer_decisions_total{RATE})) > 0)",
                "GPUs",
            ),
        ),
        empty=NO_POD,
    ),
    Panel(
        "Binds without success",
        "Why do Bindings fail?",
        Kind.LINES,
        (Query(f"sum by (result) (increase(plimsoll_placer_bind_failures_total{RATE}))", "{{result}}"),),
        empty="every bind succeeded",
    ),
    Panel(
        "News of pods",
        "Do events and conditions of waiting pods lag behind?",
        Kind.LINES,
        (
            Query("sum(plimsoll_placer_news_waiting)", "waiting"),
            Query(f"sum(increase(plimsoll_placer_news_dropped_total{RATE}))", "dropped"),
        ),
    ),
)


FRESHNESS_PANELS: Final = (
    Panel(
        "Age of reports",
        "Which nodes does the placer know least about? A quiet node reports once a heartbeat (60 s).",
        Kind.LINES,
        (
            Query(
                "topk(5, time() - max by (node) (plimsoll_placer_last_report_timestamp_seconds))",
                "{{node}}",
            ),
        ),
        "s",
        steps=((180, "red"),),
    ),
    Panel(
        "Reports",
        "How many reports come, and are some stale or damaged?",
        Kind.LINES,
        (Query(f"sum by (outcome) (rate(plimsoll_placer_reports_total{RATE}))", "{{outcome}}"),),
        "ops",
    ),
    Panel(
        "Workloads that are known",
        "For how many workloads has the placer learned what their best-effort pods need?",
        Kind.LINES,
        (Query("max(plimsoll_placer_learned_owners)", "workloads"),),
    ),
    Panel(
        "Late reports by node",
        "Do two monitors report as one node? They do where a line stays above 0.",
        Kind.LINES,
        (
            Query(f"sum by (node) (increase(plimsoll_placer_late_reports_total{RATE})) > 0", "{{node}}"),
            Query(f"sum by (node) (increase(plimsoll_foreign_reports_total{RATE})) > 0", "foreign, {{node}}"),
        ),
        empty="no report was late",
    ),
    Panel(
        "Drift",
        "Does the ledger differ from the API server? A value other than 0 is a bug.",
        Kind.LINES,
        (
            Query("max(plimsoll_placer_drift_bytes)", "bytes"),
            Query("max(plimsoll_placer_drift_pods)", "pods"),
        ),
        steps=((1, "red"),),
    ),
    Panel(
        "Events that wait on nodes",
        "Do events reach NATS, and announcements the monitor?",
        Kind.LINES,
        (
            Query("sum(plimsoll_outbox_entries)", "events for NATS"),
            Query("sum(plimsoll_broker_journal_entries)", "announcements for monitors"),
        ),
    ),
    Panel(
        "Lost and rebuilt",
        "Were placement events dropped, or the list in Redis filled anew?",
        Kind.LINES,
        (
            Query(f"sum(increase(plimsoll_placer_unpublished_total{RATE}))", "events dropped"),
            Query(f"sum(increase(plimsoll_placer_refills_total{RATE}))", "list filled"),
        ),
    ),
)


WEBHOOK_AND_POOL_PANELS: Final = (
    Panel(
        "Reviews",
        "How long does the creation of a pod wait for the webhook?",
        Kind.LINES,
        _quantiles("plimsoll_webhook_review_seconds"),
        "s",
        empty=NO_WEBHOOK,
    ),
    Panel(
        "Answers of the webhook",
        "How many pods are completed, and how many refused?",
        Kind.LINES,
        (Query(f"sum by (outcome) (rate(plimsoll_webhook_reviews_total{RATE}))", "{{outcome}}"),),
        "ops",
        empty=NO_WEBHOOK,
    ),
    Panel(
        "Certificate",
        "How long is the webhook's certificate good? It is renewed long before its end.",
        Kind.STAT,
        (Query("min((plimsoll_webhook_certificate_expiry_timestamp_seconds > 0) - time())"),),
        "s",
        empty=NO_WEBHOOK,
    ),
    Panel(
        "Extender",
        "How long does kube-scheduler wait for the placer?",
        Kind.LINES,
        _quantiles("plimsoll_placer_extender_seconds", "verb"),
        "s",
        empty=NO_EXTENDER,
    ),
    Panel(
        "GPUs of the pool",
        "How many GPUs were taken from device plugins, and does one lack its reservation?",
        Kind.LINES,
        (
            Query("max by (phase) (plimsoll_pool_gpus)", "{{phase}}"),
            Query("max(plimsoll_pool_lost_gpus)", "without a reservation"),
        ),
        empty=NO_POOL,
    ),
    Panel(
        "Taking a GPU",
        "How long does the pool take for another GPU?",
        Kind.LINES,
        _quantiles("plimsoll_pool_acquire_seconds"),
        "s",
        empty=NO_POOL,
    ),
)


ALERT_PANELS: Final = (
    Panel(
        "Alerts that fire",
        "Which states does `plimsoll alerts` keep firing in Alertmanager?",
        Kind.LINES,
        (Query("max by (alertname) (plimsoll_alerts_firing)", "{{alertname}}"),),
        width=12,
        empty=NO_ALERTS,
    ),
    Panel(
        "Alerts on their way",
        "Does Alertmanager take them, and is the stream of events read?",
        Kind.LINES,
        (
            Query("max by (alertmanager) (plimsoll_alerts_waiting)", "waiting for {{alertmanager}}"),
            Query("max(plimsoll_alerts_bus_away_seconds)", "seconds without the stream"),
        ),
        width=12,
        empty=NO_ALERTS,
    ),
)


COST_PANELS: Final = (
    Panel(
        "CPU",
        "How much of a core does each part take? The mean of its processes.",
        Kind.LINES,
        (Query(f"avg by (part) (rate(process_cpu_seconds_total{RATE}) {OURS})", "{{part}}"),),
        "percentunit",
    ),
    Panel(
        "Memory",
        "How much memory does each part take? The largest of its processes.",
        Kind.LINES,
        (Query(f"max by (part) (process_resident_memory_bytes {OURS})", "{{part}}"),),
        "bytes",
    ),
    Panel(
        "Open files",
        "Does a part come near its limit of open files?",
        Kind.LINES,
        (Query(f"max by (part) (process_open_fds / process_max_fds {OURS})", "{{part}}"),),
        "percentunit",
        maximum=1,
    ),
)
