"""Each request over a real NATS is answered once, one after another, also if the request is damaged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import nats as nats_client
import pytest
from nats.aio.client import Client

from placer.api.rpc import RpcServer
from placer.core.resize.change import NotNowError
from plimsoll.broker.wire import Line
from plimsoll.bus.subjects import RESIZE
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Failed, Refused, Resize, ResizeAnswer, Resizing
from tests.servers.waiting import PATIENCE_S, until

DONE = Resizing(
    node=NodeName("n1"),
    pod=PodUid("u"),
    container=ContainerName("main"),
    before=(Line(gpu=GpuUuid("GPU-1"), line_bytes=1),),
    after=(Line(gpu=GpuUuid("GPU-1"), line_bytes=2),),
)


class FrontEnd:
    """Stands in for a front end, which has tests of its own.

    It answers by the pod's name and detects overlapping requests.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.at_once = 0
        self.most_at_once = 0

    def has(self, namespace: str, pod: str) -> bool:  # noqa: ARG002 - see the protocol
        """Claim every pod in its namespace."""
        return namespace == self._namespace

    async def resize(self, request: Resize) -> Resizing:
        """Answer by the pod's name."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.02)
        self.at_once -= 1
        if request.pod == "bad":
            raise InputError("pod", "bad", "is bad", "name a good one")
        if request.pod == "later":
            raise NotNowError("not now")
        return DONE


@asynccontextmanager
async def served(nats: EmbeddedServer, *front_ends: FrontEnd, later: int = 0) -> AsyncIterator[Client]:
    """A client of a server that answers; the server expects this many more front ends."""
    client = await nats_client.connect(nats.url)
    server = RpcServer(client, len(front_ends) + later)
    for front_end in front_ends:
        server.add(front_end)
    task = asyncio.create_task(server.run())
    try:
        await until(lambda: _answers(client))
        yield client
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()


async def _answers(client: Client) -> bool:
    with suppress(nats_client.errors.NoRespondersError):
        return bool((await client.request(RESIZE, b"?", timeout=PATIENCE_S)).data)
    return False


async def ask(client: Client, request: bytes | Resize) -> ResizeAnswer:
    """Send one request and return its answer."""
    data = request if isinstance(request, bytes) else msgspec.json.encode(request)
    answer: ResizeAnswer = msgspec.json.decode(
        (await client.request(RESIZE, data, timeout=PATIENCE_S)).data, type=ResizeAnswer
    )
    return answer


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 50_000, b'{"pod": 1, "gpu_memory": "6Gi"}'])
async def test_a_damaged_request_is_answered_and_others_go_on(nats: EmbeddedServer, data: bytes) -> None:
    """A damaged request is answered with its fault, and the server goes on."""
    async with served(nats, FrontEnd("default")) as client:
        answer = await ask(client, data)
        assert isinstance(answer, Refused)
        assert answer.message.startswith("the request is damaged")
        assert await ask(client, Resize(pod="good", gpu_memory="6Gi")) == DONE


async def test_what_went_wrong_tells_whether_to_ask_again(nats: EmbeddedServer) -> None:
    """An error tells whether to ask again: a refusal is final, a failure is not, and an unknown pod is not found."""
    async with served(nats, FrontEnd("default")) as client:
        refused = await ask(client, Resize(pod="bad", gpu_memory="6Gi"))
        assert refused == Refused(message="pod: 'bad' is bad; name a good one")
        assert await ask(client, Resize(pod="later", gpu_memory="6Gi")) == Failed(message="not now")
        unknown = await ask(client, Resize(pod="good", namespace="other", gpu_memory="6Gi"))
        assert isinstance(unknown, Refused)
        assert "pod: 'other/good' does not exist" in unknown.message


async def test_while_a_front_end_is_missing_no_pod_is_said_not_to_exist(nats: EmbeddedServer) -> None:
    """A placer that has just started puts off a request for an unknown pod, and serves the pods it knows."""
    async with served(nats, FrontEnd("default"), later=1) as client:
        assert await ask(client, Resize(pod="good", gpu_memory="6Gi")) == DONE
        unknown = await ask(client, Resize(pod="good", namespace="other", gpu_memory="6Gi"))
        assert isinstance(unknown, Failed)
        assert "has just started" in unknown.message


async def test_two_resizes_never_overlap(nats: EmbeddedServer) -> None:
    """Ten simultaneous resizes are carried out one after another, and all are answered."""
    front_end = FrontEnd("default")
    async with served(nats, FrontEnd("other"), front_end) as client:
        asked = [ask(client, Resize(pod="good", gpu_memory="6Gi")) for _ in range(10)]
        assert await asyncio.gather(*asked) == [DONE] * 10
    assert front_end.most_at_once == 1
