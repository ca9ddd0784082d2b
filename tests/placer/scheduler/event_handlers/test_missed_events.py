"""After any changes of nodes, reports and pods, no pod that has a place stays unschedulable; without servers."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer import decide
from placer.core.resize.change import change_of
from placer.scheduler import schedule_pod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import task
from tests.placer.kube.objects import BEST_EFFORT, LABELLED, MEMORY, SHARE, WHOLE, keeper
from tests.placer.kube.scene import Scene, scene
from tests.placer.locality import Placed, violations
from tests.placer.scheduler.cache.drifts import drift_up, mended
from tests.slow import examples

NODES = st.integers(0, 1)


PODS_SHOWN = st.integers(0, 39)
"""The pod that is meant, counted among those that the watch has shown."""


NODE_CHANGES = st.tuples(
    st.just("node"),
    NODES,
    st.sampled_from(["2", "4", "4", "8", "many"]),
    st.sampled_from([None, "a", "a", "b"]),
    st.booleans(),
    st.sampled_from(["ready", "ready", "ready", "not ready", "cordoned", "tainted"]),
)


REPORTS = st.tuples(st.just("report"), NODES, st.lists(st.sampled_from([0, 5, 9, 24]), max_size=2))


WARM_UP: list[dict[str, Any]] = [
    {"name": "proxy", "resources": {"limits": {MEMORY: "2Gi"}}, "restartPolicy": "Always"},
    {"name": "warm", "resources": {"limits": {MEMORY: "9Gi", SHARE: "60"}}},
]


ASKS: tuple[dict[str, Any], ...] = (
    {"limits": {MEMORY: "8Gi"}},
    {"limits": {MEMORY: "8Gi"}},
    {"limits": {MEMORY: "20Gi", "cpu": "3"}},
    {"limits": {MEMORY: "1Gi", SHARE: "60"}},
    {"limits": {WHOLE: "1"}},
    {"limits": {WHOLE: "1"}, "annotations": BEST_EFFORT, "owner": "job"},
    {"limits": {MEMORY: "4Gi", SHARE: "50"}, "more_limits": ({MEMORY: "6Gi"},)},
    {"limits": {WHOLE: "2", MEMORY: "6Gi", SHARE: "60"}, "more_limits": ({MEMORY: "4Gi"},)},
    {"limits": {WHOLE: "1"}, "annotations": {"plimsoll.dev/gpu-memory-percent": "40"}},
    {"limits": {MEMORY: "4Gi"}, "initContainers": WARM_UP},
    {"limits": {"cpu": "3"}},
    {"limits": {"cpu": "3"}},
    {"limits": {MEMORY: "8Gi"}, "annotations": {"plimsoll.dev/affinity": "x"}},
    {
        "limits": {MEMORY: "3Gi"},
        "more_limits": ({MEMORY: "3Gi"},),
        "annotations": {"plimsoll.dev/affinity": "x"},
    },
    {"limits": {MEMORY: "2Gi"}, "annotations": {"plimsoll.dev/anti-affinity": "x"}},
    {"limits": {WHOLE: "2", MEMORY: "4Gi"}, "annotations": {"plimsoll.dev/anti-affinity": "x"}},
    {"limits": {MEMORY: "2Gi"}, "annotations": {"plimsoll.dev/exclusion": "x"}},
    {"limits": {SHARE: "20"}, "annotations": {"plimsoll.dev/exclusion": "y", "plimsoll.dev/affinity": "x"}},
)


PODS = st.tuples(
    st.just("pod"),
    st.sampled_from(ASKS),
    st.sampled_from([{}, LABELLED]),
    st.sampled_from([{}, {}, {"nodeSelector": {"disk": "fast"}}]),
)


STRANGERS = st.tuples(
    st.just("stranger"), NODES, st.sampled_from(["rule", "cpu", "foreign", "foreign whole"])
)


STEPS = st.one_of(
    NODE_CHANGES,
    REPORTS,
    REPORTS,
    PODS,
    PODS,
    PODS,
    PODS,
    PODS,
    STRANGERS,
    st.tuples(st.sampled_from(["no node", "silent", "forgotten"]), NODES),
    st.tuples(st.sampled_from(["end", "end", "edit", "drift", "gone drift"]), PODS_SHOWN),
    st.tuples(
        st.just("resize"),
        PODS_SHOWN,
        st.sampled_from([1, 4, 12, 20]),
        st.sampled_from(["written", "not written", "unclear", "unclear and not written"]),
    ),
    st.tuples(st.just("measure"), PODS_SHOWN, st.sampled_from([300 * MIB, 4 * GIB])),
    st.tuples(st.sampled_from(["wait"])),
)


@given(st.lists(st.tuples(STEPS, st.sampled_from([None, 0, 2, 5])), min_size=30, max_size=60))
@settings(max_examples=examples(150), deadline=None)
async def test_no_pod_that_has_a_place_stays_unschedulable(
    steps: list[tuple[tuple[Any, ...], int | None]],
) -> None:
    """After any changes, no unschedulable pod has a place on any node, unless its next try is under way.

    Each change comes with the pieces of work that are done after it, or None for all, so changes also come during
    explanations. The bounds of one decision are small here, so that clusters of two nodes pass them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "MOST_UNFIT", 1)
        patch.setattr(schedule_pod, "FEW_NODES", 1)
        patch.setattr(schedule_pod, "SLICE", 1)
        await play(steps)


async def play(steps: list[tuple[tuple[Any, ...], int | None]]) -> None:
    """Play changes, and find no unschedulable pod that has a place."""
    async with scene() as found:
        for index in range(2):
            found.node(f"n{index}", {"zone": "a"}, cpu="4")
            found.report(f"n{index}", 24)
        for number, (step, pieces) in enumerate(steps):
            apply(found, step, f"p{number}")
            assert found.missed() == []
            await found.settle(pieces)
            assert found.missed() == []
            assert violated(found) == []
        await found.settle()
        assert found.missed() == []


def violated(found: Scene) -> list[str]:
    """The labels that do not hold among the pods that the placer placed itself."""
    bookings = (one for one in found.ledger.bookings() if one.doubt is None or not one.doubt.foreign)
    gpus = ((one, frozenset(str(grant.gpu) for grant in one.grants)) for one in bookings)
    return violations([Placed(one.pod, own, one.locality) for one, own in gpus if own])


def apply(found: Scene, step: tuple[Any, ...], name: str) -> None:
    """Apply one change; a new pod gets this name."""
    match step:
        case ("node", index, cpu, zone, fast, condition):
            labels = ({"zone": zone} if zone else {}) | ({"disk": "fast"} if fast else {})
            taints = [{"key": "k", "value": "v", "effect": "NoSchedule"}] if condition == "tainted" else []
            ready, cordoned = condition != "not ready", condition == "cordoned"
            found.node(f"n{index}", labels, cpu=cpu, ready=ready, unschedulable=cordoned, taints=taints)
        case ("no node", index):
            found.remove_node(f"n{index}")
        case ("report", index, free):
            found.report(f"n{index}", *free)
        case ("silent", index):
            found.reports.set_silent(NodeName(f"n{index}"))
        case ("forgotten", index):
            found.reports.forget(NodeName(f"n{index}"))
        case ("pod", ask, labels, more):
            found.show(found.pod(name, labels=labels, **ask, **more))
        case ("stranger", index, change):
            found.show(stranger(found, name, f"n{index}", change))
        case ("wait",):
            found.pass_backoff()
        case (change, index, *more) if found.pods:
            change_pod(found, change, list(found.pods)[index % len(found.pods)], *more)


def stranger(found: Scene, name: str, node: str, change: str) -> Pod:
    """A pod that another scheduler placed."""
    if change == "rule":
        return keeper(name, node)
    limits = {"cpu": {"cpu": "4"}, "foreign": {MEMORY: "6Gi"}, "foreign whole": {WHOLE: "1"}}[change]
    return found.pod(name, limits, scheduler="default-scheduler", nodeName=node)


def measure(found: Scene, name: str, used_bytes: int) -> None:
    """A node reports the memory that a pod uses on its first GPU."""
    booking = found.ledger.booking(PodUid(name))
    if booking is None or not booking.grants:
        return
    known = found.reports.get(booking.node)
    if known is not None and known.gpus:
        used = task(name, str(booking.grants[0].gpu), used_bytes)
        found.report(booking.node, *(24 for _ in known.gpus), tasks=(used,))


def change_pod(found: Scene, change: str, name: str, *more: Any) -> None:  # noqa: ANN401 - as drawn
    """Apply a change of a pod that the watch has shown."""
    booking = found.ledger.booking(PodUid(name))
    if change == "end":
        found.delete(name)
    elif change == "edit":
        found.show_again(name, annotations={})
    elif change == "measure":
        measure(found, name, *more)
    elif booking is None or not booking.grants or booking.doubt is not None:
        return
    elif change == "drift":
        drift_up(found, name, 20)
        mended(name)(found)
    elif change == "gone drift":
        mended(name, exists=False)(found)
    elif booking.grants[0].memory_bytes is not None and not found.cache.bookings._resizes:
        resize(found, name, *more)


def resize(found: Scene, name: str, gib: int, outcome: str) -> None:
    """Resize a pod's first container, with this outcome of the write."""
    pod, booking = found.pods[name], found.ledger.booking(PodUid(name))
    assert booking is not None
    asked = Resize(
        pod=name, namespace="default", container=booking.grants[0].container, gpu_memory=f"{gib}Gi"
    )
    change = change_of(booking, asked)
    bookings = found.cache.bookings
    bookings.begin_resize(change, pod.metadata.resourceVersion)
    if outcome.startswith("unclear"):
        bookings.doubt_resize(change)
    else:
        bookings.end_resize(change, written=outcome == "written")
    if outcome == "unclear and not written":
        found.show_again(name)
