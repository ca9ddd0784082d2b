"""The independent arithmetic sees each kind of broken promise, and no other."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.chaos.answers import promises_of, resized
from tests.chaos.asks import UnreadableError, asks_of, quantity
from tests.chaos.fleet import CARDS, FLEET, GIB, ZONE
from tests.chaos.pods import COUNT, MEMORY, SHARE
from tests.chaos.promises import Promise, Sums
from tests.chaos.room import node_for

GPU = "GPU-00-0"
NODE = CARDS[GPU].node


def bound(
    limits: Mapping[str, str], gpus: str = GPU, node: str = NODE, uid: str = "u", **annotations: str
) -> dict[str, Any]:
    """A bound pod with one container; `gpus` is the placer's answer."""
    given = {f"plimsoll.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {
        "metadata": {"name": "p", "uid": uid, "annotations": {"gpus.plimsoll.dev/main": gpus, **given}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": dict(limits)}}]},
    }


def waiting(limits: Mapping[str, str], **annotations: str) -> dict[str, Any]:
    """A pod of one container that waits."""
    pod = bound(limits, **annotations)
    del pod["metadata"]["annotations"]["gpus.plimsoll.dev/main"], pod["spec"]["nodeName"]
    return pod


def sums_of(*promises: Promise) -> Sums:
    """The sums of these promises, each of a pod of its own."""
    sums = Sums(CARDS)
    for promise in promises:
        sums.put(promise.pod, [promise])
    return sums


def promise(pod: str, memory_bytes: int = 0, share_pct: int = 0, *, whole: bool = False) -> Promise:
    """A promise on `GPU`."""
    return Promise(pod, "main", GPU, memory_bytes, share_pct, whole)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4Gi", 4 * GIB),
        ("11500Mi", 11500 << 20),
        ("2000M", 2_000_000_000),
        ("1e3", 1000),
        (7, 7),
        ("1.5Ki", 1536),
    ],
)
def test_quantities_are_exact(text: str | int, value: int) -> None:
    """A quantity is the number that Kubernetes means."""
    assert quantity(text) == value


def test_what_is_no_quantity_is_unreadable() -> None:
    """A text that is no quantity, or a negative one, is not read as a number."""
    for text in ("", "4GiB", "-1", "none"):
        with pytest.raises(UnreadableError):
            quantity(text)


def test_sums_that_fit_are_fine() -> None:
    """Promises of all bytes and of the whole time of a GPU are not broken."""
    sums = sums_of(promise("a", 20 * GIB, 60), promise("b", 3 * GIB, 40), promise("c"))
    assert sums.broken(GPU) == []


@pytest.mark.parametrize(
    ("promises", "problem"),
    [
        ((promise("a", 20 * GIB), promise("b", 3 * GIB + 1)), "bytes are promised"),
        ((promise("a", 1, 60), promise("b", 1, 41)), "101 %"),
        ((promise("a", 0, 100, whole=True), promise("b")), "was given whole"),
    ],
)
def test_each_broken_promise_is_seen(promises: tuple[Promise, ...], problem: str) -> None:
    """A byte too much, a percent too much, and company on a whole GPU are seen, and are not once a pod ends."""
    sums = sums_of(*promises)
    assert [problem in found for found in sums.broken(GPU)] == [True]
    sums.drop("b")
    assert sums.broken(GPU) == []


def staged(*promises: tuple[int, int, int | None, bool], whole: bool = False) -> Sums:
    """The sums of one pod: bytes in GiB, share, place and sidecar of each container."""
    sums = Sums(CARDS)
    given = [
        Promise("a", f"c{n}", GPU, gib * GIB, share, place is not None and whole, place, stays)
        for n, (gib, share, place, stays) in enumerate(promises)
    ]
    sums.put("a", given)
    return sums


def test_containers_that_never_run_at_once_are_not_added_up() -> None:
    """An init container ends before the next, and a sidecar is there with all that begin later."""
    sums = staged((20, 90, 0, False), (2, 10, 1, True), (19, 50, 2, False), (8, 60, None, False))
    assert (sums.bytes_on(GPU), sums.share_on(GPU), sums.broken(GPU)) == (21 * GIB, 90, [])
    assert "bytes are promised" in staged((2, 0, 0, True), (22, 0, 1, False)).broken(GPU)[0]
    assert "110 %" in staged((1, 50, 0, True), (1, 60, None, False)).broken(GPU)[0]
    assert staged((0, 100, 0, False), (8, 60, None, False), whole=True).broken(GPU) == []
    broken = staged((0, 0, 0, True), (8, 60, None, False), whole=True).broken(GPU)
    assert "was given whole" in broken[0]


def test_a_percentage_is_of_each_card() -> None:
    """A quarter of a card is that in whole MiB, and a decision with other bytes is a wrong answer."""
    card = CARDS[GPU]
    quarter = card.usable_bytes // 4 // (1 << 20) * (1 << 20)
    for more, expected in ((0, 0), (1, 1)):
        grant = {"gpu": GPU, "memory_bytes": quarter + more, "line_bytes": quarter + more}
        decision = json.dumps({"containers": {"main": [grant]}})
        pod = bound({COUNT: "1"}, decision=decision, gpu_memory_percent="25")
        promises, problems = promises_of(pod, CARDS)
        assert [one.memory_bytes for one in promises] == [quarter + more]
        assert len(problems) == expected


def test_one_pod_may_not_have_more_than_the_card_where_the_node_overcommits() -> None:
    """On a node that promises 1.5 times its memory, two pods may have 34 GiB of 23 together, and one pod may not."""
    sums = Sums(CARDS)
    sums.put("a", [Promise("a", "main", "GPU-11-0", 17 * GIB, 0, whole=False)])
    sums.put("b", [Promise("b", "main", "GPU-11-0", 17 * GIB, 0, whole=False)])
    assert sums.broken("GPU-11-0") == []
    sums.put("a", [Promise("a", "main", "GPU-11-0", 24 * GIB, 0, whole=False)])
    assert len(sums.broken("GPU-11-0")) == 2


def test_a_promise_is_split_over_the_pods_gpus() -> None:
    """Two GPUs, 10 GiB and 60 % are 5 GiB and 30 % of each."""
    promises, problems = promises_of(
        bound({COUNT: "2", MEMORY: "10Gi", SHARE: "60"}, "GPU-00-0,GPU-00-1"), CARDS
    )
    assert problems == []
    assert {(one.gpu, one.memory_bytes, one.share_pct) for one in promises} == {
        ("GPU-00-0", 5 * GIB, 30),
        ("GPU-00-1", 5 * GIB, 30),
    }


@pytest.mark.parametrize(
    "pod",
    [
        bound({COUNT: "2"}, "GPU-00-0"),
        bound({COUNT: "2"}, "GPU-00-0,GPU-00-0"),
        bound({COUNT: "1"}, "GPU-01-0"),
        bound({COUNT: "1"}, "GPU-unknown"),
        bound({"cpu": "1"}),
        bound({COUNT: "1"}, ""),
        bound({SHARE: "150"}),
    ],
)
def test_a_wrong_answer_is_seen(pod: dict[str, Any]) -> None:
    """Each wrong list of GPUs is a problem: too few, one twice, one of another node, none, and one not asked for."""
    assert promises_of(pod, CARDS)[1] != []


def test_best_effort_promises_nothing_and_is_never_whole() -> None:
    """A request for a GPU and nothing else takes it whole. With the annotation the pod shares it, without memory."""
    assert [ask.whole for ask in asks_of(bound({COUNT: "1"}))] == [True]
    asks = asks_of(bound({COUNT: "1"}, best_effort="true"))
    assert [(ask.whole, ask.best_effort, ask.share_pct) for ask in asks] == [(False, True, 0)]


def decided(**grant: object) -> str:
    """A decision that gives the container `main` this part of `GPU`."""
    return json.dumps({"containers": {"main": [{"gpu": GPU, "line_bytes": 1, **grant}]}})


def test_a_decision_that_holds_everything_is_what_counts() -> None:
    """Bytes, share and whole GPUs are those of the decision, in the Binding and after a resize."""
    pod = bound({MEMORY: "5", SHARE: "20"}, decision=decided(memory_bytes=5, share_pct=20))
    assert promises_of(pod, CARDS) == ((promise("u", 5, 20),), [])
    assert resized((promise("u", 4, 10),), pod) == (promise("u", 5, 20),)
    edited = bound({COUNT: "1"}, best_effort="true", decision=decided(share_pct=100, whole=True))
    assert promises_of(edited, CARDS) == ((promise("u", 0, 100, whole=True),), [])


@pytest.mark.parametrize(
    "decision",
    [decided(memory_bytes=4, share_pct=20), decided(memory_bytes=5), decided(memory_bytes=5, gpu="x")],
)
def test_a_decision_that_is_not_what_the_pod_asks_for_is_seen(decision: str) -> None:
    """Fewer bytes, another share, or another GPU than the answer names is a problem."""
    assert len(promises_of(bound({MEMORY: "5", SHARE: "20"}, decision=decision), CARDS)[1]) == 1


def test_a_pod_fits_only_where_all_doubts_are_gone() -> None:
    """A pod fits on an empty fleet, but not if it asks for too much, for an unknown model, or all GPUs are taken."""
    sums = Sums(CARDS)
    assert node_for(waiting({MEMORY: "4Gi"}), sums, ()) is not None
    assert node_for(waiting({MEMORY: "500Gi"}), sums, ()) is None
    assert node_for(waiting({MEMORY: "4Gi"}, gpu_model="another"), sums, ()) is None
    for gpu in CARDS:
        sums.put(gpu, [Promise(gpu, "main", gpu, 0, 100, whole=True)])
    assert node_for(waiting({MEMORY: "4Gi"}), sums, ()) is None


def test_a_node_counts_what_specs_say_after_a_lowering() -> None:
    """A node whose pods requested its whole share has room for no other, although its GPUs were freed by a resize."""
    sums = Sums(CARDS)
    pod = waiting({MEMORY: "1Gi", SHARE: "10"})
    pod["spec"]["nodeSelector"] = {ZONE: "west"}
    full = [
        bound({SHARE: "200", COUNT: "2"}, node=machine.name) for machine in FLEET if len(machine.cards) == 2
    ] + [bound({SHARE: "400", COUNT: "4"}, node=machine.name) for machine in FLEET if len(machine.cards) == 4]
    assert node_for(pod, sums, ()) == NODE
    assert node_for(pod, sums, full) == "node-08.chaos"
