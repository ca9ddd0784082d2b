"""The metrics that every part has."""

from prometheus_client import CollectorRegistry, Counter, Histogram, enable_created_metrics, generate_latest

from plimsoll.part.metrics import add_common


def test_no_metric_has_a_second_series_for_its_beginning() -> None:
    """A part exposes what it counts, and no `_created` beside each counter and histogram."""
    enable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
    registry = CollectorRegistry()
    add_common(registry, "part")
    Counter("pods", "Pods.", registry=registry).inc()
    Histogram("seconds", "Times.", registry=registry).observe(1)
    text = generate_latest(registry).decode()
    assert "pods_total 1.0" in text
    assert "_created" not in text
