"""The rows of nodes: promises beside measurements, encoded once per change, and numbered for readers."""

import msgspec

from placer.core.pool import PoolPart
from placer.live.pods import PodName
from placer.live.rows import SHARERS_SHOWN
from plimsoll.events import Phase
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import LiveNode
from plimsoll.quantity import GIB
from tests.placer.live.world import card, decoded, loading, state, world


async def test_a_row_has_promises_beside_measurements() -> None:
    """A pod's promise and use stand together; memory of no pod is apart; a pod without a process has no phase."""
    made = await world(state("n1", card("GPU-1", loading("p", "GPU-1", 3), loading("ghost", "GPU-1", 1))))
    made.book("p", "n1", "GPU-1", 8, share_pct=30, name="trainer")
    made.book("q", "n1", "GPU-1", 4)
    row = made.page.streams.rows.row(NodeName("n1"))
    assert row is not None
    [gpu] = decoded(row, LiveNode).gpus
    assert (gpu.used_bytes, gpu.promised_bytes, gpu.other_bytes) == (4 * GIB, 12 * GIB, GIB)
    assert (gpu.promised_share_pct, gpu.line_bytes, gpu.closed) == (30, 24 * GIB, False)
    first, second = gpu.pods
    assert (first.namespace, first.name, first.expected_bytes, first.used_bytes) == (
        *PodName("team", "trainer"),
        8 * GIB,
        3 * GIB,
    )
    assert (first.phases, second.phases) == ({Phase.LOADED.value: 1}, {})


async def test_a_row_is_encoded_again_only_after_a_change() -> None:
    """A second reader costs nothing; a report, a booking and its end cost one row each."""
    made = await world(*(state(f"n{i}", card(f"GPU-{i}")) for i in range(3)))
    rows = made.page.streams.rows

    def read_all() -> int:
        for name in rows.changed_since(0):
            assert rows.row(name) is not None
        return rows.encoded

    assert read_all() == read_all() == 3
    made.report(state("n1", card("GPU-1"), seq=2))
    assert read_all() == 4
    made.book("p", "n2", "GPU-2", 1)
    assert read_all() == 5
    made.decider.ledger.forget(PodUid("p"))
    assert read_all() == read_all() == 6


async def test_a_reader_asks_by_one_number() -> None:
    """Nodes come in the order of their last change, each once; a node that left is not among them, and is counted."""
    made = await world(*(state(f"n{i}", card(f"GPU-{i}")) for i in range(3)))
    rows = made.page.streams.rows
    assert rows.changed_since(0) == ["n0", "n1", "n2"]
    number = rows.number
    assert rows.changed_since(number) == []
    for seq in (2, 3):
        made.report(state("n1", card("GPU-1"), seq=seq))
    made.report(state("n0", card("GPU-0"), seq=2))
    assert rows.changed_since(number) == ["n1", "n0"]
    made.decider.reports.forget(NodeName("n1"))
    assert (rows.changed_since(number), rows.removals, "n1" in rows, rows.row(NodeName("n1"))) == (
        ["n0"],
        1,
        False,
        None,
    )


async def test_faults_and_the_pool_close_a_gpu() -> None:
    """A GPU with a fatal condition, or outside of the pool, is closed; one that cannot be read is listed apart."""
    condition = Condition(what="xid", health=HealthClass.FATAL, since="", text="XID 79: fell off", xid=79)
    health = tuple(
        GpuHealth(
            gpu=GpuUuid(uuid),
            index=i,
            model="NVIDIA L4",
            health=HealthClass.FATAL,
            since="",
            conditions=(condition,),
        )
        for i, uuid in enumerate(("GPU-1", "GPU-lost"))
    )
    reported = state("n1", card("GPU-1"), card("GPU-2", index=1))
    made = await world()
    made.decider.pool.is_on = True
    made.decider.pool.put(NodeName("n1"), PoolPart(frozenset({GpuUuid("GPU-1")})))
    made.report(msgspec.structs.replace(reported, health=health))
    row = made.page.streams.rows.row(NodeName("n1"))
    assert row is not None
    node = decoded(row, LiveNode)
    assert [(gpu.closed, gpu.reason) for gpu in node.gpus] == [(True, "XID 79: fell off"), (True, "")]
    assert [lost.uuid for lost in node.lost] == ["GPU-lost"]


async def test_a_row_names_a_bounded_number_of_pods() -> None:
    """The sums count every pod, also those that are left out."""
    made = await world(state("n1", card("GPU-1", ratio=9.0)))
    for i in range(SHARERS_SHOWN + 5):
        made.book(f"p{i:02}", "n1", "GPU-1", 1)
    row = made.page.streams.rows.row(NodeName("n1"))
    assert row is not None
    [gpu] = decoded(row, LiveNode).gpus
    assert (len(gpu.pods), gpu.more_pods) == (SHARERS_SHOWN, 5)
    assert gpu.promised_bytes == (SHARERS_SHOWN + 5) * GIB
