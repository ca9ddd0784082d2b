"""A pool counts the memory that the driver keeps for it, not only the unfreed part."""

from dataclasses import replace

from tests.hook.lib.container import Container, Line
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script
from tests.hook.lib.shared import Agree


def test_small_requests_count_as_the_chunk_that_the_pool_took(script: Script, agree: Agree) -> None:
    """The first byte from a pool costs the pool's growth at once, and the second byte nothing."""
    assert script.get("take(1)[0]") == SUCCESS
    agree(64 + 32)
    assert script.get("take(MIB)[0]") == SUCCESS
    agree(64 + 32)


def test_a_pool_never_grows_past_the_line(
    script: Script, container: Container, lines: list[Line], agree: Agree
) -> None:
    """If the pool's next chunk does not fit below the line, the request is refused without a call to the driver."""
    container.rewrite([replace(line, line_bytes=130 * MIB) for line in lines])
    assert script.get("take(40 * MIB)[0]") == SUCCESS
    agree(64 + 64)
    assert script.get("take(20 * MIB)[0]") == SUCCESS
    assert script.get("take(5 * MIB)[0]") == OUT_OF_MEMORY
    agree(64 + 60)
    assert script.get("take(4 * MIB)[0]") == SUCCESS
    agree(64 + 64)


def test_freed_memory_counts_until_the_driver_gives_it_back(script: Script, agree: Agree) -> None:
    """After a free alone the pool keeps its memory. A synchronisation of stream, event or context returns it."""
    for synchronise in ("sync()", "must('cuStreamSynchronize', None)", "must('cuEventSynchronize', event)"):
        script.do("event = make('cuEventCreate', 0); code, address = take(128 * MIB)")
        agree(64 + 128)
        script.do("free(address); must('cuEventRecord', event, None)")
        agree(64 + 128)
        script.do(synchronise)
        agree(64)


def test_a_release_threshold_is_no_way_around_the_line(script: Script, agree: Agree) -> None:
    """Memory that a pool keeps under a threshold, as JAX sets it, counts, so no program keeps more than the line."""
    script.do("hold_all(default_pool()); code, address = take(192 * MIB); free(address); sync()")
    agree(64 + 192)
    script.do("code, address = take(160 * MIB)")
    agree(64 + 192)
    script.do("free(address); sync(); must('cuMemPoolTrimTo', default_pool(), SIZE(64 * MIB))")
    agree(64 + 64)
    script.do("must('cuMemPoolSetAttribute', default_pool(), 4, byref(U64(0))); sync()")
    agree(64)


def test_what_a_pool_hoards_makes_way_before_anything_is_refused(
    script: Script, container: Container, agree: Agree
) -> None:
    """Idle memory of this process's pools is trimmed before any allocation is refused, as on a full card."""
    script.do("hold_all(default_pool()); code, address = take(224 * MIB); free(address); sync()")
    agree(64 + 224)
    assert script.get("alloc(128 * MIB)[0]") == SUCCESS
    agree(64 + 128)
    script.do(
        "pool = pool_on(0); hold_all(pool); code, address = take_from(pool, 96 * MIB); free(address); sync()"
    )
    agree(64 + 128 + 96)
    assert script.get("take(128 * MIB)[0]") == SUCCESS
    agree(64 + 256)
    assert int(container.counts().slots[0].denied_count) == 0


def test_what_does_not_fit_without_the_hoard_either_is_refused(script: Script, agree: Agree) -> None:
    """A request past the line from the pool that was trimmed is refused."""
    script.do("hold_all(default_pool()); code, address = take(96 * MIB); free(address); sync()")
    assert script.get("alloc(128 * MIB)[0]") == SUCCESS
    assert script.get("take(160 * MIB)[0]") == OUT_OF_MEMORY
    agree(64 + 128)


def test_a_pool_that_is_not_idle_does_not_make_way(script: Script, container: Container) -> None:
    """Memory in use in a pool stays when another allocation is refused."""
    script.do("hold_all(default_pool()); code, address = take(224 * MIB)")
    assert script.get("alloc(128 * MIB)[0]") == OUT_OF_MEMORY
    assert container.used_bytes() == (64 + 224) * MIB


def test_a_destroyed_pool_counts_what_lives_in_it(script: Script, agree: Agree) -> None:
    """Destroying a pool frees its idle memory. The rest, and the pool's record, go with the last free."""
    for _ in range(3):
        script.do("pool = pool_on(0); hold_all(pool)")
        script.do("one, two = (take_from(pool, 64 * MIB)[1] for _ in range(2)); free(one); sync()")
        agree(64 + 128)
        script.do("must('cuMemPoolDestroy', pool)")
        agree(64 + 64)
        script.do("free(two); sync()")
        agree(64)


def test_the_current_pool_is_followed(script: Script, agree: Agree) -> None:
    """After a device's pool was set or destroyed, allocations count in the pool that they come from."""
    script.do("mine = pool_on(0); hold_all(mine)")
    script.do("code, a = take(32 * MIB); must('cuDeviceSetMemPool', 0, mine); code, b = take(32 * MIB)")
    agree(64 + 64)
    script.do("free(a); free(b); sync()")
    agree(64 + 32)
    script.do("must('cuMemPoolDestroy', mine); code, c = take(64 * MIB)")
    agree(64 + 64)
    script.do("free(c); sync()")
    agree(64)


def test_host_pools_cost_no_gpu(script: Script, container: Container) -> None:
    """The driver alone judges a pool of host memory (NUMA node 0), and no GPU is charged."""
    script.do("props = PoolProps(1, 0, Location(3, 0)); pool = U64()")
    assert script.get("call('cuMemPoolCreate', byref(pool), byref(props))") in {SUCCESS, 801}
    assert container.used_bytes() == 64 * MIB


def test_threads_in_one_pool_leave_nothing(
    script: Script, node: Node, container: Container, agree: Agree
) -> None:
    """For any order of takes and frees by threads in one pool, the final count equals the driver's."""
    script.use("churn")
    made = script.get("churn_together(4)")
    assert len(made) == 4
    assert min(made) > 50
    script.do("sync()")
    assert container.used_bytes() == node.held_bytes({script.pid}) <= 320 * MIB
    assert node.book()["gpus"][0].get("peak_bytes", 0) <= 320 * MIB
    script.do("must('cuMemPoolTrimTo', default_pool(), SIZE(0))")
    agree(64)


def test_a_reset_ends_the_pools_of_its_gpu(script: Script, agree: Agree) -> None:
    """The memory of pools goes with the primary context, and counts anew afterwards."""
    script.do("code, address = take(100 * MIB); must('cuDevicePrimaryCtxReset_v2', 0)")
    agree(0)
    script.do("context(0); code, address = take(100 * MIB)")
    agree(64 + 128)


def test_pools_beyond_counting_are_refused(script: Script) -> None:
    """Past a bound of at least 1000 pools the next one is refused, as it could not be counted."""
    script.do("pools = [U64() for _ in range(1100)]; props = PoolProps(1, 0, Location(1, 0))")
    codes = script.get("[call('cuMemPoolCreate', byref(pool), byref(props)) for pool in pools]")
    assert codes[:1000] == [SUCCESS] * 1000
    assert codes[-1] == OUT_OF_MEMORY
    assert script.get("call('cuMemPoolDestroy', pools[0])") == SUCCESS
    assert script.get("call('cuMemPoolCreate', byref(pools[0]), byref(props))") == SUCCESS
