"""The target workload: which pods count, and how it is learned."""

from collections import Counter

from placer.core.target_workload import PodType, TargetWorkload, pod_type_of, typical_of
from plimsoll.demand import PodDemand
from plimsoll.ids import PodUid
from plimsoll.quantity import GIB
from tests.placer.core.worlds import declared, whole


def test_rare_kinds_are_left_out() -> None:
    """The most frequent pod types count until they are 95 % of all pods, and their popularities add up to 1."""
    often, seldom, rarely = PodType(1000, 1, 500), PodType(2000, 1, 1000), PodType(3000, 8, 1000)
    typical = typical_of(Counter({rarely: 4, often: 60, seldom: 36}))
    assert [one.pod_type for one in typical] == [often, seldom]
    assert [one.popularity for one in typical] == [60 / 96, 36 / 96]


def test_larger_of_share_and_memory_is_the_need() -> None:
    """A container needs the part of a GPU that is the larger of its share and its memory on that GPU."""
    pod_type = pod_type_of(PodDemand((declared("main", 12, share_pct=30),)), 500)
    assert pod_type.need_milli(24 * GIB) == 500
    assert pod_type.need_milli(80 * GIB) == 300
    assert pod_type_of(PodDemand((whole(gpus=2),)), 500).need_milli(24 * GIB) == 1000


def test_workload_is_learned_from_each_pod_once() -> None:
    """A pod that is decided on again and again counts as one pod; a workload that was given stays as it is."""
    demand, other = PodDemand((whole(),)), PodDemand((declared("main", 1),))
    workload = TargetWorkload()
    for _ in range(9):
        workload.see(PodUid("waits"), demand, 1000)
    workload.see(PodUid("p"), other, 1000)
    assert sorted(one.popularity for one in workload.typical) == [0.5, 0.5]
    given = TargetWorkload(workload.typical)
    given.see(PodUid("q"), demand, 1)
    assert given.typical == workload.typical
