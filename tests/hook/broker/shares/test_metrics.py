"""Compute shares in Prometheus' form."""

from collections.abc import Iterable
from dataclasses import replace

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from hook.broker.core.shares.events import GateState, ShareTerms, ShareUse
from hook.broker.metrics import ShareRow, share_families
from plimsoll.ids import GpuUuid

NAMES = ("default", "train", "6c4b1c0e", "main")
LABELS = {"namespace": "default", "pod": "train", "uid": "6c4b1c0e", "container": "main"}
USE = ShareUse(
    ShareTerms((GpuUuid("GPU-a"),), request_pct=30, limit_pct=80), GateState.SHUT, used_pct=29.5,
    busy_s=100.25, waited_s=200.5, waits=7,
)  # fmt: skip


class _Rows(Collector):
    def __init__(self, *uses: ShareUse) -> None:
        self._rows = [ShareRow(NAMES, use, unmet_count=2) for use in uses]

    def collect(self) -> Iterable[Metric]:
        return share_families(self._rows)


def _samples(*uses: ShareUse) -> dict[str, float]:
    """The scraped samples by name; those of a gate by name and state."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows(*uses))
    text = generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {}
    for sample in samples:
        assert {name: value for name, value in sample.labels.items() if name != "state"} == LABELS
        name = sample.name.removeprefix("plimsoll_hook_")
        found[f"{name}={sample.labels['state']}" if "state" in sample.labels else name] = sample.value
    return found


def test_every_number_of_a_share_is_a_series_in_base_units() -> None:
    """Ratios are 0 to 1, times are seconds, and exactly one state of the gate is 1."""
    assert _samples(USE) == {
        "share_used_ratio": 0.295,
        "share_requested_ratio": 0.3,
        "share_limit_ratio": 0.8,
        "gate_state=open": 0,
        "gate_state=metered": 0,
        "gate_state=shut": 1,
        "share_used_seconds_total": 100.25,
        "share_waited_seconds_total": 200.5,
        "share_waits_total": 7,
        "share_unmet_total": 2,
    }


def test_an_open_gate_has_no_use() -> None:
    """Behind an open gate the unknown use is absent, and the promised share is there."""
    samples = _samples(replace(USE, state=GateState.OPEN))
    assert "share_used_ratio" not in samples
    assert samples["share_requested_ratio"] == 0.3
    assert samples["gate_state=open"] == 1


def test_whole_gpus_have_no_share() -> None:
    """A container that owns its GPUs has no series of a share."""
    assert _samples(replace(USE, terms=replace(USE.terms, whole=True))) == {}
