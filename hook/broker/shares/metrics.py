"""The metrics of containers' compute shares.

What always holds: a container that owns its GPUs has none of these series. The use of a container with an open gate
is absent instead of 0, because it is not metered then.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hook.broker.core.shares.events import GateState, ShareUse

CONTAINER: Final = ("namespace", "pod", "uid", "container")
"""The labels. The uid is needed: commands of `plimsoll run` may share a name, as may a lingering pod and its
successor."""

_COUNTERS: Final = {
    "used_seconds": (
        "busy_s",
        "Time in which a GPU executed the container's work while the gate was not open, mean over its GPUs.",
    ),
    "waited_seconds": ("waited_s", "Time in which a thread stood at the shut gate."),
    "waits": (
        "waits",
        "Times that a thread began to stand at the shut gate while no other thread stood there.",
    ),
}
"""By the name after `plimsoll_hook_share_`: the field of `ShareUse`, and the help text."""


@dataclass(frozen=True, slots=True)
class ShareRow:
    """The compute time of a container.

    Attributes:
        names: the values of the labels `CONTAINER`.
        unmet_count: spans in which the container wanted its request throughout and got less.
    """

    names: tuple[str, str, str, str]
    use: ShareUse
    unmet_count: int


def share_families(rows: Iterable[ShareRow]) -> tuple[Metric, ...]:
    """All metrics of these containers."""
    shared = [row for row in rows if not row.use.terms.whole]
    return (*_ratios(shared), _gates(shared), *_counters(shared))


def _ratios(rows: Iterable[ShareRow]) -> tuple[Metric, ...]:
    used = GaugeMetricFamily(
        "plimsoll_hook_share_used_ratio",
        "Compute time used in the latest second or two, of one GPU, mean over its GPUs; absent while the gate"
        " is open, as nothing is metered then.",
        labels=CONTAINER,
    )
    requested = GaugeMetricFamily(
        "plimsoll_hook_share_requested_ratio",
        "Part of each GPU's compute time that is guaranteed to the container.",
        labels=CONTAINER,
    )
    limit = GaugeMetricFamily(
        "plimsoll_hook_share_limit_ratio",
        "Part of each GPU's compute time that the container may use at most.",
        labels=CONTAINER,
    )
    for row in rows:
        requested.add_metric(row.names, row.use.terms.request_pct / 100)
        limit.add_metric(row.names, row.use.terms.limit_pct / 100)
        if row.use.state is not GateState.OPEN:
            used.add_metric(row.names, row.use.used_pct / 100)
    return used, requested, limit


def _gates(rows: Iterable[ShareRow]) -> Metric:
    gates = GaugeMetricFamily(
        "plimsoll_hook_gate_state",
        "1 for the state of the container's gate: `open`, `metered` or `shut`.",
        labels=(*CONTAINER, "state"),
    )
    for row in rows:
        for state in GateState:
            gates.add_metric((*row.names, state.name.lower()), float(row.use.state is state))
    return gates


def _counters(rows: Iterable[ShareRow]) -> Iterable[Metric]:
    for name, (field, text) in _COUNTERS.items():
        family = CounterMetricFamily(f"plimsoll_hook_share_{name}", text, labels=CONTAINER)
        value = attrgetter(field)
        for row in rows:
            family.add_metric(row.names, value(row.use))
        yield family
    unmet = CounterMetricFamily(
        "plimsoll_hook_share_unmet",
        "Spans in which the container wanted its request throughout and got less.",
        labels=CONTAINER,
    )
    for row in rows:
        unmet.add_metric(row.names, row.unmet_count)
    yield unmet
