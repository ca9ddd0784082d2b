"""`plimsoll resize` against a real NATS is done only once every GPU's new line was announced.

The placer is played by a plain responder: the tests check the command's messages when a part is missing or late;
the real ones are joined in tests/e2e.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import nats as nats_client
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from plimsoll import envelope
from plimsoll.broker.wire import Line
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import RESIZE, limit_subject
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.cli.resize import ASK_AGAIN_S, Confirmed, NotConfirmedError, NotResizedError, resize
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api.rpc import Failed, Refused, Resize, ResizeAnswer, Resizing
from plimsoll.quantity import GIB
from tests.servers.waiting import PATIENCE_S

N1, POD, MAIN = NodeName("n.1"), PodUid("u"), ContainerName("main")
A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")
REQUEST = Resize(pod="p", gpu_memory="6Gi")
SHORT_S = 5.0
"""For what never comes. The answers and announcements before it need some milliseconds, or a few seconds on a machine
that stands still."""


def resizing(before_gib: int = 4) -> Resizing:
    """The placer's answer that grants 3 GiB on each of two GPUs."""
    before, after = (tuple(Line(gpu=gpu, line_bytes=gib * GIB) for gpu in (A, B)) for gib in (before_gib, 3))
    return Resizing(node=N1, pod=POD, container=MAIN, before=before, after=after)


def limit(
    gpu: GpuUuid, gib: int, pod: PodUid = POD, reason: str = "", share: int = 0, most: int = 100
) -> Limit:
    """The announcement of a line that holds now, with share and limit."""
    return Limit(
        node=N1,
        gpu=gpu,
        pod=pod,
        container=MAIN,
        used_bytes=GIB,
        line_bytes=gib * GIB,
        share_pct=share,
        limit_pct=most,
        reason=reason,
    )


def resharing(*, before: int = 20) -> Resizing:
    """The placer's answer that grants 40 percent on GPU A, with a limit of 80 and the old line."""
    old = Line(gpu=A, line_bytes=GIB, share_pct=before, limit_pct=60 if before == 20 else 80)
    new = Line(gpu=A, line_bytes=GIB, share_pct=40, limit_pct=80)
    return Resizing(node=N1, pod=POD, container=MAIN, before=(old,), after=(new,))


async def announce(client: Client, *limits: Limit) -> None:
    """Publish announcements as monitors do."""
    for one in limits:
        body = envelope.encode(
            "limit.resized", os.urandom(8).hex(), "/nodes/n.1", "2026-01-01T00:00:00Z", one
        )
        await client.jetstream().publish(limit_subject("resized", N1), body)


@asynccontextmanager
async def placer(
    nats: EmbeddedServer,
    answer: ResizeAnswer,
    then: Sequence[Limit] = (),
    earlier: Sequence[Limit] = (),
    request: Resize = REQUEST,
) -> AsyncIterator[Client]:
    """A placer that gives this answer to every request.

    The lines in `earlier` are announced before an answer, the others after it.
    """
    client = await nats_client.connect(nats.url)

    async def respond(message: Msg) -> None:
        assert msgspec.json.decode(message.data, type=Resize) == request
        await message.respond(msgspec.json.encode(answer))
        await announce(client, *then)

    try:
        await Stream().ensure(client.jetstream())
        await announce(client, *earlier)
        await client.subscribe(RESIZE, cb=respond)
        await client.flush()
        yield client
    finally:
        await client.close()


async def test_it_is_done_once_every_gpu_announced_its_new_line(nats: EmbeddedServer) -> None:
    """Announcements from before, for other pods, or with other sizes do not count; the reason is shown."""
    noise = (limit(A, 3), limit(B, 3))
    held = "holds 3.1Gi now: growth is refused until it is below"
    later = (limit(A, 3), limit(B, 3, PodUid("other")), limit(B, 9), limit(B, 3, reason=held))
    async with placer(nats, resizing(), later, earlier=noise):
        confirmed = await resize(REQUEST, nats.url, PATIENCE_S)
    assert isinstance(confirmed, Confirmed)
    assert list(confirmed.lines()) == [
        "GPU-A on n.1: line 4Gi -> 3Gi, holds 1Gi now",
        f"GPU-B on n.1: line 4Gi -> 3Gi, {held}",
    ]


async def test_a_server_that_is_away_is_passed_over(nats: EmbeddedServer) -> None:
    """With several servers given, one that answers is enough."""
    async with placer(nats, resizing(), (limit(A, 3), limit(B, 3))):
        await resize(REQUEST, f"nats://127.0.0.1:1,{nats.url}", PATIENCE_S)


async def test_a_line_set_before_is_confirmed_by_what_was_announced_then(nats: EmbeddedServer) -> None:
    """A request repeated after a lost confirmation finds it in the stream, if no newer one is there."""
    async with placer(nats, resizing(before_gib=3), earlier=(limit(A, 3), limit(B, 3))):
        await resize(REQUEST, nats.url, PATIENCE_S)


async def test_a_line_announced_once_and_changed_since_is_not_confirmed(nats: EmbeddedServer) -> None:
    """Only the latest confirmation counts: the broker may not have applied the repeated request."""
    earlier = (limit(A, 3), limit(B, 3), limit(A, 5), limit(B, 5))
    async with placer(nats, resizing(before_gib=3), earlier=earlier):
        with pytest.raises(NotConfirmedError, match="another resize came after this one: GPU-A has line 5Gi"):
            await resize(REQUEST, nats.url, SHORT_S)


async def test_a_share_is_confirmed_by_shares_whatever_else_changes(nats: EmbeddedServer) -> None:
    """Only the requested values must match; the line may have changed meanwhile."""
    request = Resize(pod="p", gpu_share="40", gpu_share_limit="80")
    then = (limit(A, 1, share=40, most=60), limit(A, 9, share=40, most=80))
    async with placer(nats, resharing(), then, request=request):
        confirmed = await resize(request, nats.url, PATIENCE_S)
    assert list(confirmed.lines()) == ["GPU-A on n.1: share 20 % -> 40 %, limit 60 % -> 80 %"]


async def test_another_share_than_was_asked_confirms_nothing(nats: EmbeddedServer) -> None:
    """The message shows the present values."""
    request = Resize(pod="p", gpu_share="40", gpu_share_limit="80")
    async with placer(nats, resharing(), (limit(A, 1, share=30, most=80),), request=request):
        with pytest.raises(NotConfirmedError, match="GPU-A has share 30 %, limit 80 %; look at the pod"):
            await resize(request, nats.url, SHORT_S)


async def test_line_and_share_asked_together_are_confirmed_together(nats: EmbeddedServer) -> None:
    """Only an announcement with both values confirms the request."""
    request = Resize(pod="p", gpu_memory="1Gi", gpu_share="40")
    then = (limit(A, 2, share=40), limit(A, 1, share=20), limit(A, 1, share=40))
    async with placer(nats, resharing(), then, request=request):
        confirmed = await resize(request, nats.url, PATIENCE_S)
    assert list(confirmed.lines()) == ["GPU-A on n.1: line 1Gi -> 1Gi, share 20 % -> 40 %, holds 1Gi now"]


@pytest.mark.parametrize(
    ("answer", "then", "said"),
    [
        (resizing(), (), "the broker on n.1 did not confirm in 5 s; the values before stay"),
        (resizing(), (limit(A, 3),), "the broker on n.1 did not confirm"),
        (resizing(), (limit(A, 3), limit(B, 9)), "another resize came after this one: GPU-B has line 9Gi"),
        (Failed(message="not now"), (), "not now"),
    ],
)
async def test_without_confirmation_it_is_not_done(
    nats: EmbeddedServer, answer: ResizeAnswer, then: Sequence[Limit], said: str
) -> None:
    """The message says how far the change came, also where only earlier announcements fit."""
    async with placer(nats, answer, then, earlier=(limit(A, 3), limit(B, 3))):
        with pytest.raises(NotConfirmedError, match=said):
            await resize(REQUEST, nats.url, SHORT_S)


async def test_a_request_that_a_stopped_leader_lost_is_sent_again(nats: EmbeddedServer) -> None:
    """A leader that stands still never answers. The placer that follows answers the repeated request."""
    stopped = await nats_client.connect(nats.url)
    lost = asyncio.Event()

    async def lose(_: Msg) -> None:
        lost.set()

    try:
        await stopped.subscribe(RESIZE, cb=lose)
        await Stream().ensure(stopped.jetstream())
        async with asyncio.TaskGroup() as tasks:
            resized = tasks.create_task(resize(REQUEST, nats.url, PATIENCE_S))
            await lost.wait()
            async with placer(nats, resizing(), (limit(A, 3), limit(B, 3))):
                assert (await resized).asked == resizing()
    finally:
        await stopped.close()


async def test_a_leader_that_ends_after_it_lost_a_request_is_waited_for(nats: EmbeddedServer) -> None:
    """While no placer leads, nobody reads the repeated request; the next leader answers it."""
    ending = await nats_client.connect(nats.url)
    await Stream().ensure(ending.jetstream())
    lost = asyncio.Event()

    async def lose(_: Msg) -> None:
        lost.set()

    await ending.subscribe(RESIZE, cb=lose)
    await ending.flush()
    async with asyncio.TaskGroup() as tasks:
        resized = tasks.create_task(resize(REQUEST, nats.url, PATIENCE_S))
        await lost.wait()
        await ending.close()
        await asyncio.sleep(ASK_AGAIN_S * 1.5)  # the request that nobody reads falls into this time
        async with placer(nats, resizing(), (limit(A, 3), limit(B, 3))):
            assert (await resized).asked == resizing()


async def test_parts_that_are_missing_are_named(nats: EmbeddedServer) -> None:
    """No NATS, no stream, no placer: each with its remedy, at once."""
    with pytest.raises(NotConfirmedError, match=r"NATS at nats://127.0.0.1:1 does not answer: .*--nats-url"):
        await resize(REQUEST, "nats://127.0.0.1:1", PATIENCE_S)
    with pytest.raises(NotConfirmedError, match="stream PLIMSOLL cannot be read"):
        await resize(REQUEST, nats.url, PATIENCE_S)
    client = await nats_client.connect(nats.url)
    await Stream().ensure(client.jetstream())
    await client.close()
    with pytest.raises(NotConfirmedError, match="no placer answers; nothing was changed"):
        await resize(REQUEST, nats.url, PATIENCE_S)


@pytest.mark.parametrize(
    ("answer", "then", "code", "said"),
    [
        (
            resizing(),
            (limit(A, 3), limit(B, 3)),
            0,
            "default/p: GPU-A on n.1: line 4Gi -> 3Gi, holds 1Gi now",
        ),
        (
            Refused(message="gpu-memory: '6Gi' does not fit"),
            (),
            2,
            "plimsoll: gpu-memory: '6Gi' does not fit",
        ),
        (Failed(message="not now"), (), 1, "plimsoll: not now"),
    ],
)
async def test_the_exit_code_is_the_outcome(
    nats: EmbeddedServer, answer: ResizeAnswer, then: Sequence[Limit], code: int, said: str
) -> None:
    """The exit code is 0 for confirmed, 2 for refused, and 1 for every unconfirmed outcome."""
    async with placer(nats, answer, then):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "plimsoll", "resize", "p", "--gpu-memory", "6Gi"),
            env={**os.environ, "PLIMSOLL_NATS_URL": nats.url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
    assert (process.returncode, said in output.decode()) == (code, True), output.decode()


async def test_a_refusal_is_an_error_of_its_own(nats: EmbeddedServer) -> None:
    """A refusal is an error of its own, as it shows that nothing was changed."""
    async with placer(nats, Refused(message="no")):
        with pytest.raises(NotResizedError, match="no"):
            await resize(REQUEST, nats.url, PATIENCE_S)


@pytest.mark.parametrize("namespace", ["default", "plimsoll-run"])
async def test_a_resize_that_asks_nothing_is_refused(namespace: str) -> None:
    """The refusal comes before any connection, and names the possible changes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "resize", "p", "-n", namespace),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    message = "nothing is to be changed; give at least one of --gpu-memory, --gpu-share, --gpu-share-limit"
    assert (process.returncode, message in output.decode()) == (2, True), output.decode()
