"""The benchmark of the placer runs from end to end, in small, and names every figure."""

from pathlib import Path

import pytest

from bench.measures.percentile import percentile
from bench.placer.__main__ import BenchPlan, Size, measure
from bench.placer.binds import BindWatch
from bench.placer.keys import size_keys
from bench.placer.schedulers import KUBE_SCHEDULER, PLACER

OF_A_SIZE = (
    *("ratio", "settled_ratio", "pending_bound_ms_p50", "pending_bound_ms_p99", "cpu_ms_per_pod"),
    *(
        f"{side}.{figure}"
        for side in (PLACER, KUBE_SCHEDULER)
        for figure in (
            *("pods_per_s", "settled_per_s", "events_ratio", "cpu_ms_per_pod", "bound_cpu_ms_per_pod"),
            *("all_cpu_ms_per_pod", "nodes_used", "rss_mib"),
            "arriving_per_s",
            *("pending_bound_ms_p50", "pending_bound_ms_p99", "created_bound_ms_p50", "created_bound_ms_p99"),
        )
    ),
)
OF_A_RUN = (
    *("decision_ms_p50_1000", "decision_growth_20000", "unplaceable_ms_20000", "rss_mib_20000"),
    *("looked_at_mean_1000", "looked_at_mean_20000", "starved_s_max", "starved_cpu_ratio", "hopeless_bound"),
)


@pytest.mark.slow
async def test_a_run_in_small_has_every_figure(tmp_path: Path) -> None:
    """Both schedulers place all pods on the same nodes, and each figure of the whole run is there."""
    plan = BenchPlan(
        sizes=(Size("n1000", 10, 20, 1, 10, 20.0),),
        hopeless=6,
        placeable=2,
        replays=(("1000", 10, 40), ("20000", 40, 80)),
    )
    found = await measure(plan, tmp_path)
    assert {f"n1000.{name}" for name in OF_A_SIZE} | set(OF_A_RUN) <= set(found)
    assert all(value >= 0 for value in found.values()), found
    # CPU time is counted in ticks of 10 ms, and two events of the watch may come at once: so small a run may have 0.
    sure = ("ratio", "per_s", "nodes_used", "created_bound_ms_p50", "decision_ms_p50_1000", "growth_20000")
    assert all(found[name] > 0 for name in found if name.endswith(sure) and "starved" not in name), found
    assert found["n1000.placer.events_ratio"] == 1.0
    assert (found["hopeless_bound"], found["starved_unbound"]) == (0, 0)
    assert found["n1000.ratio"] == round(
        found["n1000.placer.pods_per_s"] / found["n1000.kube_scheduler.pods_per_s"], 3
    )


def test_the_watch_counts_a_pod_as_bound_once_and_from_its_appearance() -> None:
    """A pod's wait is from its first event to the first event with a node; later events change nothing."""
    binds, firsts = BindWatch(), []
    binds.on_first = lambda: firsts.append(len(binds.seen_s))
    pending = b'{"type":"%s","object":{"metadata":{"name":"p"},"spec":{}}}'
    bound = b'{"type":"MODIFIED","object":{"metadata":{"name":"p"},"spec":{"nodeName":"n"}}}'
    binds.take(pending % b"ADDED", 1.0)
    binds.take(pending % b"MODIFIED", 1.5)
    binds.take(bound, 2.0)
    binds.take(bound, 3.0)
    binds.take(pending % b"DELETED", 4.0)
    assert binds.waits_ms(["p"]) == [1000.0]
    assert firsts == [1]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    """The 99th percentile of a hundred values is the 99th of them, and of one value that value."""
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7.0], 50) == 7.0


def test_the_ratio_is_the_placers_pace_over_kube_schedulers() -> None:
    """A placer with twice the pace has a ratio of 2, and the short keys are its own."""
    figures = {
        "settled_per_s": 1.0,
        "pending_bound_ms_p50": 3.0,
        "pending_bound_ms_p99": 4.0,
        "cpu_ms_per_pod": 5.0,
    }
    found = size_keys(
        "n", {PLACER: {**figures, "pods_per_s": 600.0}, KUBE_SCHEDULER: {**figures, "pods_per_s": 300.0}}
    )
    assert (found["n.ratio"], found["n.pending_bound_ms_p99"]) == (2.0, 4.0)
