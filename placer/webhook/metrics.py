"""The webhook's metrics, in a registry of their own. `app.py` makes them once and passes them to each part."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plimsoll.part.metrics import add_common

REVIEW_BUCKETS_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


class ReviewMetrics:
    """The reviews and their answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answered = Counter(
            "plimsoll_webhook_reviews",
            "Reviews answered, by outcome; `malformed` for bodies that are no reviews.",
            ["outcome"],
            registry=registry,
        )
        self.translated = Counter(
            "plimsoll_webhook_translated",
            "Admitted pods that asked for GPUs in another scheduler's terms.",
            registry=registry,
        )
        self.seconds = Histogram(
            "plimsoll_webhook_review_seconds",
            "Time of an answer, once the body is read.",
            buckets=REVIEW_BUCKETS_S,
            registry=registry,
        )


class CertificateMetrics:
    """The served certificate, and the rounds that keep it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.expiry_seconds = Gauge(
            "plimsoll_webhook_certificate_expiry_timestamp_seconds",
            "The end of the served certificate, in seconds since 1970; 0 before one is served.",
            registry=registry,
        )
        self.rotations = Counter(
            "plimsoll_webhook_certificate_rotations",
            "Times that this replica began to serve another certificate.",
            registry=registry,
        )
        self.failures = Counter(
            "plimsoll_webhook_authority_failures",
            "Rounds in which the Secret or the configuration was not read or written.",
            registry=registry,
        )


class WebhookMetrics:
    """Counters, gauges and a histogram by subject; every name begins with `plimsoll_webhook_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add_common(self.registry, "webhook")
        self.reviews = ReviewMetrics(self.registry)
        self.certificates = CertificateMetrics(self.registry)
