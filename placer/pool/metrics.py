"""The pool controller's metrics, in a registry of their own. `app.py` makes them once and passes them on."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plimsoll.part.metrics import add_common

ACQUIRE_BUCKETS_S: Final = (0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300)
"""A pod starts in seconds; its image may have to be pulled first."""


class GpuMetrics:
    """The GPUs of the pool."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.phases = Gauge(
            "plimsoll_pool_gpus",
            "GPUs that the pool has of device plugins, by phase: acquiring, active, idle, releasing, cordoned.",
            ["phase"],
            registry=registry,
        )
        self.lost = Gauge(
            "plimsoll_pool_lost_gpus",
            "GPUs that pods use without a reservation, so that Kubernetes may hand them out a second time.",
            registry=registry,
        )
        self.losses = Counter(
            "plimsoll_pool_losses",
            "Times that a GPU in use was found without its reservation.",
            registry=registry,
        )


class ReservationMetrics:
    """The steps that make and end reservations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.steps = Counter(
            "plimsoll_pool_steps",
            "Writes of reservations, by step: reserve, learn, give, keep, drop.",
            ["step"],
            registry=registry,
        )
        self.failures = Counter(
            "plimsoll_pool_failed_reservations",
            "Reservations that got no GPU, or were ended by the kubelet.",
            registry=registry,
        )
        self.acquire_seconds = Histogram(
            "plimsoll_pool_acquire_seconds",
            "Time from a reservation's creation until its GPU is in the pool.",
            buckets=ACQUIRE_BUCKETS_S,
            registry=registry,
        )


class PoolMetrics:
    """Counters, gauges and a histogram by subject; every name begins with `plimsoll_pool_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add_common(self.registry, "pool")
        self.gpus = GpuMetrics(self.registry)
        self.reservations = ReservationMetrics(self.registry)
        self.leader = Gauge(
            "plimsoll_pool_leader",
            "1 while this controller holds the Lease, and so takes and gives GPUs, else 0.",
            registry=self.registry,
        )
        self.write_failures = Counter(
            "plimsoll_pool_write_failures",
            "Writes, and renewals of the Lease, that the API server did not carry out.",
            registry=self.registry,
        )
