"""The summary of waiting pods: bounded, in order, and the reasons of all."""

from placer.kube.live import KubePods
from placer.live.waiting import LONGEST_REASON, REASONS_SHOWN, SHOWN, WaitingSummary
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import PodUid
from plimsoll.kube.models import (
    Container,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from plimsoll.placer_api.live import WaitingPod, WaitingPods
from tests.placer.live.world import Pods, decoded


def pod(name: str, priority: int = 0, since: str = "2026-01-01T00:00:00Z", reason: str = "") -> WaitingPod:
    """A pod without a node."""
    return WaitingPod(
        pod=PodUid(name), namespace="team", name=name, priority=priority, since=since, reason=reason
    )


async def test_the_first_pods_by_priority_and_age_are_shown_and_all_are_counted() -> None:
    """Some of thousands are shown, the total is exact, and the most frequent reasons come first."""
    pods = Pods()
    pods.without_node = [pod(f"p{i:05}", reason=f"reason {min(i % 100, 20)}") for i in range(3000)]
    pods.without_node += [pod("old", since="2025-01-01T00:00:00Z"), pod("high", priority=7)]
    summary = decoded(await WaitingSummary(lambda: [pods]).read(), WaitingPods)
    assert summary.total == 3002
    assert [one.name for one in summary.pods[:3]] == ["high", "old", "p00000"]
    assert len(summary.pods) == SHOWN
    assert summary.reasons[0] == ("reason 20", 2400)
    assert len(summary.reasons) == REASONS_SHOWN


async def test_a_long_reason_is_cut() -> None:
    """A reason that names thousands of things does not fill the page."""
    pods = Pods(without_node=[pod("p", reason="x" * 5000)])
    [shown] = decoded(await WaitingSummary(lambda: [pods]).read(), WaitingPods).pods
    assert (len(shown.reason), shown.reason[-1]) == (LONGEST_REASON, "…")


def test_a_placer_that_refused_nothing_itself_reads_the_refusal_on_the_pod() -> None:
    """The placer's own last refusal comes first; without one, the condition that the leader wrote."""
    condition = PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    waits = Pod(
        metadata=ObjectMeta(name="p", namespace="team", uid="u"),
        spec=PodSpec(
            priority=3,
            containers=[
                Container("main", resources=ResourceRequirements(limits={"plimsoll.dev/gpu-memory": "8Gi"}))
            ],
        ),
        status=PodStatus(conditions=[condition]),
    )
    queue = Queue()
    queue.update(waits, 0.0)
    index = PodIndex()
    index.put(waits)
    pods = KubePods(index, queue)
    [one] = pods.waiting()
    assert (one.name, one.priority, one.asks) == ("p", 3, "8Gi on 1 GPU")
    assert one.reason == "0/3 nodes are available"
    [waiting] = queue
    waiting.refused_for = "0/4 nodes are available"
    [one] = pods.waiting()
    assert one.reason == "0/4 nodes are available"
    assert pods.name_of(PodUid("u")) == ("team", "p")
    assert pods.name_of(PodUid("nobody")) is None
