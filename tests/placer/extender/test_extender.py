"""Filter and prioritize, on a front end without servers."""

import asyncio
import json

import msgspec
import pytest

from placer.core.booking import Booking, Grant
from placer.core.reasons import Reason
from placer.extender.extender import COMPUTED, Extender, Leadership
from placer.extender.fits import SIGNATURES
from placer.extender.wire import UnavailableError
from placer.scheduler.plugins.opt_out import REASON as OPTED_OUT
from plimsoll.events import Gpu
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import state, task
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE, pod_of
from tests.placer.kube.scene import Scene

SCHEDULER = "default-scheduler"


@pytest.fixture
def scene() -> Scene:
    """A front end that leads."""
    made = Scene()
    leads = asyncio.Event()
    leads.set()
    made.parts.extender.leadership = Leadership(leads, None, lambda: 0.0)
    return made


def extender_of(scene: Scene) -> Extender:
    """The extender under test."""
    return scene.parts.extender


def outside(
    name: str, limits: dict[str, str], annotations: dict[str, str] | None = None, **more: object
) -> Pod:
    """A pod of kube-scheduler."""
    return pod_of(name, limits, annotations=annotations, scheduler=SCHEDULER, **more)  # type: ignore[arg-type] # passed on


def take(scene: Scene, node: str, gpu: str, size_bytes: int, pod: str) -> None:
    """Give a pod this much memory of a GPU."""
    grant = Grant(ContainerName("main"), GpuUuid(gpu), size_bytes, 0, 100, whole=False, line_bytes=size_bytes)
    scene.ledger.book(Booking(PodUid(pod), NodeName(node), (grant,)))


def cards(scene: Scene, node: str, *taken_mib: int, card_mib: int = 16276) -> None:
    """A node `node` with GPUs `GPU0` and so on, each with this much memory taken by pods."""
    gpus = tuple(
        Gpu(
            uuid=GpuUuid(f"{node}-GPU{index}"),
            index=index,
            model="Tesla V100",
            usable_bytes=card_mib * MIB,
            used_bytes=0,
            idle_pct=100.0,
        )
        for index in range(len(taken_mib))
    )
    scene.reports.apply(state(node, *gpus))
    for index, taken in enumerate(taken_mib):
        if taken:
            take(scene, node, f"{node}-GPU{index}", taken * MIB, f"{node}-{index}")


async def test_gpushare_n1_n2_n3_at_8138_mib(scene: Scene) -> None:
    """The example of filter in gpushare's design: only N3 of three nodes takes a pod of 8138 MiB.

    Each node has two GPUs of 16276 MiB. N1 has 4069 MiB left in all.
    N2 has 8138 MiB left, half of it on each GPU. N3 has 8138 MiB left on GPU0.
    """
    cards(scene, "N1", 16276, 12207)
    cards(scene, "N2", 12207, 12207)
    cards(scene, "N3", 8138, 16276)
    refused = await extender_of(scene).filter(
        outside("p", {MEMORY: "8138Mi"}), [NodeName(n) for n in ("N1", "N2", "N3")]
    )
    assert refused == {"N1": Reason.GPU_MEMORY.value, "N2": Reason.GPU_MEMORY.value}


async def test_a_sum_over_two_gpus_is_no_room_on_one(scene: Scene) -> None:
    """A pod that asks for the same memory over two GPUs fits on N2."""
    cards(scene, "N2", 12207, 12207)
    names = [NodeName("N2")]
    assert await extender_of(scene).filter(outside("p", {MEMORY: "8138Mi"}), names)
    assert not await extender_of(scene).filter(outside("q", {MEMORY: "8138Mi", WHOLE: "2"}), names)


async def test_each_reason_is_given(scene: Scene) -> None:
    """A node has the reasons that the placer's own scheduler would give, and an unknown node has no report."""
    scene.node("n1")
    scene.report("n1", 4)
    scene.report("silent", 24)
    scene.reports.set_silent(NodeName("silent"))
    pod = outside("p", {MEMORY: "20Gi"})
    refused = await extender_of(scene).filter(pod, [NodeName("n1"), NodeName("silent"), NodeName("unknown")])
    assert refused == {
        "n1": Reason.GPU_MEMORY.value,
        "silent": Reason.SILENT.value,
        "unknown": Reason.NO_REPORT.value,
    }


async def test_a_pod_without_a_gpu_passes(scene: Scene) -> None:
    """Such a pod fits everywhere as far as the placer is concerned, and no node is better than another."""
    pod, names = outside("p", {"cpu": "1"}), [NodeName("n1"), NodeName("n2")]
    assert await extender_of(scene).filter(pod, names) == {}
    assert await extender_of(scene).prioritize(pod, names) == {"n1": 0.0, "n2": 0.0}


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (outside("p", {MEMORY: "1.5"}), "spec.containers[main].resources"),
        (
            outside("p", {MEMORY: "3000001", WHOLE: "2"}),
            "does not divide evenly by 2 GPUs; give a multiple of 2",
        ),
        (
            outside("p", {MEMORY: "1Gi"}, {"plimsoll.dev/policy": "no"}),
            "'no' is no placement policy; choose one of",
        ),
        (outside("p", {MEMORY: "1Gi"}, {"plimsoll.dev/decision": "{}"}), "tells of one that is"),
        (pod_of("p", {MEMORY: "1Gi"}), "spec.schedulerName: 'plimsoll' is the placer's own scheduler"),
    ],
)
async def test_a_malformed_pod_is_refused_by_field(scene: Scene, pod: Pod, text: str) -> None:
    """A pod that cannot be read gets the field, the value and the remedy, from each verb."""
    for verb in (extender_of(scene).filter, extender_of(scene).prioritize):
        with pytest.raises(InputError) as refused:
            await verb(pod, [NodeName("n1")])
        assert text in str(refused.value)


async def test_features_of_kube_scheduler_are_left_to_it(scene: Scene) -> None:
    """A pod may use what the placer's own scheduler does not handle, because kube-scheduler does."""
    scene.report("n1", 24)
    claims = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = outside("p", {MEMORY: "1Gi"}, volumes=claims)
    assert await extender_of(scene).filter(pod, [NodeName("n1")]) == {}


async def test_priorities_follow_the_policy(scene: Scene) -> None:
    """By default the node with most room is best; a pod that names `binpack` prefers the fuller node."""
    scene.report("roomy", 24)
    scene.report("tight", 8)
    scene.report("full", 0)
    names = [NodeName(name) for name in ("roomy", "tight", "full")]
    scores = await extender_of(scene).prioritize(outside("p", {MEMORY: "4Gi"}), names)
    assert scores[names[0]] > scores[names[1]] > scores[names[2]] == 0.0
    packed = outside("q", {MEMORY: "4Gi"}, {"plimsoll.dev/policy": "binpack"})
    scores = await extender_of(scene).prioritize(packed, names)
    assert scores[names[1]] > scores[names[0]] > scores[names[2]] == 0.0


async def test_answers_are_of_this_moment(scene: Scene) -> None:
    """An answer that is kept for a kind of pods changes with each booking, release, report and silence."""
    scene.report("n1", 24)
    names = [NodeName("n1")]

    async def fits(name: str) -> bool:
        return not await extender_of(scene).filter(outside(name, {MEMORY: "20Gi"}), names)

    assert await fits("a")
    take(scene, "n1", "GPU-n1-0", 10 * GIB, "other")
    assert not await fits("b")
    scene.ledger.forget(PodUid("other"))
    assert await fits("c")
    scene.report("n1", 4)
    assert not await fits("d")
    scene.report("n1", 24)
    assert await fits("e")
    scene.reports.set_silent(NodeName("n1"))
    assert not await fits("f")


async def test_an_earlier_pod_of_the_kind_counts_once(scene: Scene) -> None:
    """The pod that was asked for first is bound and measured later; its memory then counts once for the next pod."""
    scene.report("n1", 24)
    first, names = outside("a", {MEMORY: "10Gi"}), [NodeName("n1")]
    assert await extender_of(scene).filter(first, names) == {}
    take(scene, "n1", "GPU-n1-0", 10 * GIB, "a")
    scene.report("n1", 24, tasks=(task("a", "GPU-n1-0", 10 * GIB),))
    assert await extender_of(scene).filter(outside("b", {MEMORY: "10Gi"}), names) == {}
    take(scene, "n1", "GPU-n1-0", 10 * GIB, "b")
    assert await extender_of(scene).filter(outside("c", {MEMORY: "10Gi"}), names) == {
        "n1": Reason.GPU_MEMORY.value
    }


async def test_a_second_pod_of_a_kind_costs_look_ups(scene: Scene) -> None:
    """A second pod of the kind has only the nodes computed anew that changed, of 500."""
    names = [NodeName(f"n{index}") for index in range(500)]
    for name in names:
        scene.report(name, 24)
    extender = extender_of(scene)
    await extender.filter(outside("a", {MEMORY: "1Gi"}), names)
    [known] = extender.fits._known.values()
    assert known.computed == 500
    take(scene, "n7", "GPU-n7-0", GIB, "other")
    await extender.filter(outside("b", {MEMORY: "1Gi"}), names)
    await extender.prioritize(outside("b", {MEMORY: "1Gi"}), names)
    assert known.computed == 501


async def test_kinds_are_bounded(scene: Scene) -> None:
    """Pods of many kinds leave the answers of the last kinds alone, and those of nodes that left go."""
    extender = extender_of(scene)
    for index in range(3 * SIGNATURES):
        scene.report(f"n{index}", 24)
        await extender.filter(outside(f"p{index}", {MEMORY: f"{index + 1}Mi"}), [NodeName("n0")])
    assert len(extender.fits._known) == SIGNATURES
    names = [NodeName(f"gone{index}") for index in range(500)]
    await extender.filter(outside("p", {MEMORY: "1Mi"}), names)
    assert all(len(known._answers) < 100 for known in extender.fits._known.values())


async def test_a_long_list_lets_other_tasks_run(scene: Scene) -> None:
    """A question about 20 000 unknown nodes is answered in pieces."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    names = [NodeName(f"node-{index:05}.example.com") for index in range(20_000)]
    refused = await extender_of(scene).filter(outside("p", {SHARE: "10"}), names)
    other.cancel()
    assert len(refused) == 20_000
    assert turns >= 20_000 // COMPUTED


async def test_a_placer_that_cannot_bind_answers_nothing(scene: Scene) -> None:
    """Before everything was read, and without a watch, each verb names the reason at once."""
    extender, pod, names = extender_of(scene), outside("p", {MEMORY: "1Gi"}), [NodeName("n1")]
    extender.leadership = Leadership(asyncio.Event(), None, lambda: 0.0)
    with pytest.raises(UnavailableError, match="has just started and has not read all pods"):
        await extender.filter(pod, names)
    leads = asyncio.Event()
    leads.set()
    extender.leadership = Leadership(leads, None, lambda: 61.0)
    with pytest.raises(UnavailableError, match="the watch of pods or nodes has been broken for 61 s"):
        await extender.prioritize(pod, names)


async def test_kube_schedulers_pods_are_none_of_the_queue(scene: Scene) -> None:
    """The placer's own scheduler leaves pods of other schedulers alone, and remembers those that ask for GPUs."""
    pod = outside("p", {MEMORY: "1Gi"})
    scene.show(pod)
    scene.show(outside("plain", {"cpu": "1"}))
    assert len(scene.queue) == 0
    assert [one.metadata.name for one in scene.parts.doors.outside] == ["p"]
    scene.delete("p")
    assert list(scene.parts.doors.outside) == []


def test_the_demand_is_read_from_json_as_the_api_server_gives_it() -> None:
    """A pod with every field of a real one is read; unknown fields do no harm."""
    document = {"metadata": {"name": "p", "managedFields": [{}]}, "spec": {"tolerations": [], "novel": 1}}
    assert msgspec.json.decode(json.dumps(document), type=Pod).metadata.name == "p"


async def helped(scene: Scene, pod: Pod, *victims: str) -> bool:
    """Whether a pod fits on `n1` once these pods are evicted there."""
    evicted = frozenset(PodUid(one) for one in victims)
    return NodeName("n1") in await extender_of(scene).preempt(pod, {NodeName("n1"): evicted})


async def test_no_pod_is_evicted_in_vain(scene: Scene) -> None:
    """Two victims on one GPU make room for a large pod. Two on two GPUs do not."""
    scene.report("n1", 24, 24)
    for pod, index in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
        take(scene, "n1", f"GPU-n1-{index}", 10 * GIB, pod)
    large = outside("p", {MEMORY: "20Gi"})
    assert await helped(scene, large, "a", "b")
    assert not await helped(scene, large, "a", "c")
    over_two = outside("q", {MEMORY: "20Gi", WHOLE: "2"})
    assert await helped(scene, over_two, "a", "c")
    assert not await helped(scene, over_two, "a", "b")
    assert not await helped(scene, outside("r", {WHOLE: "1"}), "a")
    assert await helped(scene, outside("plain", {"cpu": "1"}), "a")
    assert len(list(scene.ledger.bookings())) == 4


async def test_a_victims_measured_memory_goes_with_it(scene: Scene) -> None:
    """The processes of a victim end; the memory of other processes stays, and a node without a report has no room."""
    take(scene, "n1", "GPU-n1-0", 10 * GIB, "a")
    scene.report("n1", 24, tasks=(task("a", "GPU-n1-0", 20 * GIB),))
    assert await helped(scene, outside("p", {MEMORY: "20Gi"}), "a")
    assert not await helped(scene, outside("p", {MEMORY: "20Gi"}), "somebody")
    scene.report("n1", 14, tasks=(task("a", "GPU-n1-0", 10 * GIB),))
    assert not await helped(scene, outside("p", {MEMORY: "20Gi"}), "a")
    nowhere = {NodeName("nowhere"): frozenset({PodUid("a")})}
    assert await extender_of(scene).preempt(outside("p", {MEMORY: "1Gi"}), nowhere) == set()


async def test_a_node_that_opted_out_is_refused_to_kube_scheduler_too(scene: Scene) -> None:
    """Its GPUs are free, but filter names the label, prioritize gives it nothing, and no eviction would help."""
    for name in ("N1", "N2"):
        cards(scene, name, 0)
    scene.node("N1", {"plimsoll.dev/node": "off"})
    scene.node("N2")
    pod, nodes = outside("p", {MEMORY: "4Gi"}), [NodeName("N1"), NodeName("N2")]
    assert await extender_of(scene).filter(pod, nodes) == {"N1": OPTED_OUT}
    scores = await extender_of(scene).prioritize(pod, nodes)
    assert scores[NodeName("N1")] == 0 < scores[NodeName("N2")]
    assert await extender_of(scene).preempt(pod, {node: set() for node in nodes}) == {"N2"}
