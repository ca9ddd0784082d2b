"""The placer's metrics as Prometheus reads them."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.metrics import Metrics
from placer.metrics.decisions import PromisedGpus, PromisedNamespaces
from placer.scheduler.queue.metrics import QueuedPods
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from tests.placer.scheduler.queue.queues import waiting_pod

N1, GPU = NodeName("n1"), GpuUuid("GPU-1")


def families(metrics: Metrics) -> dict[str, str]:
    """The type of each metric that the registry exposes."""
    text = generate_latest(metrics.registry).decode()
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def all_metrics() -> Metrics:
    """The placer's metrics with its collectors, as a placer of Kubernetes has them."""
    metrics = Metrics()
    metrics.registry.register(PromisedGpus(Ledger()))
    metrics.registry.register(QueuedPods(Queue()))
    return metrics


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plimsoll_placer_waiting_pods", "gauge"),
        ("plimsoll_placer_parked_pods", "gauge"),
        ("plimsoll_placer_queue_wait_seconds", "histogram"),
        ("plimsoll_placer_decisions", "counter"),
        ("plimsoll_placer_decision_seconds", "histogram"),
        ("plimsoll_placer_shared_refusals", "counter"),
        ("plimsoll_placer_probes", "counter"),
        ("plimsoll_placer_bind_seconds", "histogram"),
        ("plimsoll_placer_bind_failures", "counter"),
        ("plimsoll_placer_pending_bound_seconds", "histogram"),
        ("plimsoll_placer_news_waiting", "gauge"),
        ("plimsoll_placer_news_coalesced", "counter"),
        ("plimsoll_placer_news_dropped", "counter"),
        ("plimsoll_placer_promised_bytes", "gauge"),
        ("plimsoll_placer_promised_share_ratio", "gauge"),
        ("plimsoll_placer_unpublished", "counter"),
    ],
)
def test_metric_is_exposed(name: str, kind: str) -> None:
    """Each metric is there from the start, so that alerts on it work."""
    assert families(all_metrics())[name] == kind


def test_waiting_pods_are_counted_by_place_and_by_cause() -> None:
    """Places and causes without a pod show 0."""
    metrics, queue = Metrics(), Queue()
    metrics.registry.register(QueuedPods(queue))
    queue.update(waiting_pod("p"), 0)

    def count(place: str) -> float | None:
        return metrics.registry.get_sample_value("plimsoll_placer_waiting_pods", {"place": place})

    assert (count("fresh"), count("parked")) == (1, 0)
    assert metrics.registry.get_sample_value("plimsoll_placer_parked_pods", {"cause": "memory"}) == 0


def test_promises_are_summed_for_each_gpu_and_namespace() -> None:
    """Bytes and shares of all pods on a GPU are summed, and a GPU without a promise has no series."""
    metrics, ledger = Metrics(), Ledger()
    metrics.registry.register(PromisedGpus(ledger))
    metrics.registry.register(PromisedNamespaces(ledger, {PodUid("p0"): "team", PodUid("p1"): "team"}.get))
    for index in range(2):
        grant = Grant(ContainerName("main"), GPU, 1000, 30, 100, whole=False, line_bytes=1000)
        ledger.book(Booking(PodUid(f"p{index}"), N1, (grant,)))
    labels = {"node": N1, "gpu": GPU}
    value = metrics.registry.get_sample_value
    assert value("plimsoll_placer_promised_bytes", labels) == 2000
    assert value("plimsoll_placer_promised_share_ratio", labels) == 0.6
    of_team = {"namespace": "team"}
    assert value("plimsoll_placer_namespace_promised_bytes", of_team) == 2000
    assert value("plimsoll_placer_namespace_promised_share_ratio", of_team) == 0.6
    for index in range(2):
        ledger.forget(PodUid(f"p{index}"))
    assert value("plimsoll_placer_promised_bytes", labels) is None
    assert value("plimsoll_placer_namespace_promised_bytes", of_team) is None
