"""A resize of memory on a real API server counts at once, is written once, and keeps others' changes."""

import asyncio

import pytest

from placer.core.resize.change import NotNowError
from plimsoll.broker.wire import Line
from plimsoll.ids import GpuUuid
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Change, Modified
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.lossy import LossyBinds, after, held, lose_answer, lose_request, refuse
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import scheduler
from tests.placer.resize.pods import GPU, counted, one_gpu, placed, resize, written
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest


async def test_a_new_line_is_written_and_counts(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A raise takes exactly the room beside a neighbour, and the next pod gets the room of a lowering."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await placed(world, "p", "4Gi")
        await placed(world, "neighbour", "10Gi")
        answer = await resize(world, "p", "14Gi")
        assert (answer.node, answer.container) == ("n1", "main")
        [before], [after] = answer.before, answer.after
        assert (before.gpu, before.line_bytes, after.line_bytes) == (GPU, 4 * GIB, 14 * GIB)
        assert await written(world, "p") == (14, 0, 100)
        with pytest.raises(InputError, match="give at most 14Gi in total"):
            await resize(world, "p", "15Gi")
        assert await written(world, "p") == (14, 0, 100)
        assert (await counted(world, "p")).line_gib == 14
        await resize(world, "p", "2Gi")
        await placed(world, "newcomer", "12Gi")


async def test_a_change_of_somebody_elses_meanwhile_is_kept(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A concurrent change makes the write fail by its resourceVersion. The next write keeps that change."""
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    theirs = {"metadata": {"annotations": {"theirs": "kept"}}}
    patches.pod_faults.append(after(lambda: apiserver.must("PATCH", path, theirs)))
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        await resize(world, "p", "6Gi")
        assert (await world.pod("p"))["metadata"]["annotations"]["theirs"] == "kept"
        assert await written(world, "p") == (6, 0, 100)
        assert patches.patched.count(path) == 2


async def test_lost_requests_and_answers_are_cleared_up_by_reading(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A lost request is sent again. A request whose answer was lost is not, as a read shows it arrived."""
    patches = LossyBinds()
    patches.pod_faults.extend([lose_request, lose_answer])
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        await resize(world, "p", "6Gi")
        assert await written(world, "p") == (6, 0, 100)
        assert patches.patched.count(path) == 2
        assert (await counted(world, "p")).line_gib == 6


async def test_a_write_that_is_refused_leaves_everything_as_it_was(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Without the right to patch pods, the operator gets an error and the ledger counts the old line."""
    patches = LossyBinds()
    patches.pod_faults.append(refuse)
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        with pytest.raises(InputError, match="give the placer's account the right to patch pods"):
            await resize(world, "p", "6Gi")
        assert (await counted(world, "p")).line_gib == 4
        assert await written(world, "p") == (4, 0, 100)


async def test_a_pod_bound_just_now_is_resized_a_moment_later(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Before the placer's watch has shown the bind, the operator is told to ask again, not that there is no GPU."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        pods = world.parts.watches.pods
        late, show = list[Change[Pod]](), pods.emit

        def hold_back(change: Change[Pod]) -> None:
            is_bound = isinstance(change, Modified) and bool(change.item.spec.nodeName)
            (late.append if is_bound else show)(change)

        pods.emit = hold_back
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "4Gi"}))
        await world.until("p", lambda pod: bool(pod["spec"].get("nodeName")))
        with pytest.raises(NotNowError, match="was bound just now"):
            await resize(world, "p", "6Gi")
        pods.emit = show
        for change in late:
            show(change)
        await world.until_bound("p")
        assert (await resize(world, "p", "6Gi")).after[0].line_bytes == 6 * GIB


async def test_room_is_taken_while_the_write_is_under_way(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that comes between the check and the write finds the room gone."""
    patches = LossyBinds()
    reached, release = asyncio.Event(), asyncio.Event()
    patches.pod_faults.append(held(reached, release))
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        under_way = asyncio.create_task(resize(world, "p", "20Gi"))
        await reached.wait()
        await create_pod(apiserver, namespace, pod_manifest("late", {MEMORY: "5Gi"}))
        await world.until_refused("late", "Insufficient plimsoll.dev/gpu-memory")
        release.set()
        await under_way


async def test_a_pod_deleted_meanwhile_is_told_and_its_namesake_left_alone(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The uid is a precondition of the write, so a new pod of the same name keeps its declaration."""
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"

    async def replace() -> None:
        await apiserver.must("DELETE", f"{path}?gracePeriodSeconds=0")
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "4Gi"}))

    patches.pod_faults.append(after(replace))
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        with pytest.raises(InputError, match="was deleted meanwhile"):
            await resize(world, "p", "6Gi")
        await world.until_bound("p")
        assert await written(world, "p") == (4, 0, 100)
        assert (await counted(world, "p")).line_gib == 4


async def test_pods_that_cannot_be_resized_are_refused_by_name(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Each pod that cannot be resized is refused with a reason of its own."""
    asked: tuple[tuple[str, dict[str, str], str], ...] = (
        ("nobody", {}, "does not exist"),
        ("../secrets/p", {}, "cannot be a name in Kubernetes"),
        ("plain", {"cpu": "1"}, "was given no GPU by Plimsoll"),
        ("loose", {"plimsoll.dev/gpu-share": "10"}, "is best-effort"),
        ("same", {MEMORY: "6Gi"}, "is what it has already"),
    )
    async with one_gpu(apiserver, valkey, namespace) as world:
        for name, resources, said in asked:
            if resources:
                await create_pod(apiserver, namespace, pod_manifest(name, resources))
                await world.until_bound(name)
            await world.parts.synced.wait()
            with pytest.raises(InputError, match=said):
                await resize(world, name, "6Gi")
        await create_pod(apiserver, namespace, pod_manifest("waiting", {MEMORY: "40Gi"}))
        await world.until_refused("waiting", "Insufficient")
        with pytest.raises(InputError, match="is not placed yet"):
            await resize(world, "waiting", "6Gi")


async def test_the_same_size_again_is_answered_as_done_before(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A repeated request is answered as done and writes nothing, so a lost confirmation does no harm."""
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", "4Gi")
        await resize(world, "p", "6Gi")
        again = await resize(world, "p", "6Gi")
        assert again.before == again.after == (Line(gpu=GpuUuid(GPU), line_bytes=6 * GIB),)
        assert patches.patched.count(path) == 1


async def test_nothing_is_judged_before_everything_was_seen(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A placer that has not read all reports puts the request off."""
    async with scheduler(apiserver, valkey, namespace, loaded=False) as world:
        with pytest.raises(NotNowError, match="has just started"):
            await resize(world, "p", "6Gi")
