"""The order in which refused pods are explained, and the time that explanations take from other pods."""

import asyncio

from placer.core.policies.headroom import HEADROOM
from placer.scheduler.failures.handler import OPEN_IN_A_ROW, Backlog, pause_beside
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import understood
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import PodUid
from tests.placer.kube.objects import MEMORY, WHOLE, pod_of
from tests.placer.kube.scene import scene
from tests.placer.scheduler.queue.queues import waiting_pod
from tests.servers.waiting import PATIENCE_S


def wanted(name: str) -> PodInfo:
    """A pod's demand."""
    return understood(pod_of(name, {"cpu": "1"}), HEADROOM)


async def names(backlog: Backlog, count: int) -> list[str]:
    """The names of the next pods."""
    return [(await backlog.get()).pod.metadata.name for _ in range(count)]


async def test_pods_that_may_have_a_place_come_first_in_the_order_of_their_refusals() -> None:
    """Pods whose refusal is final come after the others, and each group keeps its order."""
    backlog = Backlog()
    for name, is_final in (("a", True), ("b", False), ("c", True), ("d", False)):
        backlog.put(wanted(name), is_final=is_final)
    assert await names(backlog, 4) == ["b", "d", "a", "c"]


async def test_no_pod_waits_for_its_reasons_for_ever() -> None:
    """While pods that may have a place keep coming, the others are explained in between."""
    backlog = Backlog()
    for number in range(3):
        backlog.put(wanted(f"final{number}"), is_final=True)
    for number in range(4 * OPEN_IN_A_ROW):
        backlog.put(wanted(f"open{number}"), is_final=False)
    order = await names(backlog, 3 * (OPEN_IN_A_ROW + 1))
    places = [order.index(f"final{number}") for number in range(3)]
    assert places == [OPEN_IN_A_ROW, 2 * OPEN_IN_A_ROW + 1, 3 * OPEN_IN_A_ROW + 2]


async def test_pod_that_comes_later_ends_the_wait_for_it() -> None:
    """The next pod is given as soon as there is one."""
    backlog = Backlog()
    waits = asyncio.create_task(backlog.get())
    await asyncio.sleep(0)
    assert not waits.done()
    backlog.put(wanted("a"), is_final=True)
    assert (await waits).pod.metadata.name == "a"


async def test_new_pods_are_tried_before_many_others_are_explained() -> None:
    """While new pods wait, many are tried between two slices of an explanation; then slices follow at once."""
    queue, uids = Queue(), [PodUid(f"pod{number}") for number in range(200)]
    for uid in uids:
        queue.update(waiting_pod(uid), now_s=0.0)
    slices = 0

    async def explain() -> None:
        nonlocal slices
        while True:
            slices += 1
            await pause_beside(queue)

    explaining = asyncio.create_task(explain())
    for uid in uids:
        queue.delete(uid, now_s=0.0)
        await asyncio.sleep(0)  # as after each try
    assert slices < len(uids) / 2
    before = slices
    async with asyncio.timeout(PATIENCE_S):
        while slices < before + len(uids):  # noqa: ASYNC110 - the slices run meanwhile
            await asyncio.sleep(0)
    explaining.cancel()


async def test_pod_that_asks_for_more_gpus_than_any_node_has_is_told_so_plainly() -> None:
    """The refusal says that no node has that many GPUs, also where they are in use, and where a sum is short."""
    async with scene() as here:
        here.node("n1", advertised={WHOLE: "60"})
        here.report("n1", 24, 24)
        here.node("n2")
        here.report("n2", 24, 0, 24)
        here.show(here.pod("whole", {WHOLE: "99"}))
        here.show(here.pod("parts", {WHOLE: "4", MEMORY: "8Gi"}))
        here.show(here.pod("busy", {WHOLE: "3"}))
        await here.settle()
        assert here.refusal("whole").endswith(" No node has 99 GPUs, the most on a node is 3.")
        assert here.refusal("parts").endswith(" No node has 4 GPUs, the most on a node is 3.")
        assert "No node has" not in here.refusal("busy")
