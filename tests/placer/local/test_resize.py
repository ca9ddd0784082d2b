"""A local pod's new line is checked against the ledger, holds at once, and is known to the next placer."""

from pathlib import Path

import pytest

from placer.core.resize.change import NotNowError
from placer.local.frontend import LocalFrontEnd
from plimsoll.broker.client import BrokerClient
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.arrivals import eventually
from tests.placer.local.world import BUSY, World, gpu_of, idle_report, placed, pod, world

HOLD = [BUSY, "--memory", "512Mi", "--hold-seconds", "1000"]


async def holding(front_end: LocalFrontEnd, name: str, memory: str) -> PodUid:
    """Submit a pod that holds memory, and wait for its place."""
    return (await placed(front_end, pod(name, HOLD, memory))).uid


async def line_gib(here: World, uid: PodUid) -> float:
    """The line in GiB that the broker enforces for a pod."""
    async with BrokerClient(here.nodes[0].broker_root) as client:
        uses = (await client.describe()).containers
    return next(use.container.lines[0].line_bytes / GIB for use in uses if use.pod == uid)


def counted_gib(here: World, uid: PodUid) -> float:
    """The GiB that the ledger counts for a pod."""
    booking = here.decider.ledger.booking(uid)
    assert booking is not None
    return booking.grants[0].line_bytes / GIB


async def held(here: World, uid: PodUid) -> tuple[int, int, int]:
    """The line, share and limit that the broker enforces for a pod."""
    async with BrokerClient(here.nodes[0].broker_root) as client:
        uses = (await client.describe()).containers
    line = next(use.container.lines[0] for use in uses if use.pod == uid)
    return line.line_bytes, line.share_pct, line.limit_pct


def counted(here: World, uid: PodUid) -> tuple[int, int, int]:
    """The line, share and limit that the ledger counts for a pod."""
    booking = here.decider.ledger.booking(uid)
    assert booking is not None
    grant = booking.grants[0]
    return grant.line_bytes, grant.share_pct, grant.limit_pct


def with_share(manifest: Pod, share: str) -> Pod:
    """The same pod with a request for compute time."""
    resources = manifest.spec.containers[0].resources
    assert resources is not None
    assert resources.limits is not None
    resources.limits["plimsoll.dev/gpu-share"] = share
    return manifest


async def test_a_new_line_holds_at_the_broker_and_in_the_ledger(tmp_path: Path) -> None:
    """A line is raised and lowered within the free promises. A raise past them is refused and changes nothing."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        here.tell(idle_report("n1", 2))
        uid = await holding(front_end, "p", "2Gi")
        await holding(front_end, "neighbour", "10Gi")
        answer = await front_end.resize(Resize(pod="p", gpu_memory="13Gi"))
        [before], [after] = answer.before, answer.after
        assert (before.gpu, before.line_bytes, after.line_bytes) == (gpu_of("n1"), 2 * GIB, 13 * GIB)
        assert (await line_gib(here, uid), counted_gib(here, uid)) == (13, 13)
        with pytest.raises(InputError, match="gpu-memory: '14Gi' does not fit"):
            await front_end.resize(Resize(pod="p", gpu_memory="14Gi"))
        with pytest.raises(InputError, match="is what it has already"):
            await front_end.resize(Resize(pod="p", gpu_memory="13Gi"))
        await front_end.resize(Resize(pod="p", gpu_memory="1Gi"))
        assert (await line_gib(here, uid), counted_gib(here, uid)) == (1, 1)
        assert front_end.has("default", "p")
        await front_end.end(uid)
        assert not front_end.has("default", "p")


async def test_a_lowering_lets_a_pod_in_that_waited_for_room(tmp_path: Path) -> None:
    """A lowering lets a waiting pod in, without a report or the end of a pod."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        here.tell(idle_report("n1", 2))
        await holding(front_end, "p", "20Gi")
        uid = front_end.enqueue(pod("waiting", HOLD, "10Gi")).uid

        async def is_told_why() -> bool:
            row = front_end.pods.get(uid)
            return row is not None and row.message.startswith("0/1 nodes are available")

        async def is_placed() -> bool:
            return here.decider.ledger.booking(uid) is not None

        await eventually(is_told_why, expected=True)
        await front_end.resize(Resize(pod="p", gpu_memory="1Gi"))
        await eventually(is_placed, expected=True)


async def test_with_its_broker_away_nothing_is_given_up(tmp_path: Path) -> None:
    """A resize without its broker is put off, and the ledger counts the line that the broker may still hold."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        here.tell(idle_report("n1", 2))
        uid = await holding(front_end, "p", "2Gi")
        name = here.nodes[0].broker_root / "broker.sock"
        name.rename(tmp_path / "hidden")
        name.touch()  # The broker would make a socket that is missing anew.
        await front_end._brokers[here.nodes[0].name].close()  # An open connection would still serve.
        with pytest.raises(NotNowError, match=r"did not .*; ask again"):
            await front_end.resize(Resize(pod="p", gpu_memory="1Gi"))
        assert counted_gib(here, uid) == 2
        (tmp_path / "hidden").rename(name)
        await front_end.resize(Resize(pod="p", gpu_memory="1Gi"))
        assert counted_gib(here, uid) == 1


async def test_a_new_share_holds_at_the_broker_and_in_the_ledger(tmp_path: Path) -> None:
    """A pod without a share gets one together with a new line; after a lowering the next pod gets the share."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        here.tell(idle_report("n1", 2))
        uid = await holding(front_end, "p", "2Gi")
        asked = Resize(pod="p", gpu_memory="3Gi", gpu_share="70", gpu_share_limit="90")
        answer = await front_end.resize(asked)
        [after] = answer.after
        assert (after.line_bytes, after.share_pct, after.limit_pct) == (3 * GIB, 70, 90)
        assert await held(here, uid) == counted(here, uid) == (3 * GIB, 70, 90)
        with pytest.raises(InputError, match=r"gpu-share: '95' is 95 on each GPU, above the limit of 90"):
            await front_end.resize(Resize(pod="p", gpu_share="95"))
        with pytest.raises(InputError, match="gpu-share: '70' is what it has already"):
            await front_end.resize(Resize(pod="p", gpu_share="70"))
        waiting = front_end.enqueue(with_share(pod("waiting", HOLD), "40")).uid

        async def is_told_why() -> bool:
            row = front_end.pods.get(waiting)
            return row is not None and "Insufficient plimsoll.dev/gpu-share" in row.message

        async def is_placed() -> bool:
            return here.decider.ledger.booking(waiting) is not None

        await eventually(is_told_why, expected=True)
        await front_end.resize(Resize(pod="p", gpu_share="60"))
        await eventually(is_placed, expected=True)
        with pytest.raises(
            InputError, match=r"'61' does not fit: 40 % of .* are promised to others; give at most 60"
        ):
            await front_end.resize(Resize(pod="p", gpu_share="61"))
