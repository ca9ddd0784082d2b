"""A report or a resize has a nomination checked: the pod is tried elsewhere once its node has no room for it.

Pods and nodes that change are in `test_post_filter`.
"""

from collections.abc import Callable

import pytest

from placer.core.resize.change import change_of
from placer.resize.resize import KubeResizer
from plimsoll.ids import NodeName, PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.preemption_scene import PreemptionScene, later, on_gpu, pod, preemption_scene

N1 = NodeName("n1")


def lose_gpu(made: PreemptionScene) -> None:
    """The node reports no GPU any more."""
    made.scene.report("n1")


def gain_foreign_memory(made: PreemptionScene) -> None:
    """Processes of no known pod hold nearly all memory of the GPU."""
    made.scene.report("n1", 2)


def fall_silent(made: PreemptionScene) -> None:
    """The node has not reported for too long."""
    made.scene.reports.set_silent(N1)


def drop_report(made: PreemptionScene) -> None:
    """The report of the node was dropped."""
    made.scene.reports.forget(N1)


@pytest.mark.parametrize("change", [lose_gpu, gain_foreign_memory, fall_silent, drop_report])
async def test_a_pod_is_tried_elsewhere_once_its_node_has_no_gpu_for_it(
    change: Callable[[PreemptionScene], None],
) -> None:
    """The victims that end on the node make no room any more, so those on another node do."""
    async with preemption_scene() as made:
        for name, priority in (("n1", 0), ("n2", 5)):
            made.scene.node(name)
            made.scene.report(name, 24)
            made.scene.show(on_gpu(f"on-{name}", f"GPU-{name}-0", priority, 20))
        made.scene.show(pod("p", None, 10, {MEMORY: str(20 * GIB)}))
        await made.settle()
        assert made.nomination("p") == ("n1", {"on-n1"})
        change(made)
        await later(made)
        assert made.deleted == ["on-n1", "on-n2"]
        assert made.nomination("p") == ("n2", {"on-n2"})


async def test_a_report_that_leaves_the_room_ends_no_nomination() -> None:
    """Reports come all the time, while the victim still holds its memory too."""
    async with preemption_scene() as made:
        for name, priority in (("n1", 0), ("n2", 5)):
            made.scene.node(name)
            made.scene.report(name, 24)
            made.scene.show(on_gpu(f"on-{name}", f"GPU-{name}-0", priority, 20))
        made.scene.show(pod("p", None, 10, {MEMORY: str(20 * GIB)}))
        await made.settle()
        made.scene.report("n1", 23)
        await later(made)
        assert made.nomination("p") == ("n1", {"on-n1"})
        assert made.deleted == ["on-n1"]


async def resizable(
    made: PreemptionScene, victim_gib: int, preemptor_gib: int, priority: int = 5
) -> KubeResizer:
    """A GPU of 24 GiB where `v` ends for `p` of priority 10, and the resizer of `w` beside it, which has 4 GiB."""
    made.scene.node("n1")
    made.scene.report("n1", 24)
    made.scene.show(on_gpu("v", "GPU-n1-0", 0, victim_gib))
    made.scene.show(on_gpu("w", "GPU-n1-0", priority, 4))
    made.scene.show(pod("p", None, 10, {MEMORY: str(preemptor_gib * GIB)}))
    await made.settle()
    assert made.nomination("p") == ("n1", {"v"})
    return made.parts.doors.resizer


def raise_w(
    made: PreemptionScene, resizer: KubeResizer, memory: str | None = None, share: str | None = None
) -> None:
    """Check a raise of `w`, and count it as one that was written."""
    request = Resize(pod="w", namespace="default", gpu_memory=memory, gpu_share=share)
    counted = made.scene.ledger.booking(PodUid("w"))
    assert counted is not None
    change = change_of(counted, request, counted)
    resizer.check_room(made.scene.pods["w"], change, request)
    made.scene.cache.bookings.begin_resize(change, "1")


@pytest.mark.parametrize("priority", [5, 10])
async def test_a_resize_gets_no_room_that_is_held(priority: int) -> None:
    """A pod of lower or equal priority is refused, with the most that is left beside the nominated pod."""
    async with preemption_scene() as made:
        resizer = await resizable(made, victim_gib=10, preemptor_gib=14, priority=priority)
        refused = r"12Gi.* does not fit: room on n1 is held for a nominated pod; give at most 10Gi in total"
        with pytest.raises(InputError, match=refused):
            raise_w(made, resizer, memory="12Gi")
        made.scene.delete("v")
        with pytest.raises(InputError, match=refused):
            raise_w(made, resizer, memory="12Gi")
        raise_w(made, resizer, memory="10Gi")
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"


async def test_victims_that_end_take_no_room_beside_held_room() -> None:
    """The room that a victim leaves beside the nominated pod is counted once."""
    async with preemption_scene() as made:
        resizer = await resizable(made, victim_gib=18, preemptor_gib=10)
        with pytest.raises(InputError, match=r"promises leave 2Gi free"):
            raise_w(made, resizer, memory="7Gi")  # the victim still has the rest
        raise_w(made, resizer, memory="6Gi")


async def test_a_resize_of_higher_priority_takes_the_room_and_the_pod_is_tried_elsewhere() -> None:
    """As with a pod that is placed there, held room is no obstacle to higher priority."""
    async with preemption_scene() as made:
        resizer = await resizable(made, victim_gib=10, preemptor_gib=14, priority=20)
        made.scene.node("n2")
        made.scene.report("n2", 24)
        made.scene.show(on_gpu("on-n2", "GPU-n2-0", 5, 20))
        raise_w(made, resizer, memory="14Gi")
        await later(made)
        assert made.nomination("p") == ("n2", {"on-n2"})


async def test_a_resize_gets_no_compute_time_that_is_held() -> None:
    """Shares are held as memory is."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(on_gpu("v", "GPU-n1-0", 0, 4, share=50))
        made.scene.show(on_gpu("w", "GPU-n1-0", 5, 4, share=20))
        made.scene.show(pod("p", None, 10, {SHARE: "60", MEMORY: str(4 * GIB)}))
        await made.settle()
        assert made.nomination("p") == ("n1", {"v"})
        resizer = made.parts.doors.resizer
        refused = r"'41' does not fit: room on n1 is held .*; give at most 40 in total"
        with pytest.raises(InputError, match=refused):
            raise_w(made, resizer, share="41")
        raise_w(made, resizer, share="40")
