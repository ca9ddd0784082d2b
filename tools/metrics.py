"""Makes the tables of metrics from the parts' own code, so that they cannot drift. The site adds them to the page.

python -m tools.metrics
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

import hook.broker.metrics
import monitor.metrics
import placer.metrics
import placer.metrics.decisions
import placer.metrics.reports
import placer.pool.metrics
import placer.webhook.metrics
from placer.core.ledger import Ledger
from placer.extender.http import ExtenderMetrics
from placer.scheduler.queue.metrics import QueuedPods
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import NodeName
from plimsoll.part.metrics import add_common
from plimsoll_alerts.app import AlertMetrics

PARTS: Final[Mapping[str, str]] = {
    "every part": "Each part has these, under the same names.",
    "monitor": "One on each GPU node. It knows GPUs, and no pods.",
    "broker": "One on each GPU node. It knows containers.",
    "placer": "The placer that leads has them all. Others show 0 or nothing for what only a leader does.",
    "webhook": "Each replica has its own counts.",
    "pool": "Only where the pool's controller runs ([more](pool.md)).",
    "alerts": "Only where `plimsoll alerts` runs ([more](alerts.md)).",
}
"""The sections of the page, and the sentence at the head of each."""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as Prometheus shows it.

    Attributes:
        name: the name with the ending of a counter; histograms have their `_bucket`, `_sum` and `_count` beside.
        kind: counter, gauge, histogram or info.
        labels: their names, in order.
        text: the help text.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def described() -> dict[str, tuple[Described, ...]]:
    """The metrics of each section, by name."""
    common = CollectorRegistry()
    add_common(common, "part")
    shared = _of(common)
    known = {one.name for one in shared}
    rest = {
        part: tuple(one for one in _of(registry) if one.name not in known)
        for part, registry in _registries().items()
    }
    return {"every part": shared, **rest}


def _registries() -> dict[str, CollectorRegistry]:
    """The registry of each part, with all collectors that it can have, and no samples."""
    store = SimpleNamespace(waiting_count=0, waiting_bytes=0, dropped_count=0, failures_count=0)
    publisher, measurer = (
        SimpleNamespace(is_reachable=None, dropped_count=0),
        SimpleNamespace(away_since=None),
    )
    of_node = monitor.metrics.NodeMetrics(
        NodeName("node"), cast("Any", store), cast("Any", publisher), cast("Any", measurer)
    )
    broker = CollectorRegistry()
    # Without a container, the collector reads only these attributes of its engine.
    node_core = SimpleNamespace(
        journal_length=0, audit=None, measuring=None, share_findings=None, memory_requests=None
    )
    engine = SimpleNamespace(node=node_core, driver_lines=None, disk_failures=0)
    broker.register(hook.broker.metrics._Uses(cast("Any", engine)))  # noqa: SLF001 - a part serves it, and nobody else makes it
    placing = placer.metrics.Metrics().registry
    for collector in (
        placer.metrics.decisions.PromisedGpus(Ledger()),
        placer.metrics.decisions.PromisedNamespaces(Ledger(), lambda _: None),
        placer.metrics.reports.UnhealthyGpus(tuple),
        QueuedPods(Queue()),
    ):
        placing.register(cast("Any", collector))
    ExtenderMetrics(placing)
    alerts = CollectorRegistry()
    reader = SimpleNamespace(silent_s=lambda: 0.0, damaged=0)
    alerts.register(AlertMetrics(cast("Any", reader), (), dict))
    return {
        "monitor": of_node.registry,
        "broker": broker,
        "placer": placing,
        "webhook": placer.webhook.metrics.WebhookMetrics().registry,
        "pool": placer.pool.metrics.PoolMetrics().registry,
        "alerts": alerts,
    }


def _of(registry: CollectorRegistry) -> tuple[Described, ...]:
    # Not `registry.collect()`, which gives no labels where there are no samples.
    collectors = list(registry._collector_to_names)  # noqa: SLF001 - no public way to them
    found = {one.name: one for collector in collectors for one in _families(collector)}
    return tuple(found[name] for name in sorted(found))


def _families(collector: Any) -> Iterator[Described]:  # noqa: ANN401 - prometheus_client types no collectors
    for family in collector.collect():
        labels = _labels(collector if isinstance(collector, MetricWrapperBase) else family)
        if family.type == "info":
            labels = ("part", "version")
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield Described(family.name + ending, family.type, labels, family.documentation)


def _labels(source: Any) -> tuple[str, ...]:  # noqa: ANN401 - likewise
    by_sample = source.samples[0].labels if getattr(source, "samples", ()) else ()
    return tuple(getattr(source, "_labelnames", None) or (label for label in by_sample if label != "le"))


def tables(sections: Mapping[str, Sequence[Described]]) -> str:
    """The generated part of the page."""
    lines: list[str] = []
    for part, metrics in sections.items():
        lines += ["", f"## {part.capitalize()}", "", PARTS[part], ""]
        lines += ["| metric | type | labels | says |", "| --- | --- | --- | --- |"]
        for one in metrics:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            lines.append(f"| `{one.name}` | {one.kind} | {labels} | {one.text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables(described()))
