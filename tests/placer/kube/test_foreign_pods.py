"""A pod that somebody else bound counts on every GPU that it may use."""

import msgspec
import pytest

from placer.core.reasons import Reason
from placer.webhook.core.judgement import AdmissionRules, judge_creation
from plimsoll.kube.models import Pod, decode_pod
from tests.placer.kube.decided import decided, decision_text
from tests.placer.kube.one_node import GPUS, N1, UID, WHOLE, Node, bound, sized


def replace_version(pod: Pod, version: str) -> Pod:
    """The pod with another resourceVersion."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, resourceVersion=version)
    )


def test_a_foreign_pod_stays_counted_after_the_report_of_its_node_is_forgotten() -> None:
    """A forgotten report leaves nothing behind but the bookings that were made from it."""
    node = Node()
    node.report(*GPUS)
    node.cluster.confirm(bound())
    node.cluster.bookings.forget_report(N1)
    assert not node.cluster.bookings._usable_bytes
    node.cluster.confirm(bound(version="11"))
    booking = node.ledger.booking(UID)
    assert booking is not None
    assert {grant.gpu for grant in booking.grants} == set(GPUS)


def test_a_foreign_pod_counts_against_every_gpu_of_its_node() -> None:
    """A pod without a decision takes bytes and share on each GPU, also of a later report, and is reported once."""
    node = Node()
    stranger = bound(limits={"plimsoll.dev/gpu-memory": "20Gi", "plimsoll.dev/gpu-share": "60"})
    node.cluster.confirm(stranger)
    assert node.why_not(sized(5)) == dict.fromkeys(GPUS)
    node.report(GPUS[0])
    assert node.why_not(sized(5))[GPUS[0]] is Reason.GPU_MEMORY
    node.report(*GPUS)
    assert node.why_not(sized(5)) == dict.fromkeys(GPUS, Reason.GPU_MEMORY)
    assert node.why_not(sized(4, 41)) == dict.fromkeys(GPUS, Reason.GPU_SHARE)
    assert node.why_not(sized(4, 40)) == dict.fromkeys(GPUS)
    assert node.why_not(WHOLE) == dict.fromkeys(GPUS, Reason.GPU_NOT_EMPTY)
    node.cluster.confirm(replace_version(stranger, "11"))
    [told] = node.doubts
    assert told.doubt is not None
    assert told.doubt.foreign
    assert "counts against every GPU of n1" in told.doubt.reason
    assert node.cluster.forget(UID)
    assert node.why_not(WHOLE) == dict.fromkeys(GPUS)


@pytest.mark.parametrize(("is_held", "start"), [(False, "held by nothing; metadata."), (True, "metadata.")])
def test_a_foreign_pod_that_nothing_holds_says_so(is_held: bool, start: str) -> None:  # noqa: FBT001 - a row
    """A pod that was bound without pages and library says what it lacks, and with which remedy."""
    node = Node()
    stranger = bound()
    if is_held:
        asked = msgspec.to_builtins(bound(schedulerName="plimsoll", nodeName=None))
        stored = judge_creation(asked, AdmissionRules()).pod
        stored = {**stored, "spec": {**stored["spec"], "nodeName": N1}}
        stranger = decode_pod(msgspec.json.encode(stored))
    node.report(*GPUS)
    node.cluster.confirm(stranger)
    [told] = node.doubts
    assert told.doubt is not None
    assert told.doubt.unheld is not is_held
    assert told.doubt.reason.startswith(start)
    lacks = "spec.containers[main].volumeMounts: [] have no volume with its pages"
    assert (lacks in told.doubt.reason) is not is_held


def test_two_gpus_worth_of_memory_count_by_half_on_each() -> None:
    """A foreign pod's bytes are split by its number of GPUs, as each GPU gets no more than that."""
    node = Node()
    node.report(*GPUS)
    node.cluster.confirm(bound(limits={"plimsoll.dev/gpu-memory": "20Gi", "plimsoll.dev/gpu": "2"}))
    assert node.why_not(sized(14)) == dict.fromkeys(GPUS)
    assert node.why_not(sized(15)) == dict.fromkeys(GPUS, Reason.GPU_MEMORY)


def test_a_foreign_pod_counts_by_the_most_of_all_moments_of_its_life() -> None:
    """The larger of a foreign pod's init container and its container counts on each GPU, and a sidecar with both."""
    node = Node()
    node.report(*GPUS)
    limits = [{"plimsoll.dev/gpu-memory": size} for size in ("2Gi", "16Gi")]
    init = [{"name": f"i{n}", "resources": {"limits": one}} for n, one in enumerate(limits)]
    init[0]["restartPolicy"] = "Always"
    node.cluster.confirm(bound(initContainers=init))
    assert node.why_not(sized(6)) == dict.fromkeys(GPUS)
    assert node.why_not(sized(7)) == dict.fromkeys(GPUS, Reason.GPU_MEMORY)


@pytest.mark.parametrize(
    "stranger",
    [
        bound(limits={"plimsoll.dev/gpu": "1"}),
        bound({"plimsoll.dev/best-effort": "true"}, {"plimsoll.dev/gpu": "1"}),
        bound(decided("{}"), {"plimsoll.dev/gpu": "1"}),
        bound({"gpus.plimsoll.dev/main": "GPU-1"}, {"plimsoll.dev/gpu": "1"}),
        bound(limits={"plimsoll.dev/gpu-share": "101"}),
        bound(limits={}, initContainers=[{"name": "i", "resources": {"limits": {"plimsoll.dev/gpu": "1"}}}]),
    ],
    ids=["whole", "best effort", "damaged decision", "no decision", "unreadable request", "init container"],
)
def test_a_foreign_pod_of_unknown_or_whole_gpus_takes_them_all(stranger: Pod) -> None:
    """No GPU of the node is free where a foreign pod requests whole GPUs, or something unreadable."""
    node = Node()
    node.report(*GPUS)
    node.cluster.confirm(stranger)
    assert node.why_not(sized(1)) == dict.fromkeys(GPUS, Reason.GPU_TAKEN_WHOLE)
    assert len(node.doubts) == 1
    node.cluster.confirm(bound(decided(decision_text("GPU-1", 1)), version="11"))
    assert node.why_not(sized(1)) == dict.fromkeys(GPUS, Reason.GPU_TAKEN_WHOLE)


def test_a_pod_without_a_gpu_counts_on_none() -> None:
    """Neither a pod with CPU alone nor one of NVIDIA's device plugin is in the ledger."""
    node = Node()
    node.report(*GPUS)
    for number, limits in enumerate(({"cpu": "1"}, {"nvidia.com/gpu": "1"}, {"plimsoll.dev/gpu": "0"})):
        node.cluster.confirm(bound(limits=limits, uid=f"p{number}"))
    assert (list(node.ledger.bookings()), node.doubts) == ([], [])
