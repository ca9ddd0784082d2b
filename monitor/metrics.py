"""The monitor's Prometheus metrics: the node as of the last round.

A GPU's series are made anew at each scrape, so the series of a lost GPU end with it. No pid and no pod is a
label, because both come and go by the thousand.
"""

from collections.abc import Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.broker import Measurer
from monitor.core.conditions import ConditionChanges, Conditions
from monitor.core.lifecycle import Fact
from monitor.gpu_readings import GpuReadings
from monitor.outbox.store import Store
from monitor.publisher import Publisher
from plimsoll.events import LIMIT_EVENTS, Gpu, Phase
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import NodeName
from plimsoll.nvml.readings import XidSeen
from plimsoll.part.metrics import add_common

_GPU: Final = ("node", "gpu")

_PHASES: Final = (Phase.STARTED, Phase.LOADING, Phase.LOADED)
"""The phases of tasks on a GPU; one that exited is on none."""

CALL_BUCKETS_S: Final = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
"""Bounds for calls of the driver: most take a tenth of a millisecond, and the first one of a card takes seconds."""


class NodeMetrics(Collector):
    """The monitor's metrics, in a `registry` of their own; call `round_stored` after each round."""

    def __init__(self, node: NodeName, store: Store, publisher: Publisher, measurer: Measurer) -> None:
        self.registry = CollectorRegistry()
        self._node = node
        self._store = store
        self._publisher = publisher
        self._measurer = measurer
        self._readings: GpuReadings | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._driver_answers: bool | None = None
        self._conditions = Conditions()
        self._task_events = self._counter(
            "plimsoll_task_events",
            "Task events since the monitor's start, by phase: `started`, `loaded` or `exited`.",
            "gpu",
            "phase",
        )
        self._limit_events = self._counter(
            "plimsoll_limit_events", "Events `limit.<what>` since the monitor's start, by `what`.", "what"
        )
        for what in LIMIT_EVENTS:
            self._limit_events.labels(node, what)
        self._foreign_reports = self._counter(
            "plimsoll_foreign_reports",
            "Reports that another monitor published under this node's name, since this monitor's start; above 0, two "
            "monitors have one name.",
        ).labels(node)
        self._health_events = self._counter(
            "plimsoll_gpu_health_events",
            "Events gpu.health since the monitor's start, by the class after it.",
            "gpu",
            "class",
        )
        self._pressure_events = self._counter(
            "plimsoll_gpu_pressure_events", "Events gpu.pressure since the monitor's start.", "gpu"
        )
        self._xid_errors = self._counter(
            "plimsoll_gpu_xid_errors", "XID errors since the monitor's start, by their number.", "gpu", "xid"
        )
        self._driver_calls = Histogram(
            "plimsoll_nvml_call_seconds",
            "Duration of each call of NVML, by `call`; above 0.25 s, memory is seen late.",
            labelnames=("node", "call"),
            registry=self.registry,
            buckets=CALL_BUCKETS_S,
        )
        self.registry.register(self)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ("node", *labels), registry=self.registry)

    def driver_called(self, call: str, seconds: float) -> None:
        """Count a call of the driver and its duration. Any thread may call this."""
        self._driver_calls.labels(self._node, call).observe(seconds)

    def driver_answered(self, answers: bool) -> None:  # noqa: FBT001 - the one thing that there is to say
        """Show whether NVIDIA's driver answered in the last round."""
        self._driver_answers = answers

    def round_stored(self, gpus: tuple[Gpu, ...], facts: tuple[Fact, ...], readings: GpuReadings) -> None:
        """Show these GPUs and readings from now on, and count these facts."""
        self._gpus, self._readings = gpus, readings
        for fact in facts:
            self._task_events.labels(self._node, fact.life.key.gpu, fact.phase.value).inc()

    def conditions_stored(self, found: Conditions, changes: ConditionChanges) -> None:
        """Show these conditions from now on, and count these changes."""
        self._conditions = found
        for one in changes.health:
            self._health_events.labels(self._node, one.health.gpu, one.health.health.value).inc()
        for pressed in changes.pressure:
            self._pressure_events.labels(self._node, pressed.gpu.uuid).inc()

    def xid_seen(self, seen: XidSeen) -> None:
        """Count an XID error."""
        self._xid_errors.labels(self._node, seen.gpu, seen.number).inc()

    def foreign_report(self) -> None:
        """Count a report that another monitor published under this node's name."""
        self._foreign_reports.inc()

    def limit_event(self, what: str) -> None:
        """Count an event `limit.<what>`."""
        self._limit_events.labels(self._node, what).inc()

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return (
            *self._collect_gpus(),
            *self._collect_servers(),
            *self._collect_outbox(),
            *self._collect_health(),
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
        busy_s = self._readings.meters.busy_s if self._readings else {}
        for gpu in self._gpus:
            names = (self._node, gpu.uuid)
            info.add_metric((*names, str(gpu.index), gpu.model), 1)
            usable.add_metric(names, gpu.usable_bytes)
            used.add_metric(names, gpu.used_bytes)
            idle.add_metric(names, gpu.idle_pct / 100)
            busy.add_metric(names, busy_s.get(gpu.uuid, 0.0))
            phases = [task.phase for task in gpu.tasks]
            for phase in _PHASES:
                tasks.add_metric((*names, phase.value), phases.count(phase))
        return info, usable, used, idle, tasks, busy

    def _collect_servers(self) -> Iterable[Metric]:
        return (
            self._of_node(
                GaugeMetricFamily,
                "plimsoll_driver_up",
                "1 if NVIDIA's driver (NVML) answered in the last round, else 0; absent before the first round.",
                self._driver_answers,
            ),
            self._of_node(
                GaugeMetricFamily,
                "plimsoll_nats_up",
                "1 while NATS takes this monitor's events, else 0; absent before the first attempt has ended.",
                self._publisher.is_reachable,
            ),
            self._of_node(
                GaugeMetricFamily,
                "plimsoll_broker_up",
                "1 while the node's broker answers the monitor, else 0.",
                self._measurer.away_since is None,
            ),
        )

    def _collect_outbox(self) -> Iterable[Metric]:
        return (
            self._of_node(
                GaugeMetricFamily,
                "plimsoll_outbox_entries",
                "Events on disk that NATS has not acknowledged; grows while NATS is away.",
                self._store.waiting_count,
            ),
            self._of_node(
                GaugeMetricFamily,
                "plimsoll_outbox_bytes",
                "Bytes of those events; at OUTBOX_BYTES sampling pauses.",
                self._store.waiting_bytes,
            ),
            self._of_node(
                CounterMetricFamily,
                "plimsoll_outbox_dropped",
                "Events dropped since the monitor's start: older than OUTBOX_AGE_S, or too large for NATS.",
                self._store.dropped_count + self._publisher.dropped_count,
            ),
            self._of_node(
                CounterMetricFamily,
                "plimsoll_outbox_failures",
                "Readings and writes of the outbox that failed since the monitor's start: the disk is full or "
                "broken.",
                self._store.failures_count,
            ),
        )

    def _of_node(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        value: float | None,
    ) -> Metric:
        family = kind(name, text, labels=("node",))
        if value is not None:
            family.add_metric((self._node,), float(value))
        return family

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
        ecc = CounterMetricFamily(
            "plimsoll_gpu_uncorrected_ecc_errors",
            "Uncorrected ECC errors since the GPU was last reset; 0 where the card does not count them.",
            labels=_GPU,
        )
        for uuid, errors in (self._readings.ecc_errors if self._readings else {}).items():
            ecc.add_metric((self._node, uuid), errors)
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
        return health, condition, short, ecc


def routes(metrics: NodeMetrics) -> tuple[web.RouteDef, ...]:
    """The route `/metrics`, which Prometheus scrapes."""
    add_common(metrics.registry, "monitor")
    return (web.get("/metrics", make_aiohttp_handler(metrics.registry)),)
