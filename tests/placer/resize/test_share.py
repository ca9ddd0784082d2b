"""New shares and limits on a real API server.

They are written once, together with the line; they count at once, and the next placer knows them.
"""

import pytest

from placer.core.resize.change import NotNowError
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.decided import decision_text
from tests.placer.kube.lossy import LossyBinds, after
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import World, scheduler
from tests.placer.resize.pods import GPU, counted, one_gpu, placed, resize, written
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until


async def test_line_share_and_limit_are_one_write(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Line, share and limit change in one patch; a value that was not requested keeps its state."""
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", share=30, gpu_share_limit="60")
        answer = await resize(world, "p", share="40", limit="80", size="6Gi")
        [before], [now] = answer.before, answer.after
        assert (before.line_bytes, before.share_pct, before.limit_pct) == (4 * GIB, 30, 60)
        assert (now.line_bytes, now.share_pct, now.limit_pct) == (6 * GIB, 40, 80)
        assert await written(world, "p") == (6, 40, 80)
        assert patches.patched.count(path) == 1
        await resize(world, "p", limit="70")
        assert await written(world, "p") == (6, 40, 70)
        assert await counted(world, "p") == (6, 40, 70)
        await placed(world, "declared", share=10, gpu_share_limit="60")
        await resize(world, "declared", share="20")
        assert await written(world, "declared") == (4, 20, 60)


async def test_shares_are_promised_up_to_100_and_a_lowering_lets_in_who_waits(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Placing and resizing both promise shares up to 100.

    A refused raise changes nothing, not even the line in the same request; a lowering lets a waiting pod in.
    """
    async with one_gpu(apiserver, valkey, namespace) as world:
        await placed(world, "p", share=30)
        await placed(world, "neighbour", share=50)
        await create_pod(apiserver, namespace, pod_manifest("waiting", {MEMORY: "1Gi", SHARE: "30"}))
        await world.until_refused("waiting", "1 Insufficient plimsoll.dev/gpu-share on one GPU")
        with pytest.raises(
            InputError, match=r"gpu-share: '51' does not fit: 50 % of .* give at most 50 in total"
        ):
            await resize(world, "p", share="51", size="6Gi")
        assert (await written(world, "p"), await counted(world, "p")) == ((4, 30, 100), (4, 30, 100))
        await resize(world, "p", share="50")
        await resize(world, "neighbour", share="20")
        await world.until_bound("waiting")
        with pytest.raises(InputError, match="50 % of GPU-n1-0 are promised to others; give at most 50"):
            await resize(world, "p", share="51")


async def test_the_next_placer_counts_resized_pods_by_their_decisions(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The next placer reads lines and shares from the annotation alone, also for a pod that declares no memory."""
    await create_node(apiserver, "n1")
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24)
        await placed(world, "p")
        loose = pod_manifest(
            "loose", {"plimsoll.dev/gpu": "1"}, annotations={"plimsoll.dev/best-effort": "true"}
        )
        await create_pod(apiserver, namespace, loose)
        await world.until_bound("loose")
        await resize(world, "p", share="50", size="6Gi")
        await resize(world, "loose", share="30", limit="40")
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("large", {MEMORY: "1Gi", SHARE: "21"}))
        await world.until_refused("large", "Insufficient plimsoll.dev/gpu-share")
        assert await counted(world, "p") == (6, 50, 100)
        assert (await counted(world, "loose"))[1:] == (30, 40)
        await placed(world, "small", share=20)


async def test_a_limit_that_its_owner_changed_counts_no_more_than_before(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A limit that its owner writes on the bound pod, also during a resize, neither limits nor stops the resize."""
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    theirs = {"metadata": {"annotations": {"plimsoll.dev/gpu-share-limit": "50"}}}
    patches.pod_faults.append(after(lambda: apiserver.must("PATCH", path, theirs)))
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", share=30)
        await resize(world, "p", share="60")
        assert await written(world, "p") == (4, 60, 100)
        assert await counted(world, "p") == (4, 60, 100)


async def test_a_decision_that_somebody_changed_meanwhile_is_not_overwritten_at_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A change of the decision since the check puts the resize off. The next request writes the decision anew.

    The room that the pod had, was promised, and may have by the change counts all the while.
    """
    patches = LossyBinds()
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    theirs = {"metadata": {"annotations": {"plimsoll.dev/decision": decision_text(GPU, 9, 10)}}}
    patches.pod_faults.append(after(lambda: apiserver.must("PATCH", path, theirs)))
    async with one_gpu(apiserver, valkey, namespace, patches.around) as world:
        await placed(world, "p", share=30)
        with pytest.raises(NotNowError, match="changed by somebody else meanwhile; ask again"):
            await resize(world, "p", share="60")
        await until(lambda: counts(world, "p", (9, 60, 100)))
        answer = await resize(world, "p", share="40")
        assert (answer.before[0].share_pct, answer.after[0].share_pct) == (30, 40)
        assert await written(world, "p") == (4, 40, 100)
        await until(lambda: counts(world, "p", (4, 40, 100)))


async def test_a_damaged_decision_is_written_anew(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A resize of either kind writes a decision that somebody damaged or removed anew, and keeps earlier resizes."""
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    async with one_gpu(apiserver, valkey, namespace) as world:
        await placed(world, "p", share=30)
        await resize(world, "p", size="6Gi")
        for spoiled, share in (("lots", "40"), (None, "50")):
            edit = {"plimsoll.dev/decision": spoiled, "gpus.plimsoll.dev/main": None}
            await apiserver.must("PATCH", path, {"metadata": {"annotations": edit}})
            await resize(world, "p", share=share)
            assert await written(world, "p") == (6, int(share), 100)
            assert await counted(world, "p") == (6, int(share), 100)
            assert (await world.pod("p"))["metadata"]["annotations"]["gpus.plimsoll.dev/main"] == GPU


@pytest.mark.parametrize(
    ("resources", "asked", "said"),
    [
        ({MEMORY: "1Gi", SHARE: "10"}, {"share": "10"}, "gpu-share: '10' is what it has already"),
        ({MEMORY: "1Gi", SHARE: "10"}, {"limit": "100"}, "gpu-share-limit: '100' is what it has already"),
    ],
)
async def test_what_cannot_be_changed_is_refused_by_name(
    apiserver: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    resources: dict[str, str],
    asked: dict[str, str],
    said: str,
) -> None:
    """Each pod that cannot be changed is refused with a reason of its own."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await create_pod(apiserver, namespace, pod_manifest("p", resources))
        await world.until_bound("p")
        before = await decision(world, "p")
        with pytest.raises(InputError, match=said):
            await resize(world, "p", **asked)
        assert await decision(world, "p") == before


async def counts(world: World, name: str, expected: tuple[float, int, int]) -> bool:
    """Whether the ledger counts exactly this for the pod."""
    booking = world.ledger.booking(PodUid((await world.pod(name))["metadata"]["uid"]))
    return booking is not None and await counted(world, name) == expected


async def decision(world: World, name: str) -> str:
    """The text of the pod's decision."""
    text: str = (await world.pod(name))["metadata"]["annotations"]["plimsoll.dev/decision"]
    return text
