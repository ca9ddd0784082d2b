"""The metrics of the parts keep Prometheus' conventions."""

import pytest

from tools.metrics import Described, described

ALL = [one for metrics in described().values() for one in metrics]
OURS = [one for one in ALL if one.name.startswith("plimsoll_")]
KINDS = {"counter", "gauge", "histogram", "info"}


@pytest.mark.parametrize("metric", OURS, ids=lambda one: one.name)
def test_names_keep_the_conventions(metric: Described) -> None:
    """Counters end in `_total` and nothing else does; no unit but the base one; no label of a process."""
    assert metric.kind in KINDS
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert not any(word in metric.name for word in ("_ms", "_pct", "_percent", "_mib", "_kb"))
    assert "pid" not in metric.labels
    assert metric.text.endswith("."), "help is a sentence"


def test_each_part_has_metrics_of_its_own() -> None:
    """No name stands for two metrics, and each section has some."""
    names = [one.name for one in ALL]
    assert len(names) == len(set(names))
    assert all(described().values())
