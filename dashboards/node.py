"""*Node and GPU*: promised against measured with the line drawn, tasks by state, idle time, health."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import CONTAINER, GPU_INFO, Kind, Panel, Query, add, new_dashboard, variable

GPU: Final = '{node=~"$node", gpu=~"$gpu"}'
NODE: Final = '{node=~"$node"}'
LEGEND: Final = "{{node}} GPU {{index}}"
NAMES: Final = "{{namespace}}/{{pod}} {{container}}"
CHOSEN: Final = f"({GPU_INFO} and on (gpu) plimsoll_gpu_info{GPU})"
"""The chosen GPUs, each as 1."""

DCGM: Final = "needs dcgm-exporter, which reads these of the same GPUs"
WELL: Final = "no error was seen in this time"


def _of_gpus(expr: str) -> str:
    return f"{CHOSEN} * on (gpu) group_left () max by (gpu) ({expr})"


def _of_containers(expr: str) -> str:
    """A container's series per GPU, on the chosen GPUs."""
    return f"max by ({CONTAINER}, gpu) ({expr}) and on (gpu) plimsoll_gpu_info{GPU}"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = new_dashboard(
        "Plimsoll / Node and GPU",
        "What a node's GPUs have promised, what is measured, and whether they are well.",
    )
    made.with_variable(variable("node", "Node", "label_values(plimsoll_gpu_info, node)"))
    made.with_variable(variable("gpu", "GPU", 'label_values(plimsoll_gpu_info{node=~"$node"}, gpu)'))
    add(made, "Is the node there", *PRESENCE_PANELS)
    add(made, "Memory: the line of each GPU", *MEMORY_PANELS)
    add(made, "Compute", *COMPUTE_PANELS)
    add(made, "Tasks", *TASK_PANELS)
    add(made, "Health", *HEALTH_PANELS)
    return made


def _up(title: str, asks: str, metric: str) -> Panel:
    query = Query(f"min(max by (node) ({metric}{NODE}))")
    return Panel(
        title,
        asks,
        Kind.STAT,
        (query,),
        "bool_on_off",
        4,
        4,
        steps=((1, "green"),),
        base="red",
        maximum=1,
    )


PRESENCE_PANELS: Final = (
    _up("Driver", "Does NVIDIA's driver answer on every chosen node?", "plimsoll_driver_up"),
    _up("Broker", "Does the broker answer, so that lines and shares are kept?", "plimsoll_broker_up"),
    _up("NATS", "Do events leave the node?", "plimsoll_nats_up"),
    Panel(
        "Age of the last report",
        "Does the placer know the node as it is? After three heartbeats (180 s) the node gets no pod.",
        Kind.STAT,
        (Query(f"max(time() - plimsoll_placer_last_report_timestamp_seconds{NODE})"),),
        "s",
        4,
        4,
        steps=((90, "yellow"), (180, "red")),
        empty="no placer reads this node's reports",
    ),
    Panel(
        "Events on disk",
        "Do events wait for NATS?",
        Kind.STAT,
        (Query(f"sum(plimsoll_outbox_entries{NODE})"),),
        width=4,
        height=4,
        steps=((100, "yellow"), (10_000, "red")),
    ),
    Panel(
        "What holds lines",
        "Are lines of memory held by the driver too, or by the library alone? One count for each GPU.",
        Kind.STAT,
        (
            Query(
                "count by (enforcement) (max by (gpu, enforcement) (plimsoll_broker_enforcement_info))",
                "{{enforcement}}",
            ),
        ),
        width=4,
        height=4,
        empty="the broker holds no container yet",
    ),
)


MEMORY_PANELS: Final = (
    Panel(
        "Memory of $gpu",
        "How deep is the GPU loaded? The dashed line is its usable memory, the Plimsoll line. Promised above "
        "measured: declarations that are not used. Measured above promised: processes outside of containers.",
        Kind.LINES,
        (
            Query(f"max(plimsoll_gpu_usable_bytes{GPU})", "line"),
            Query(
                f"max(plimsoll_placer_promised_bytes{GPU}) or max(plimsoll_gpu_usable_bytes{GPU}) * 0",
                "promised",
            ),
            Query(f"max(plimsoll_gpu_used_bytes{GPU})", "measured"),
        ),
        "bytes",
        width=24,
        edges=("line",),
        repeat="gpu",
    ),
    Panel(
        "Memory by container",
        "Which containers hold the memory?",
        Kind.STACKED,
        (Query(_of_containers("plimsoll_hook_used_bytes"), NAMES),),
        "bytes",
        width=12,
        empty="no container is on these GPUs",
    ),
    Panel(
        "Short of memory",
        "Is a GPU's free memory short, so that allocations may fail or wait?",
        Kind.STATES,
        (Query(_of_gpus("plimsoll_gpu_pressure"), LEGEND),),
        "bool_yes_no",
        width=12,
        steps=((1, "red"),),
    ),
)


COMPUTE_PANELS: Final = (
    Panel(
        "Busy",
        "How much of the time does each GPU work?",
        Kind.LINES,
        (Query(_of_gpus("rate(plimsoll_gpu_busy_seconds_total[$__rate_interval])"), LEGEND),),
        "percentunit",
        maximum=1,
    ),
    Panel(
        "Idle average and promised share",
        "Do decisions see the GPU as idle, and how much of its time is guaranteed? The average is decayed.",
        Kind.LINES,
        (
            Query(_of_gpus("plimsoll_gpu_idle_ratio"), f"idle, {LEGEND}"),
            Query(
                _of_gpus("plimsoll_placer_promised_share_ratio or plimsoll_gpu_idle_ratio * 0"),
                f"promised, {LEGEND}",
            ),
        ),
        "percentunit",
        maximum=1,
    ),
    Panel(
        "Compute by container",
        "Who has the GPU's time? Behind an open gate it is what the GPU worked, less what others used.",
        Kind.LINES,
        (
            Query(
                f"container:plimsoll_used:ratio and on ({CONTAINER}) "
                f"(plimsoll_hook_container_info and on (gpu) plimsoll_gpu_info{GPU})",
                NAMES,
            ),
        ),
        "percentunit",
        maximum=1,
        empty="no container is on these GPUs",
    ),
)


TASK_PANELS: Final = (
    Panel(
        "Tasks by state",
        "Are processes still loading? `started`: no data yet; `loading`: memory grows; `loaded`: it is steady.",
        Kind.STACKED,
        (Query(f"sum by (phase) (max by (gpu, phase) (plimsoll_gpu_tasks{GPU}))", "{{phase}}"),),
    ),
    Panel(
        "Starts and ends",
        "How much comes and goes?",
        Kind.LINES,
        (
            Query(
                f"sum by (phase) (rate(plimsoll_task_events_total{GPU}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
        "ops",
        empty="no task came or went since the monitor's start",
    ),
    Panel(
        "Limit events",
        "Do containers run into their lines, wait, or go without what they were promised?",
        Kind.LINES,
        (
            Query(
                f"sum by (what) (increase(plimsoll_limit_events_total{NODE}[$__rate_interval]))",
                "{{what}}",
            ),
        ),
    ),
)


HEALTH_PANELS: Final = (
    Panel(
        "Health",
        "Is each GPU healthy? 0 is healthy, 1 worth knowing, 2 degraded, 3 fatal: the GPU takes no pod.",
        Kind.STATES,
        (
            Query(
                _of_gpus(
                    'plimsoll_gpu_health{class="fatal"} * 3 + on (gpu, node) '
                    'plimsoll_gpu_health{class="degraded"} * 2 + on (gpu, node) plimsoll_gpu_health{class="info"}'
                ),
                LEGEND,
            ),
        ),
        width=12,
        steps=((1, "blue"), (2, "orange"), (3, "red")),
    ),
    Panel(
        "Conditions",
        "What is wrong with which GPU? docs/events.md says what each means.",
        Kind.TABLE,
        (Query(f"max by (node, gpu, condition, xid) (plimsoll_gpu_condition{GPU})", "is so"),),
        width=12,
        empty="no GPU has a condition",
        columns=(("node", "node"), ("gpu", "UUID"), ("condition", "condition"), ("xid", "XID")),
    ),
    Panel(
        "XID errors",
        "Which errors does the driver report?",
        Kind.LINES,
        (
            Query(
                f"sum by (node, gpu, xid) (increase(plimsoll_gpu_xid_errors_total{GPU}[$__rate_interval]))",
                "XID {{xid}}, {{gpu}}",
            ),
        ),
        empty=WELL,
    ),
    Panel(
        "Uncorrected ECC errors",
        "Does memory fail? Counted since the GPU's last reset.",
        Kind.LINES,
        (Query(_of_gpus("plimsoll_gpu_uncorrected_ecc_errors_total"), LEGEND),),
    ),
    Panel(
        "Slowest calls of NVML",
        "Is the driver slow? Above 0.25 s, memory is seen late.",
        Kind.LINES,
        (
            Query(
                "histogram_quantile(0.99, sum by (node, le) "
                f"(rate(plimsoll_nvml_call_seconds_bucket{NODE}[$__rate_interval])))",
                "{{node}}",
            ),
        ),
        "s",
        steps=((0.25, "red"),),
    ),
    Panel(
        "Temperature",
        "Is a GPU too warm? From dcgm-exporter, by the same UUID.",
        Kind.LINES,
        (Query(f"{CHOSEN} * on (gpu) group_left () gpu:plimsoll_temperature:celsius", LEGEND),),
        "celsius",
        width=12,
        empty=DCGM,
    ),
    Panel(
        "Power",
        "How much power does each GPU draw? From dcgm-exporter.",
        Kind.LINES,
        (Query(f"{CHOSEN} * on (gpu) group_left () gpu:plimsoll_power:watts", LEGEND),),
        "watt",
        width=12,
        empty=DCGM,
    ),
)
