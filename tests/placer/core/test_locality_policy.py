"""KubeShare's Algorithm 1, step by step, as its prose has it."""

from dataclasses import dataclass, replace

import pytest

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import POLICIES
from placer.core.policy_context import Request
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.view import node_view
from plimsoll.demand import parse_pod
from plimsoll.ids import PodUid
from plimsoll.quantity import GIB
from tests.placer.core.test_locality import AFFINITY, ANTI, EXCLUSION, MEMORY_FULL, Cluster, pod_of, read
from tests.placer.core.worlds import gpu, state

_SHARE_FULL = Reason.GPU_SHARE.value

Asked = tuple[float, int, dict[str, str]]
"""Memory in GiB, share in percent, labels."""


@dataclass(frozen=True)
class Step:
    """A pod on GPUs `a0`, `a1` and `b0` of 24 GiB.

    Attributes:
        there: the pods that are there, by GPU.
        gets: the GPU that the pod gets, `a1 or b0` where both are alike, or the reasons why it waits.
    """

    there: dict[str, tuple[Asked, ...]]
    pod: Asked
    gets: str | set[str]


X, Y = {AFFINITY: "x"}, {AFFINITY: "y"}
STEPS = {
    "1, line 3: the GPU of the label, though another fits better": Step(
        {"a0": ((1, 0, X),), "a1": ((20, 0, {}),)}, (2, 0, X), "a0"
    ),
    "1, line 4: not on a GPU of another exclusion label": Step(
        {"a0": ((1, 0, X | {EXCLUSION: "e"}),)},
        (2, 0, X | {EXCLUSION: "f"}),
        {Reason.EXCLUSION.value, Reason.AFFINITY.value},
    ),
    "1, line 4: not on a GPU with an exclusion label, without one": Step(
        {"a0": ((1, 0, X | {EXCLUSION: "e"}),)}, (2, 0, X), {Reason.EXCLUDED.value, Reason.AFFINITY.value}
    ),
    "1, line 5: not beside the same anti-affinity label": Step(
        {"a0": ((1, 0, X | {ANTI: "z"}),)},
        (2, 0, X | {ANTI: "z"}),
        {Reason.ANTI_AFFINITY.value, Reason.AFFINITY.value},
    ),
    "1, line 6: not without memory": Step(
        {"a0": ((20, 0, X),)}, (8, 0, X), {MEMORY_FULL, Reason.AFFINITY.value}
    ),
    "1, line 6: not without compute time": Step(
        {"a0": ((1, 60, X),)}, (1, 50, X), {_SHARE_FULL, Reason.AFFINITY.value}
    ),
    "1, line 9: an idle GPU for a new label, though others fit better": Step(
        {"a0": ((1, 0, {}),), "b0": ((20, 0, {}),)}, (2, 0, X), "a1"
    ),
    "1, line 10 and prose: without an idle GPU, the emptiest one": Step(
        {"a0": ((20, 0, {}),), "a1": ((2, 0, Y),), "b0": ((9, 0, {}),)}, (2, 0, X), "a1"
    ),
    "2, line 17 and prose: a GPU in use is checked too": Step(
        {"a0": ((9, 0, {ANTI: "z"}),), "a1": ((2, 0, {}),)}, (2, 0, {ANTI: "z"}), "a1"
    ),
    "2, line 18: a pod with an exclusion label joins its own": Step(
        {"a0": ((9, 0, {}),), "a1": ((2, 0, {EXCLUSION: "e"}),)}, (2, 0, {EXCLUSION: "e"}), "a1"
    ),
    "2, line 18: a pod with an exclusion label, else an idle GPU": Step(
        {"a0": ((9, 0, {}),), "a1": ((2, 0, {EXCLUSION: "f"}),)}, (2, 0, {EXCLUSION: "e"}), "b0"
    ),
    "2, line 18: a pod without one stays away": Step(
        {"a0": ((20, 0, {EXCLUSION: "e"}),), "a1": ((2, 0, {}),)}, (2, 0, {}), "a1"
    ),
    "2, line 20: memory": Step({"a0": ((20, 0, {}),), "a1": ((2, 0, {}),)}, (8, 0, {}), "a1"),
    "2, line 20: compute time": Step({"a0": ((2, 80, {}),), "a1": ((2, 0, {}),)}, (2, 30, {}), "a1"),
    "3, line 22: best fit among GPUs without an affinity label": Step(
        {"a0": ((9, 0, {}),), "a1": ((2, 0, {}),), "b0": ((20, 0, X),)}, (2, 0, {}), "a0"
    ),
    "3, line 22: compute time counts as memory does": Step(
        {"a0": ((6, 0, {}),), "a1": ((2, 70, {}),), "b0": ((8, 0, {}),)}, (2, 0, {}), "a1"
    ),
    "3, line 22: an idle GPU before one with an affinity label": Step(
        {"a0": ((1, 0, X),), "a1": ((1, 0, Y),)}, (2, 0, {}), "b0"
    ),
    "3, line 23: worst fit among GPUs with an affinity label": Step(
        {"a0": ((9, 0, X),), "a1": ((2, 0, Y),), "b0": ((22, 0, {}),)}, (4, 0, {}), "a1"
    ),
    "3, line 25 and prose: labels of both kinds are recorded": Step(
        {"a0": ((9, 0, {ANTI: "z", EXCLUSION: "e"}),)}, (2, 0, {ANTI: "z", EXCLUSION: "e"}), "a1 or b0"
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_algorithm_1(name: str) -> None:
    """Each step of the listing takes the GPU that the prose names, or gives its reasons."""
    step, cluster = STEPS[name], Cluster({"a": 2, "b": 1})
    for uuid, pods in step.there.items():
        for number, (gib, share_pct, labels) in enumerate(pods):
            pinned = {**labels, "plimsoll.dev/gpu-id": f"GPU-{uuid}"}
            placed = cluster.place(pod_of(f"{uuid}-{number}", gib, pinned, share_pct=share_pct), "locality")
            assert placed == {f"GPU-{uuid}"}
    gib, share_pct, labels = step.pod
    gets = cluster.place(pod_of("p", gib, labels, share_pct=share_pct), "locality")
    if isinstance(step.gets, set):
        assert set(gets) == step.gets
        assert isinstance(gets, tuple)
    else:
        assert gets in [{f"GPU-{uuid}"} for uuid in step.gets.split(" or ")]


def test_a_new_gpu_is_acquired_only_where_none_of_the_pool_fits() -> None:
    """Line 24: the GPUs of the pool are filled first, and a pod that none of them fits waits for another one."""
    view = node_view(state("a", gpu("GPU-a0"), gpu("GPU-a1")))
    view = replace(view, gpus=view.gpus[:1], outside=view.gpus[1:], acquirable=1)
    ledger = Ledger()

    def plan(name: str) -> Plan | Refusal:
        demand = parse_pod(read(pod_of(name, 14, {})))
        return plan_on(Request(PodUid(name), demand), view, ledger, POLICIES["locality"])

    first = plan("one")
    assert isinstance(first, Plan)
    ledger.book(first.booking)
    second = plan("two")
    assert isinstance(second, Refusal)
    assert second.reasons["a"] == (Reason.ACQUIRING.value,)  # type: ignore[index]


def test_a_gpu_without_pods_is_idle_whatever_unknown_processes_hold() -> None:
    """Line 9: a new label goes to the GPU without pods, though unknown processes leave less free there."""
    view = node_view(state("a", gpu("GPU-a0", other_bytes=6 * GIB), gpu("GPU-a1")))
    ledger = Ledger()

    def place(name: str, labels: dict[str, str]) -> str:
        demand = parse_pod(read(pod_of(name, 1, labels)))
        planned = plan_on(Request(PodUid(name), demand), view, ledger, POLICIES["locality"])
        assert isinstance(planned, Plan)
        ledger.book(planned.booking)
        return str(planned.booking.grants[0].gpu)

    assert place("one", {"plimsoll.dev/gpu-id": "GPU-a1"}) == "GPU-a1"
    assert place("labelled", {AFFINITY: "x"}) == "GPU-a0"
