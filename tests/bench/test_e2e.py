"""The timeline of pods keeps the first moment of each stage, and CPU time is counted by program."""

from typing import Any

from bench.e2e.cpu_time import TICKS_PER_S, per_pod_ms, used_ticks
from bench.e2e.timeline import PodTimeline


def pod(*conditions: str, node: str = "") -> dict[str, Any]:
    """A pod `p`, with a node if one is named, and these conditions true."""
    true = [{"type": one, "status": "True"} for one in conditions]
    status = {"conditions": [*true, {"type": "ContainersReady", "status": "False"}]}
    return {"metadata": {"name": "p"}, "spec": {"nodeName": node} if node else {}, "status": status}


async def test_a_stage_counts_when_it_is_first_seen() -> None:
    """Later events of the same pod change no moment; one event may bring several stages."""
    timeline = PodTimeline()
    timeline.see("ADDED", pod())
    assert timeline.reached_s == {"p": {}}
    timeline.see("MODIFIED", pod(node="n"))
    bound_s = timeline.reached_s["p"]["bound"]
    timeline.see("MODIFIED", pod("PodReadyToStartContainers", "Ready", node="n"))
    found = timeline.reached_s["p"]
    assert found["bound"] == bound_s < found["sandbox"] == found["ready"]
    await timeline.until_ready(["p"])
    timeline.see("DELETED", pod(node="n"))
    await timeline.until_gone(["p"])


def test_cpu_time_is_that_of_each_program_and_pod() -> None:
    """The largest comes first after the sum. Less than a millisecond counts in the sum alone."""
    spent = {"runc": TICKS_PER_S, "kubelet": 2 * TICKS_PER_S, "etcd": 0}
    assert list(per_pod_ms(spent, 4).items()) == [("all", 750), ("kubelet", 500), ("runc", 250)]
    assert used_ticks()["pytest"] > 0
