"""The broker's metrics for Prometheus.

Every scrape makes all samples anew from the description at that moment, so a pod's series end with the pod. A
container that owns its GPUs has no series of a share. The use of a container with an open gate is absent instead of
0, because it is not metered then.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.requests import WAIT_BUCKETS_S, WaitTimes
from hook.broker.core.shares.events import GateState, ShareUse
from hook.broker.engine import Engine
from hook.broker.settings import PREFIX
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import ContainerUse, Description
from plimsoll.part.metrics import add_common
from plimsoll.part.web import serving_tcp

CONTAINER: Final = ("namespace", "pod", "uid", "container")
"""The labels. The uid is needed: commands of `plimsoll run` may share a name, as may a lingering pod and its
successor."""

_GPU: Final = (*CONTAINER, "gpu")


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


class _Uses(Collector):
    """The broker's samples, from its latest description."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.description = Description(containers=())

    def collect(self) -> Iterable[Metric]:
        return (
            *self._containers(),
            *self._memory(),
            *self._waits(),
            *self._driver_limits(),
            *share_families(self._shares()),
            self._enforcement(),
            self._journal(),
            self._disk(),
        )

    def _containers(self) -> tuple[Metric, ...]:
        """The processes of containers, and what was found of them."""
        processes = GaugeMetricFamily(
            "plimsoll_hook_processes", "Processes that run under the hook.", labels=CONTAINER
        )
        denied = CounterMetricFamily(
            "plimsoll_hook_denied", "Allocations refused at the line.", labels=CONTAINER
        )
        violated = CounterMetricFamily(
            "plimsoll_hook_violated",
            "Times that NVML showed more than the line or the page.",
            labels=CONTAINER,
        )
        unenforced = CounterMetricFamily(
            "plimsoll_hook_unenforced", "Processes found that never came under the hook.", labels=CONTAINER
        )
        measuring, findings = self._engine.node.measuring, self._engine.node.share_findings
        for container in self.description.containers:
            key, names = _key(container), _names(container)
            processes.add_metric(names, len(container.processes))
            alive = sum(process.denied_count for process in container.processes)
            denied.add_metric(names, alive + self._engine.disk.shared.denied_by_the_dead(key))
            violated.add_metric(names, measuring.found_count(key, Violated) + findings.overuse[key])
            unenforced.add_metric(names, measuring.found_count(key, Unenforced))
        return processes, denied, violated, unenforced

    def _memory(self) -> tuple[Metric, ...]:
        """The memory of containers on each of their GPUs."""
        info = GaugeMetricFamily(
            "plimsoll_hook_container_info",
            "1 for each GPU of each container; `whole` is `true` where the container owns the GPU.",
            labels=(*_GPU, "whole"),
        )
        used = GaugeMetricFamily(
            "plimsoll_hook_used_bytes", "GPU memory that hooked processes hold.", labels=_GPU
        )
        line = GaugeMetricFamily(
            "plimsoll_hook_line_bytes", "The container's line: the GPU memory that it may hold.", labels=_GPU
        )
        measured = GaugeMetricFamily(
            "plimsoll_hook_measured_bytes",
            "Memory that NVML showed of a container, contexts included; less `plimsoll_hook_used_bytes` it is the "
            "drift of the counts.",
            labels=_GPU,
        )
        excess = GaugeMetricFamily(
            "plimsoll_hook_excess_bytes",
            "GPU memory that NVML shows past what the processes count.",
            labels=_GPU,
        )
        audit = self._engine.node.audit
        for container in self.description.containers:
            key = _key(container)
            for place, gpu_line in enumerate(container.container.lines):
                names = (*_names(container), gpu_line.gpu)
                info.add_metric((*names, str(container.container.whole).lower()), 1)
                counted = (each.used_bytes[place] - each.excess_bytes[place] for each in container.processes)
                used.add_metric(names, sum(counted))
                line.add_metric(names, gpu_line.line_bytes)
                measured.add_metric(names, audit.measured_bytes(key, gpu_line.gpu))
                excess.add_metric(names, audit.excess_bytes(key, gpu_line.gpu))
        return info, used, line, measured, excess

    def _enforcement(self) -> Metric:
        enforcement = GaugeMetricFamily(
            "plimsoll_broker_enforcement_info",
            "1 for what holds containers to their lines on a GPU: `both`, `preload`, `driver` or `none`.",
            labels=("gpu", "enforcement"),
        )
        for one in self.description.enforcement:
            enforcement.add_metric((one.gpu, one.enforcement), 1)
        return enforcement

    def _journal(self) -> Metric:
        return GaugeMetricFamily(
            "plimsoll_broker_journal_entries",
            "Announcements that the monitor has not acknowledged; grows while the monitor is away.",
            value=self._engine.node.journal_length,
        )

    def _disk(self) -> Metric:
        return CounterMetricFamily(
            "plimsoll_broker_disk_failures",
            "Readings and writes of the broker's files that failed since its start: the disk is full or broken.",
            value=self._engine.disk_failures,
        )

    def _driver_limits(self) -> tuple[Metric, ...]:
        """The limits of whole pods in the driver."""
        limit = GaugeMetricFamily(
            "plimsoll_hook_driver_limit_bytes",
            "GPU memory that the driver lets a whole pod hold; absent where the driver does not limit the pod.",
            labels=("namespace", "pod", "uid", "gpu"),
        )
        found = {
            (use.namespace, use.pod_name, use.pod, line.gpu)
            for use in self.description.containers
            for line in use.container.lines
        }
        for namespace, name, pod, gpu in sorted(found):
            hard_bytes = self._engine.driver_lines.pod_line(pod, gpu)
            if hard_bytes is not None:
                limit.add_metric((namespace, name, pod, gpu), hard_bytes)
        return (limit,)

    def _shares(self) -> Iterator[ShareRow]:
        for container in self.description.containers:
            key = _key(container)
            use = self._engine.shares.uses(key)
            if use is not None:  # The container may have left since the description.
                yield ShareRow(_names(container), use, self._engine.node.share_findings.unmet[key])

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
            key, names = _key(container), _names(container)
            waited.add_metric(names, _buckets(waits.waited(key)), waits.waited(key).sum_s)
            for gpu_line in container.container.lines:
                granted.add_metric((*names, gpu_line.gpu), waits.granted_bytes(key, gpu_line))
                waiting.add_metric((*names, gpu_line.gpu), waits.waiting_count(key, gpu_line.gpu))
        return granted, waiting, waited


def _key(container: ContainerUse) -> ContainerKey:
    return ContainerKey(container.pod, container.container.name)


def _names(container: ContainerUse) -> tuple[str, str, str, str]:
    """The values of `CONTAINER`."""
    return container.namespace, container.pod_name, container.pod, container.container.name


def _buckets(waited: WaitTimes) -> list[tuple[str, float]]:
    """The cumulative buckets of a histogram, in Prometheus' form."""
    bounds = (*map(str, WAIT_BUCKETS_S), "+Inf")
    return list(zip(bounds, accumulate(waited.counts), strict=True))


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

    return serving_tcp((web.get("/metrics", handle),), host, port, PREFIX + "HTTP_PORT")
