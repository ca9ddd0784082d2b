"""Relocation in replays, by the placer's own search over its own ledger."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.policy_context import Request
from plimsoll.ids import PodUid
from simulator.trace.cluster import Resident, TraceCluster
from simulator.trace.experiment import policy_for
from simulator.trace.lists import ListedNode, ListedPod, Trace
from simulator.trace.relocation import relocate
from simulator.trace.replay import demand_of, workload_of
from tests.slow import examples

POLICY = policy_for("bestfit", 1)
arrivals = st.lists(
    st.builds(
        lambda gpus, cpu_milli: ListedPod(cpu_milli, 1, gpus[0], gpus[1]),
        st.sampled_from([(1, 200), (1, 300), (1, 450), (1, 700), (1, 1000), (2, 1000)]),
        st.sampled_from([1000, 3000]),
    ),
    min_size=1,
    max_size=14,
)


def cluster_for(pods: list[ListedPod]) -> TraceCluster:
    """Two nodes of two GPUs."""
    nodes = tuple(ListedNode(f"n{number}", 10_000, 8, 2, "T4") for number in range(2))
    return TraceCluster.of(nodes, workload_of(Trace("t", nodes, tuple(pods))))


def resident(number: int, pod: ListedPod) -> Resident:
    """A pod that is to be placed."""
    return Resident(Request(PodUid(f"p{number}"), demand_of(pod), cpu_milli=pod.cpu_milli), pod.memory_mib)


@settings(max_examples=examples(60), deadline=None)
@given(arrivals)
def test_no_move_oversubscribes_a_gpu_or_a_node(arriving: list[ListedPod]) -> None:
    """After all moves every pod has as many GPUs as it asks for, no GPU passes 100 %, and no node lacks CPU."""
    cluster, placed = cluster_for(arriving), 0
    for number, pod in enumerate(arriving):
        own = resident(number, pod)
        is_placed = cluster.place(own.request, own.memory_mib, POLICY) is not None
        if not is_placed:
            moves = relocate(cluster, POLICY, own, 3)
            is_placed = moves is not None
            assert moves is None or 1 <= moves <= 3
        placed += is_placed
        bookings = tuple(cluster.ledger.bookings())
        assert {one.pod for one in bookings} == cluster.residents.keys()
        assert len(bookings) == placed
        shares: dict[str, int] = {}
        for one in bookings:
            wanted = cluster.residents[one.pod].request.demand.containers[0]
            assert len({grant.gpu for grant in one.grants}) == wanted.gpus
            for grant in one.grants:
                shares[grant.gpu] = shares.get(grant.gpu, 0) + grant.share_pct
        assert max(shares.values(), default=0) <= 100
        assert min(cluster.free_mib.values()) >= 0
        assert all((cluster.ledger.spare_cpu.on(node) or 0) >= 0 for node in cluster.free_mib)


def test_a_whole_gpu_is_made_of_two_halves() -> None:
    """Four GPUs are half full. Each pod that wants a whole one takes one move, until none can be made any more."""
    half, whole = ListedPod(1000, 1, 1, 500), ListedPod(1000, 1, 1, 1000)
    cluster = cluster_for([half, whole])
    spread = policy_for("headroom", 1)
    for number in range(4):
        own = resident(number, half)
        assert cluster.place(own.request, own.memory_mib, spread) is not None
    assert [relocate(cluster, POLICY, resident(10 + number, whole), 3) for number in range(3)] == [1, 1, None]
