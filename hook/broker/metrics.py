"""The broker's metrics for Prometheus.

Every scrape makes all samples anew from the description at that moment, so a pod's series end with the pod.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.histogram import WAIT_BUCKETS_S, WaitTimes
from hook.broker.engine import Engine
from hook.broker.settings import PREFIX
from hook.broker.shares.metrics import CONTAINER, ShareRow, share_families
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import ContainerUse, Description
from plimsoll.part.metrics import add_common
from plimsoll.part.web import serving_tcp

_GPU: Final = (*CONTAINER, "gpu")


class _Uses(Collector):
    """The broker's samples, from its latest description."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.description = Description(containers=())

    def collect(self) -> Iterable[Metric]:
        info = GaugeMetricFamily(
            "plimsoll_hook_container_info",
            "1 for each GPU of each container; `whole` is `true` where the container owns the GPU.",
            labels=(*_GPU, "whole"),
        )
        processes = GaugeMetricFamily(
            "plimsoll_hook_processes", "Processes that run under the hook.", labels=CONTAINER
        )
        used = GaugeMetricFamily(
            "plimsoll_hook_used_bytes", "GPU memory that hooked processes hold.", labels=_GPU
        )
        line = GaugeMetricFamily(
            "plimsoll_hook_line_bytes", "The container's line: the GPU memory that it may hold.", labels=_GPU
        )
        denied = CounterMetricFamily(
            "plimsoll_hook_denied", "Allocations refused at the line.", labels=CONTAINER
        )
        excess = GaugeMetricFamily(
            "plimsoll_hook_excess_bytes",
            "GPU memory that NVML shows past what the processes count.",
            labels=_GPU,
        )
        measured = GaugeMetricFamily(
            "plimsoll_hook_measured_bytes",
            "Memory that NVML showed of a container, contexts included; less `plimsoll_hook_used_bytes` it is the "
            "drift of the counts.",
            labels=_GPU,
        )
        violated = CounterMetricFamily(
            "plimsoll_hook_violated",
            "Times that NVML showed more than the line or the page.",
            labels=CONTAINER,
        )
        unenforced = CounterMetricFamily(
            "plimsoll_hook_unenforced", "Processes found that never came under the hook.", labels=CONTAINER
        )
        measuring = self._engine.node.measuring
        for container in self.description.containers:
            key = ContainerKey(container.pod, container.container.name)
            names = _names(container)
            processes.add_metric(names, len(container.processes))
            denied.add_metric(names, self._denied(container))
            belied = self._engine.node.share_violations.count(key)
            violated.add_metric(names, measuring.found_count(key, Violated) + belied)
            unenforced.add_metric(names, measuring.found_count(key, Unenforced))
            for place, gpu_line in enumerate(container.container.lines):
                info.add_metric((*names, gpu_line.gpu, str(container.container.whole).lower()), 1)
                held = sum(process.used_bytes[place] for process in container.processes)
                used.add_metric((*names, gpu_line.gpu), held)
                line.add_metric((*names, gpu_line.gpu), gpu_line.line_bytes)
                measured.add_metric((*names, gpu_line.gpu), measuring.measured_bytes(key, gpu_line.gpu))
                excess.add_metric((*names, gpu_line.gpu), measuring.excess_bytes(key, gpu_line.gpu))
        enforcement = GaugeMetricFamily(
            "plimsoll_broker_enforcement_info",
            "1 for what holds containers to their lines on a GPU: `both`, `preload`, `driver` or `none`.",
            labels=("gpu", "enforcement"),
        )
        for one in self.description.enforcement:
            enforcement.add_metric((one.gpu, one.enforcement), 1)
        journal = GaugeMetricFamily(
            "plimsoll_broker_journal_entries",
            "Announcements that the monitor has not acknowledged; grows while the monitor is away.",
            value=self._engine.node.journal_length,
        )
        refused = CounterMetricFamily(
            "plimsoll_broker_disk_failures",
            "Readings and writes of the broker's files that failed since its start: the disk is full or broken.",
            value=self._engine.disk_failures,
        )
        shares = share_families(self._shares())
        counted = (info, processes, used, line, measured, excess, denied, violated, unenforced)
        return (*counted, *self._waits(), *self._driver_limits(), *shares, enforcement, journal, refused)

    def _driver_limits(self) -> tuple[Metric, ...]:
        """The limits of whole pods in the driver."""
        limit = GaugeMetricFamily(
            "plimsoll_hook_driver_limit_bytes",
            "GPU memory that the driver lets a whole pod hold; absent where the driver does not limit the pod.",
            labels=("namespace", "pod", "uid", "gpu"),
        )
        lines = self._engine.driver_lines
        found = {
            (use.namespace, use.pod_name, use.pod, line.gpu)
            for use in self.description.containers
            for line in use.container.lines
        }
        for namespace, name, pod, gpu in sorted(found if lines is not None else ()):
            hard_bytes = lines.pod_line(pod, gpu) if lines is not None else None
            if hard_bytes is not None:
                limit.add_metric((namespace, name, pod, gpu), hard_bytes)
        return (limit,)

    def _shares(self) -> Iterator[ShareRow]:
        for container in self.description.containers:
            key = ContainerKey(container.pod, container.container.name)
            use = self._engine.shares.uses(key)
            if use is not None:  # The container may have left since the description.
                yield ShareRow(_names(container), use, self._engine.node.unmet.count(key))

    def _waits(self) -> tuple[Metric, ...]:
        """The granted bytes, the waiting allocations, and the finished waits."""
        granted = GaugeMetricFamily(
            "plimsoll_hook_granted_bytes",
            "GPU memory that the container may hold without asking the broker.",
            labels=_GPU,
        )
        waiting = GaugeMetricFamily(
            "plimsoll_hook_waiting", "Allocations that wait for memory that others hold.", labels=_GPU
        )
        waited = HistogramMetricFamily(
            "plimsoll_hook_wait_seconds",
            "Time that allocations waited, for waits that have ended.",
            labels=CONTAINER,
        )
        waits = self._engine.node.memory_requests
        for container in self.description.containers:
            key = ContainerKey(container.pod, container.container.name)
            names = _names(container)
            waited.add_metric(names, _buckets(waits.waited(key)), waits.waited(key).sum_s)
            for gpu_line in container.container.lines:
                granted.add_metric((*names, gpu_line.gpu), waits.granted_bytes(key, gpu_line))
                waiting.add_metric((*names, gpu_line.gpu), waits.waiting_count(key, gpu_line.gpu))
        return granted, waiting, waited

    def _denied(self, container: ContainerUse) -> int:
        key = ContainerKey(container.pod, container.container.name)
        alive = sum(process.denied_count for process in container.processes)
        return alive + self._engine.files.denied_by_the_dead(key)


def _names(container: ContainerUse) -> tuple[str, str, str, str]:
    """The values of `CONTAINER`."""
    return container.namespace, container.pod_name, container.pod, container.container.name


def _buckets(waited: WaitTimes) -> list[tuple[str, float]]:
    """The cumulative buckets of a histogram, in Prometheus' form."""
    bounds = (*map(str, WAIT_BUCKETS_S), "+Inf")
    return list(zip(bounds, accumulate(waited.counts), strict=True))


def serving_metrics(engine: Engine, host: str, port: int) -> AbstractAsyncContextManager[int]:
    """Serve `/metrics` until the context ends; gives the real port, also for port 0.

    Raises:
        InputError: the port is taken.
    """
    registry = CollectorRegistry(auto_describe=False)
    uses = _Uses(engine)
    registry.register(uses)
    add_common(registry, "broker")
    bake = make_aiohttp_handler(registry)

    async def handle(request: web.Request) -> web.StreamResponse:
        uses.description = await engine.describe()
        return await bake(request)

    return serving_tcp((web.get("/metrics", handle),), host, port, PREFIX + "METRICS_PORT")
