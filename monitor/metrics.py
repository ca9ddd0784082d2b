"""The monitor's Prometheus metrics: the node as of the last round.

A GPU's series are made anew at each scrape, so the series of a lost GPU end with it. No pid and no pod is a
label, because both come and go by the thousand.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.core.conditions import ConditionChanges, Conditions
from monitor.core.lifecycle import Fact
from plimsoll.events import LIMIT_EVENTS, Gpu, Phase
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.nvml.readings import XidSeen
from plimsoll.part.metrics import add_common

_GPU: Final = ("node", "gpu")

_PHASES: Final = (Phase.STARTED, Phase.LOADING, Phase.LOADED)
"""The phases of tasks on a GPU; one that exited is on none."""

CALL_BUCKETS_S: Final = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
"""Bounds for calls of the driver: most take a tenth of a millisecond, and the first one of a card takes seconds."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The figures of other parts of the monitor, read at each scrape.

    Attributes:
        waiting: events on disk, their bytes, how many were dropped since the start, and how often the
            disk refused.
        nats_answers: whether NATS takes events; None before the first attempt has ended.
        broker_answers: whether the broker took the last measurement.
        busy_s: per GPU, the seconds of its work since the monitor's start.
        ecc_errors: per GPU, its uncorrected ECC errors since it was last reset.
    """

    waiting: Callable[[], tuple[int, int, int, int]]
    nats_answers: Callable[[], bool | None]
    broker_answers: Callable[[], bool]
    busy_s: Callable[[], Mapping[GpuUuid, float]]
    ecc_errors: Callable[[], Mapping[GpuUuid, int]]


class NodeMetrics(Collector):
    """The monitor's metrics; call `round_stored` after each round."""

    def __init__(self, node: NodeName, sources: Sources) -> None:
        self._node = node
        self._sources = sources
        self._gpus: tuple[Gpu, ...] = ()
        self._facts: Counter[tuple[str, str]] = Counter()
        self._limits: Counter[str] = Counter()
        self._foreign_reports = 0
        self._driver_answers: bool | None = None
        self._conditions = Conditions()
        self._health_changes: Counter[tuple[str, str]] = Counter()
        self._pressure_changes: Counter[str] = Counter()
        self._xids: Counter[tuple[str, int]] = Counter()
        self._driver_calls = Histogram(
            "plimsoll_nvml_call_seconds",
            "Duration of each call of NVML, by `call`; above 0.25 s, memory is seen late.",
            labelnames=("node", "call"),
            registry=None,
            buckets=CALL_BUCKETS_S,
        )

    def driver_called(self, call: str, seconds: float) -> None:
        """Count a call of the driver and its duration. Any thread may call this."""
        self._driver_calls.labels(self._node, call).observe(seconds)

    def driver_answered(self, answers: bool) -> None:  # noqa: FBT001 - the one thing that there is to say
        """Show whether NVIDIA's driver answered in the last round."""
        self._driver_answers = answers

    def round_stored(self, gpus: tuple[Gpu, ...], facts: tuple[Fact, ...]) -> None:
        """Show these GPUs from now on, and count these facts."""
        self._gpus = gpus
        self._facts.update((fact.life.key.gpu, fact.phase.value) for fact in facts)

    def conditions_stored(self, found: Conditions, changes: ConditionChanges) -> None:
        """Show these conditions from now on, and count these changes."""
        self._conditions = found
        self._health_changes.update((one.health.gpu, one.health.health.value) for one in changes.health)
        self._pressure_changes.update(one.gpu.uuid for one in changes.pressure)

    def xid_seen(self, seen: XidSeen) -> None:
        """Count an XID error."""
        self._xids[seen.gpu, seen.number] += 1

    def foreign_report(self) -> None:
        """Count a report that another monitor published under this node's name."""
        self._foreign_reports += 1

    def limit_event(self, what: str) -> None:
        """Count an event `limit.<what>`."""
        self._limits[what] += 1

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return (
            *self._collect_gpus(),
            *self._collect_counts(),
            *self._collect_servers(),
            *self._collect_outbox(),
            *self._collect_health(),
            *self._collect_health_counts(),
            *self._driver_calls.collect(),
        )

    def _collect_gpus(self) -> Iterable[Metric]:
        info = GaugeMetricFamily(
            "plimsoll_gpu_info",
            "1 for each GPU, with its model and its index on the node as labels.",
            labels=(*_GPU, "index", "model"),
        )
        usable = GaugeMetricFamily(
            "plimsoll_gpu_usable_bytes", "GPU memory less what the driver reserves.", labels=_GPU
        )
        used = GaugeMetricFamily("plimsoll_gpu_used_bytes", "GPU memory that processes hold.", labels=_GPU)
        idle = GaugeMetricFamily(
            "plimsoll_gpu_idle_ratio", "Decayed average of idle time, 0 (busy) to 1.", labels=_GPU
        )
        tasks = GaugeMetricFamily(
            "plimsoll_gpu_tasks",
            "Processes on the GPU, by phase: `started`, `loading` or `loaded`.",
            labels=(*_GPU, "phase"),
        )
        busy = CounterMetricFamily(
            "plimsoll_gpu_busy_seconds",
            "Time in which the GPU executed work, since the monitor's start.",
            labels=_GPU,
        )
        busy_s = self._sources.busy_s()
        for gpu in self._gpus:
            names = (self._node, gpu.uuid)
            info.add_metric((*names, str(gpu.index), gpu.model), 1)
            usable.add_metric(names, gpu.usable_bytes)
            used.add_metric(names, gpu.used_bytes)
            idle.add_metric(names, gpu.idle_pct / 100)
            busy.add_metric(names, busy_s.get(gpu.uuid, 0.0))
            phases = Counter(task.phase for task in gpu.tasks)
            for phase in _PHASES:
                tasks.add_metric((*names, phase.value), phases[phase])
        return info, usable, used, idle, tasks, busy

    def _collect_counts(self) -> Iterable[Metric]:
        events = CounterMetricFamily(
            "plimsoll_task_events",
            "Task events since the monitor's start, by phase: `started`, `loaded` or `exited`.",
            labels=(*_GPU, "phase"),
        )
        for (uuid, phase), count in sorted(self._facts.items()):
            events.add_metric((self._node, uuid, phase), count)
        limits = CounterMetricFamily(
            "plimsoll_limit_events",
            "Events `limit.<what>` since the monitor's start, by `what`.",
            labels=("node", "what"),
        )
        for what in sorted(LIMIT_EVENTS):
            limits.add_metric((self._node, what), self._limits[what])
        foreign = CounterMetricFamily(
            "plimsoll_foreign_reports",
            "Reports that another monitor published under this node's name, since this monitor's start; above 0, two "
            "monitors have one name.",
            labels=("node",),
        )
        foreign.add_metric((self._node,), self._foreign_reports)
        return events, limits, foreign

    def _collect_servers(self) -> Iterable[Metric]:
        node = (self._node,)
        driver = GaugeMetricFamily(
            "plimsoll_driver_up",
            "1 if NVIDIA's driver (NVML) answered in the last round, else 0; absent before the first round.",
            labels=("node",),
        )
        if self._driver_answers is not None:
            driver.add_metric(node, float(self._driver_answers))
        bus = GaugeMetricFamily(
            "plimsoll_nats_up",
            "1 while NATS takes this monitor's events, else 0; absent before the first attempt has ended.",
            labels=("node",),
        )
        nats_answers = self._sources.nats_answers()
        if nats_answers is not None:
            bus.add_metric(node, float(nats_answers))
        broker = GaugeMetricFamily(
            "plimsoll_broker_up", "1 while the node's broker answers the monitor, else 0.", labels=("node",)
        )
        broker.add_metric(node, float(self._sources.broker_answers()))
        return driver, bus, broker

    def _collect_outbox(self) -> Iterable[Metric]:
        node = (self._node,)
        waiting = GaugeMetricFamily(
            "plimsoll_outbox_entries",
            "Events on disk that NATS has not acknowledged; grows while NATS is away.",
            labels=("node",),
        )
        size = GaugeMetricFamily(
            "plimsoll_outbox_bytes",
            "Bytes of those events; at OUTBOX_BYTES sampling pauses.",
            labels=("node",),
        )
        dropped = CounterMetricFamily(
            "plimsoll_outbox_dropped",
            "Events dropped since the monitor's start: older than OUTBOX_AGE_S, or too large for NATS.",
            labels=("node",),
        )
        failures = CounterMetricFamily(
            "plimsoll_outbox_failures",
            "Readings and writes of the outbox that failed since the monitor's start: the disk is full or broken.",
            labels=("node",),
        )
        count, size_bytes, dropped_count, failures_count = self._sources.waiting()
        waiting.add_metric(node, count)
        size.add_metric(node, size_bytes)
        dropped.add_metric(node, dropped_count)
        failures.add_metric(node, failures_count)
        return waiting, size, dropped, failures

    def _collect_health(self) -> Iterable[Metric]:
        health = GaugeMetricFamily(
            "plimsoll_gpu_health",
            "1 for the GPU's present `class` of health, else 0: `healthy`, `info`, `degraded` or `fatal`.",
            labels=(*_GPU, "class"),
        )
        condition = GaugeMetricFamily(
            "plimsoll_gpu_condition",
            "1 for each condition that the GPU has; `xid` is the number of an XID error.",
            labels=(*_GPU, "condition", "xid"),
        )
        short = GaugeMetricFamily(
            "plimsoll_gpu_pressure", "1 while the GPU's free memory is short, else 0.", labels=_GPU
        )
        for uuid, record in self._conditions.records.items():
            names, one = (self._node, uuid), record.health
            for each in HealthClass:
                health.add_metric((*names, each.value), float(each is one.health))
            for found in one.conditions:
                number = "" if found.xid is None else str(found.xid)
                condition.add_metric((*names, found.what, number), 1.0)
            short.add_metric(names, float(uuid in self._conditions.short))
        return health, condition, short

    def _collect_health_counts(self) -> Iterable[Metric]:
        changes = CounterMetricFamily(
            "plimsoll_gpu_health_events",
            "Events gpu.health since the monitor's start, by the class after it.",
            labels=(*_GPU, "class"),
        )
        for changed, count in sorted(self._health_changes.items()):
            changes.add_metric((self._node, *changed), count)
        pressures = CounterMetricFamily(
            "plimsoll_gpu_pressure_events", "Events gpu.pressure since the monitor's start.", labels=_GPU
        )
        for pressed, count in sorted(self._pressure_changes.items()):
            pressures.add_metric((self._node, pressed), count)
        xids = CounterMetricFamily(
            "plimsoll_gpu_xid_errors",
            "XID errors since the monitor's start, by their number.",
            labels=(*_GPU, "xid"),
        )
        for error, errors in sorted(self._xids.items()):
            xids.add_metric((self._node, error[0], str(error[1])), errors)
        ecc = CounterMetricFamily(
            "plimsoll_gpu_uncorrected_ecc_errors",
            "Uncorrected ECC errors since the GPU was last reset; 0 where the card does not count them.",
            labels=_GPU,
        )
        for uuid, found_errors in self._sources.ecc_errors().items():
            ecc.add_metric((self._node, uuid), found_errors)
        return changes, pressures, xids, ecc


def routes(metrics: NodeMetrics) -> tuple[web.RouteDef, ...]:
    """The route `/metrics`, which Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(metrics)
    add_common(registry, "monitor")
    return (web.get("/metrics", make_aiohttp_handler(registry)),)
