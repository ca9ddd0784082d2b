"""*Pod*: is it held to its line, does it get its share, and its history of peak, waits and denials."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.panels import CONTAINER, GPU_INFO, Kind, Panel, Query, add, new_dashboard, variable

POD: Final = '{namespace="$namespace", pod="$pod", container=~"$container"}'
STATE: Final = '{namespace="$namespace", pod="$pod", container=~"$container", state="%s"}'
OWNED: Final = "containers that own their GPUs have no share"
OPEN: Final = "the gate was open all the time: nothing had to be metered"


def _each(metric: str, *, gpu: bool = False) -> str:
    """One series for each container, or for each container and GPU."""
    return f"max by ({CONTAINER}{', gpu' if gpu else ''}) ({metric}{POD})"


def _increase(metric: str) -> str:
    return f"sum by (container) (increase({metric}{POD}[$__rate_interval]))"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = new_dashboard(
        "Plimsoll / Pod", "Is a pod held to its line, does it get its share, and what does it wait for."
    )
    line = "plimsoll_hook_line_bytes"
    made.with_variable(variable("namespace", "Namespace", f"label_values({line}, namespace)", several=False))
    made.with_variable(
        variable("pod", "Pod", f'label_values({line}{{namespace="$namespace"}}, pod)', several=False)
    )
    made.with_variable(
        variable(
            "container", "Container", f'label_values({line}{{namespace="$namespace", pod="$pod"}}, container)'
        )
    )
    add(made, "Where it runs", GPU_PANEL)
    add(made, "Is it held to its line", *MEMORY_PANELS)
    add(made, "Does it get its share", *SHARE_PANELS)
    add(made, "What does it wait for", *WAIT_PANELS)
    return made


_CONTAINERS: Final = f"max by ({CONTAINER}, gpu, whole) (plimsoll_hook_container_info{POD})"
GPU_PANEL: Final = Panel(
    "GPUs",
    "On which GPUs do its containers run? `whole` is true where a container owns the GPU.",
    Kind.TABLE,
    (Query(f"{_CONTAINERS} * on (gpu) group_left (node, index, model) {GPU_INFO}", "here"),),
    width=24,
    height=5,
    columns=(
        *(("container", "container"), ("node", "node"), ("index", "GPU"), ("model", "model")),
        *(("gpu", "UUID"), ("whole", "whole")),
    ),
    links=(("node", "/d/plimsoll-node?var-node=${__value.raw}&${__url_time_range}"),),
)


MEMORY_PANELS: Final = (
    Panel(
        "Memory",
        "Is it near its line? The dashed line is what it declared. The peak is the most in the shown "
        "time: a line far above it could be lower. Measured is what NVML shows, with contexts.",
        Kind.LINES,
        (
            Query(f"sum by (container) ({_each('plimsoll_hook_line_bytes', gpu=True)})", "line"),
            Query(f"sum by (container) ({_each('plimsoll_hook_used_bytes', gpu=True)})", "{{container}}"),
            Query(
                f"sum by (container) ({_each('plimsoll_hook_measured_bytes', gpu=True)})",
                "measured, {{container}}",
            ),
            Query(
                f"sum by (container) (max_over_time(plimsoll_hook_used_bytes{POD}[$__range]))",
                "peak of {{container}}",
            ),
        ),
        "bytes",
        width=12,
        edges=("line",),
    ),
    Panel(
        "Refused allocations",
        "Did it ask for more than its line? Each got CUDA's out-of-memory error.",
        Kind.LINES,
        (Query(_increase("plimsoll_hook_denied_total"), "{{container}}"),),
        width=6,
    ),
    Panel(
        "Not held",
        "Does it escape? `past the line` is what NVML showed above the declaration, `without the library` are "
        "processes that never came under it.",
        Kind.LINES,
        (
            Query(_increase("plimsoll_hook_violated_total"), "past the line, {{container}}"),
            Query(_increase("plimsoll_hook_unenforced_total"), "without the library, {{container}}"),
        ),
        width=6,
        steps=((1, "red"),),
    ),
    Panel(
        "Memory that it does not count",
        "How much does NVML show past the container's own counts? Contexts and what the library cannot see.",
        Kind.LINES,
        (Query(_each("plimsoll_hook_excess_bytes", gpu=True), "{{container}}, {{gpu}}"),),
        "bytes",
        width=12,
    ),
    Panel(
        "Processes",
        "How many of its processes use a GPU?",
        Kind.LINES,
        (Query(_each("plimsoll_hook_processes"), "{{container}}"),),
        width=6,
    ),
    Panel(
        "Limit in the driver",
        "Does the driver hold the pod too, and at which size?",
        Kind.STAT,
        (
            Query(
                'max by (gpu) (plimsoll_hook_driver_limit_bytes{namespace="$namespace", pod="$pod"})',
                "{{gpu}}",
            ),
        ),
        "bytes",
        width=6,
        empty="the driver does not limit this pod; the library holds the line",
    ),
)


SHARE_PANELS: Final = (
    Panel(
        "Compute",
        "Does it get what it was promised? Used below requested is fine while it does not want more. "
        "The dashed line is its limit.",
        Kind.LINES,
        (
            Query(_each("plimsoll_hook_share_limit_ratio"), "limit"),
            Query(_each("plimsoll_hook_share_requested_ratio"), "requested"),
            Query(f"container:plimsoll_used:ratio{POD}", "used by {{container}}"),
        ),
        "percentunit",
        width=12,
        maximum=1,
        edges=("limit",),
    ),
    Panel(
        "Gate",
        "Is it held up? 0 open (nobody else wants the GPU), 1 metered, 2 shut.",
        Kind.STATES,
        (
            Query(
                f"max by ({CONTAINER}) (plimsoll_hook_gate_state{STATE % 'metered'}) + "
                f"max by ({CONTAINER}) (plimsoll_hook_gate_state{STATE % 'shut'}) * 2",
                "{{container}}",
            ),
        ),
        width=12,
        steps=((1, "blue"), (2, "yellow")),
        empty=OWNED,
    ),
    Panel(
        "Time at the shut gate",
        "How much of its time do threads stand at the gate, for others or for its own limit?",
        Kind.LINES,
        (
            Query(
                f"sum by (container) (rate(plimsoll_hook_share_waited_seconds_total{POD}[$__rate_interval]))",
                "{{container}}",
            ),
        ),
        "percentunit",
        empty=OWNED,
    ),
    Panel(
        "Stops at the gate",
        "How often do they begin to stand there?",
        Kind.LINES,
        (
            Query(
                f"sum by (container) (rate(plimsoll_hook_share_waits_total{POD}[$__rate_interval]))",
                "{{container}}",
            ),
        ),
        "ops",
        empty=OWNED,
    ),
    Panel(
        "Promise not kept",
        "Did it want its request for a whole span, and get less?",
        Kind.LINES,
        (Query(_increase("plimsoll_hook_share_unmet_total"), "{{container}}"),),
        steps=((1, "red"),),
        empty=OWNED,
    ),
)


_WAITED: Final = f"sum by (container, le) (rate(plimsoll_hook_wait_seconds_bucket{POD}[$__rate_interval]))"
WAIT_PANELS: Final = (
    Panel(
        "Allocations that wait",
        "Does it wait for memory that others hold? Only on nodes that overcommit.",
        Kind.LINES,
        (Query(_each("plimsoll_hook_waiting", gpu=True), "{{container}}, {{gpu}}"),),
    ),
    Panel(
        "Length of finished waits",
        "How long do such waits take? The 95th of 100.",
        Kind.LINES,
        (Query(f"histogram_quantile(0.95, {_WAITED}) >= 0", "{{container}}"),),
        "s",
        empty="no allocation had to wait in this time",
    ),
    Panel(
        "Granted without asking",
        "How much may it hold without asking the broker? Equal to the line where nothing is overcommitted.",
        Kind.LINES,
        (Query(_each("plimsoll_hook_granted_bytes", gpu=True), "{{container}}, {{gpu}}"),),
        "bytes",
    ),
)
