"""Locality labels hold under every policy, for any pods that come and go, and after a restart."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.booking import Booking, booking_of
from placer.core.ledger import Ledger, NotBookedError
from placer.core.locality import gpu_labels
from placer.core.planning import check_supported
from placer.core.policies import POLICIES, policy_named
from placer.core.policy_context import Request
from placer.core.reasons import Reason
from placer.core.refusal import Refusal, together
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.scheduler.binding.binding import decision_annotations
from plimsoll.demand import parse_pod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.locality import NO_LABELS, Locality
from plimsoll.part.errors import InputError
from tests.placer.core.worlds import gpu, state
from tests.placer.locality import Placed, violations
from tests.slow import examples

AFFINITY, ANTI, EXCLUSION = (f"plimsoll.dev/{name}" for name in ("affinity", "anti-affinity", "exclusion"))
NAMES = [*POLICIES, "fragmentation", "plimsoll"]
MEMORY, SHARE = "plimsoll.dev/gpu-memory", "plimsoll.dev/gpu-share"


def pod_of(
    name: str,
    gib: float,
    labels: dict[str, str],
    namespace: str = "red",
    containers: int = 1,
    share_pct: int = 0,
) -> dict[str, Any]:
    """A pod with this much memory and compute time for each container, and these annotations."""
    limits = {MEMORY: f"{int(gib * 1024)}Mi", SHARE: str(share_pct)}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "annotations": labels,
        },
        "spec": {
            "containers": [{"name": f"c{n}", "resources": {"limits": limits}} for n in range(containers)]
        },
    }


def read(document: dict[str, Any]) -> Pod:
    """The pod as the placer reads it."""
    return decode_pod(json.dumps(document))


@dataclass
class Cluster:
    """Nodes `a`, `b`, … with GPUs of 24 GiB, and the pods that were placed there, as the API server has them."""

    nodes: dict[str, int]
    decider: Decider = field(init=False)
    bound: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin anew with what the bound pods' annotations say."""
        reports, ledger = ReportView(), Ledger()
        self.decider = Decider(reports, ledger, Metrics())
        for node, count in self.nodes.items():
            reports.apply(state(node, *(gpu(f"GPU-{node}{index}") for index in range(count))))
        for pod in self.bound.values():
            booking = booking_of(pod)
            assert booking is not None
            ledger.restore(booking)

    def place(self, document: dict[str, Any], policy: str = "headroom") -> set[str] | tuple[str, ...]:
        """Place a pod; returns the GPUs, or the reasons of the nodes."""
        pod = read(document)
        demand = parse_pod(pod)
        check_supported(demand)
        request = Request(PodUid(pod.metadata.uid), demand)
        decided = self.decider.decide(request, policy_named(policy, "policy"))
        if isinstance(decided, Refusal):
            tried = [
                self.decider.plan_on(request, policy_named(policy, "policy"), NodeName(node))
                for node in self.nodes
            ]
            refused = together(one for one in tried if isinstance(one, Refusal))
            assert len(refused.reasons) == len(self.nodes), "no node has a place"
            return tuple(sorted({why for reasons in refused.reasons.values() for why in reasons}))
        document = json.loads(json.dumps(document))
        document["metadata"]["annotations"] |= decision_annotations(decided, "2026-01-01T00:00:00Z")
        document["spec"]["nodeName"] = decided.booking.node
        self.bound[document["metadata"]["name"]] = read(document)
        return {str(grant.gpu) for grant in decided.booking.grants}

    def end(self, name: str) -> None:
        """End a pod."""
        pod = self.bound.pop(name)
        self.decider.ledger.forget(PodUid(pod.metadata.uid))

    def violations(self) -> list[str]:
        """The labels that do not hold, by the pods' own annotations."""
        placed = []
        for name, pod in self.bound.items():
            booking = booking_of(pod)
            assert booking is not None
            gpus = frozenset(str(grant.gpu) for grant in booking.grants)
            placed.append(Placed(name, gpus, parse_pod(pod).locality))
        return violations(placed)


MEMORY_FULL = "Insufficient plimsoll.dev/gpu-memory on one GPU"


@pytest.mark.parametrize("policy", NAMES)
def test_affinity_goes_to_the_gpu_that_has_the_label_and_waits_if_it_is_full(policy: str) -> None:
    """A second pod follows the first, a third that is too large waits, and the label ends with its pods."""
    cluster = Cluster({"a": 2, "b": 1})
    first = cluster.place(pod_of("one", 10, {AFFINITY: "x"}), policy)
    assert cluster.place(pod_of("two", 10, {AFFINITY: "x"}), policy) == first
    assert cluster.place(pod_of("both", 1, {AFFINITY: "x"}, containers=2), policy) == first
    refused = cluster.place(pod_of("three", 10, {AFFINITY: "x"}), policy)
    assert refused == tuple(sorted((MEMORY_FULL, Reason.AFFINITY.value)))
    assert cluster.place(pod_of("other", 20, {AFFINITY: "y"}), policy) != first
    for name in ("one", "two", "both"):
        cluster.end(name)
    (gpu_of_x,) = first
    assert cluster.place(pod_of("filler", 20, {"plimsoll.dev/gpu-id": gpu_of_x}), policy) == first
    assert isinstance(cluster.place(pod_of("three", 10, {AFFINITY: "x"}), policy), set)


@pytest.mark.parametrize("policy", NAMES)
def test_anti_affinity_takes_a_gpu_each(policy: str) -> None:
    """Pods with one label spread over the GPUs, and the next one waits; pods without it share them."""
    cluster = Cluster({"a": 2, "b": 1})
    given = [cluster.place(pod_of(f"p{n}", 1, {ANTI: "x"}), policy) for n in range(3)]
    assert {one for gpus in given for one in gpus} == {"GPU-a0", "GPU-a1", "GPU-b0"}
    assert cluster.place(pod_of("late", 1, {ANTI: "x"}), policy) == (Reason.ANTI_AFFINITY.value,)
    assert isinstance(cluster.place(pod_of("plain", 1, {}), policy), set)
    assert isinstance(cluster.place(pod_of("other", 1, {ANTI: "y"}), policy), set)
    cluster.end("p1")
    assert cluster.place(pod_of("late", 1, {ANTI: "x"}), policy) == given[1]


@pytest.mark.parametrize("policy", NAMES)
def test_exclusion_keeps_a_gpu_for_the_label(policy: str) -> None:
    """An exclusion keeps out pods of other labels and of none, and takes no GPU that has such pods."""
    cluster = Cluster({"a": 2})
    first = cluster.place(pod_of("one", 1, {EXCLUSION: "x"}), policy)
    other = cluster.place(pod_of("plain", 1, {}), policy)
    assert first != other
    assert cluster.place(pod_of("big", 24, {}), policy) == tuple(sorted((MEMORY_FULL, Reason.EXCLUDED.value)))
    assert cluster.place(pod_of("two", 1, {EXCLUSION: "x"}), policy) == first
    assert cluster.place(pod_of("y", 1, {EXCLUSION: "y"}), policy) == (Reason.EXCLUSION.value,)
    cluster.end("plain")
    assert cluster.place(pod_of("y", 1, {EXCLUSION: "y"}), policy) == other


def test_labels_of_another_namespace_mean_nothing() -> None:
    """A tenant that guesses a label neither joins a GPU by affinity or exclusion, nor keeps others out by it."""
    cluster = Cluster({"a": 2})
    red = cluster.place(pod_of("red", 1, {AFFINITY: "x", EXCLUSION: "x", ANTI: "x"}))
    blue = cluster.place(pod_of("blue", 1, {AFFINITY: "x", EXCLUSION: "x"}, "blue"))
    assert red != blue
    assert cluster.place(pod_of("green", 1, {ANTI: "x", EXCLUSION: "x"}, "green")) == (
        Reason.EXCLUSION.value,
    )
    cluster = Cluster({"a": 1})
    for namespace in ("red", "blue"):
        assert cluster.place(pod_of(namespace, 1, {ANTI: "x"}, namespace)) == {"GPU-a0"}


def test_a_pod_whose_labels_contradict_each_other_waits_with_both_reasons() -> None:
    """The second of two pods that must share a GPU and must not is refused, and the reasons name both labels."""
    cluster = Cluster({"a": 2, "b": 1})
    cluster.place(pod_of("one", 1, {AFFINITY: "x", ANTI: "y"}))
    refused = cluster.place(pod_of("two", 1, {AFFINITY: "x", ANTI: "y"}))
    assert refused == tuple(sorted((Reason.AFFINITY.value, Reason.ANTI_AFFINITY.value)))


def test_affinity_of_several_gpus_and_bad_labels_are_refused_by_name() -> None:
    """A label is a single GPU, so a container with two GPUs cannot have it. A malformed label gets a remedy."""
    document = pod_of("p", 2, {AFFINITY: "x"})
    document["spec"]["containers"][0]["resources"]["limits"]["plimsoll.dev/gpu"] = 2
    with pytest.raises(
        InputError, match=r"affinity.*names one GPU and container c0 asks for 2; ask for 1 GPU"
    ):
        check_supported(parse_pod(read(document)))
    for name in (AFFINITY, ANTI, EXCLUSION):
        with pytest.raises(InputError, match=rf"{name}\].*'a/b' is no label; give 1 to 63 letters"):
            parse_pod(read(pod_of("p", 2, {name: "a/b"})))


def test_the_ledger_refuses_a_plan_that_labels_have_overtaken() -> None:
    """A plan that was made before another booking took the label, or the GPU, is no booking."""
    plans = {}
    for name, labels in (("x", {AFFINITY: "x"}), ("e", {EXCLUSION: "e"}), ("z", {ANTI: "z"}), ("plain", {})):
        cluster = Cluster({"a": 1} if name != "x" else {"b": 1})
        cluster.place(pod_of(name, 1, labels))
        found = booking_of(cluster.bound[name])
        assert found is not None
        plans[name] = found
    cases: tuple[tuple[str, dict[str, str]], ...] = (
        ("x", {AFFINITY: "x"}),
        ("e", {}),
        ("plain", {EXCLUSION: "f"}),
        ("z", {ANTI: "z"}),
    )
    for name, taken in cases:
        cluster = Cluster({"a": 1})
        cluster.place(pod_of("other", 1, taken))
        with pytest.raises(NotBookedError, match=r"a label keeps pod|to a second GPU"):
            cluster.decider.ledger.book(plans[name])


LABEL = st.sampled_from([None, None, "x", "y"])
PODS = st.tuples(
    st.just("place"),
    st.sampled_from([0.5, 2.0, 9.0, 20.0]),
    st.tuples(LABEL, LABEL, LABEL),
    st.sampled_from(["red", "blue"]),
    st.integers(1, 2),
    st.sampled_from(NAMES),
)


@given(
    st.lists(
        st.one_of(PODS, PODS, PODS, st.tuples(st.just("end"), st.integers(0, 30)), st.just(("restart",))),
        min_size=4,
        max_size=40,
    )
)
@settings(max_examples=examples(200), deadline=None)
def test_no_sequence_of_placements_and_ends_violates_a_label(steps: list[tuple[Any, ...]]) -> None:
    """Whatever comes, goes and restarts, each pair of pods that are bound has the labels' consent."""
    cluster = Cluster({"a": 2, "b": 1})
    for number, step in enumerate(steps):
        match step:
            case ("place", gib, labels, namespace, containers, policy):
                names = zip((AFFINITY, ANTI, EXCLUSION), labels, strict=True)
                given = {name: label for name, label in names if label is not None}
                cluster.place(pod_of(f"p{number}", gib, given, namespace, containers), policy)
            case ("end", index) if cluster.bound:
                cluster.end(list(cluster.bound)[index % len(cluster.bound)])
            case ("restart",):
                cluster.restart()
        assert cluster.violations() == []


def test_a_pod_of_somebody_else_breaks_no_label_of_ours() -> None:
    """A GPU on which a pod without the label was bound by hand takes no pod with it, and none without it."""
    cluster = Cluster({"a": 1})
    cluster.place(pod_of("one", 1, {EXCLUSION: "x"}))
    known = booking_of(cluster.bound["one"])
    assert known is not None
    cluster.decider.ledger.restore(Booking(PodUid("stranger"), NodeName("a"), known.grants))
    assert cluster.place(pod_of("two", 1, {EXCLUSION: "x"})) == (Reason.EXCLUSION.value,)
    assert cluster.place(pod_of("plain", 1, {})) == (Reason.EXCLUDED.value,)


def test_plans_keep_labels_without_the_namespace_in_the_decision() -> None:
    """A decision says what the pod said, so that a forged one cannot name another namespace's label."""
    cluster = Cluster({"a": 1})
    cluster.place(pod_of("one", 1, {AFFINITY: "x", EXCLUSION: "y"}))
    stated = json.loads((cluster.bound["one"].metadata.annotations or {})["plimsoll.dev/decision"])
    assert stated["labels"] == {"affinity": "x", "exclusion": "y"}
    assert isinstance(booking_of(cluster.bound["one"]), Booking)
    decided = cluster.decider.ledger.booking(PodUid("red-one"))
    assert decided is not None
    assert (decided.locality.affinity, decided.locality.exclusion) == ("red/x", "red/y")


def test_labels_of_a_gpu_are_shown_with_their_namespace() -> None:
    """People read each label once, by kind and name; a GPU of pods without labels shows none."""
    pods = [Locality("a/x", "a/y"), Locality("a/w", exclusion="a/z"), Locality("a/x")]
    assert gpu_labels(pods).words == ("affinity=a/w", "affinity=a/x", "anti-affinity=a/y", "exclusion=a/z")
    assert gpu_labels([NO_LABELS]).words == gpu_labels([]).words == ()
