"""The metrics of the extender: requests by verb and outcome, and the time until each answer."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from placer.metrics.kube import WRITE_BUCKETS_S


class ExtenderMetrics:
    """Counters and histograms in the placer's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "plimsoll_placer_extender_requests",
            "Requests of kube-scheduler, by verb and outcome: `fits`, `unfit`, `scored`, `bound`, `not_bound`"
            " (the GPUs or the pod are gone), `undecided` (the API server has not answered), `malformed`, "
            "`unavailable` (this placer cannot bind now) or `forbidden`.",
            ["verb", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "plimsoll_placer_extender_seconds",
            "Time from a request of kube-scheduler to its answer, by verb.",
            ["verb"],
            buckets=WRITE_BUCKETS_S,
            registry=registry,
        )
