"""The HTTP API of a real placer: its document, pages, ETags, and explanations of local pods."""

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from placer.api.http import Api, serving_port
from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.placer_api.explain import Explained, PodState
from plimsoll.placer_api.http import GPUS_PATH, NODES_PATH, GpuPage, NodePage, Problem, State
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.live import snapshot
from plimsoll_cli.pods import lines_of
from tests.placer.arrivals import bus, eventually, publish, report
from tests.placer.core.worlds import gpu
from tests.placer.local.world import REPOSITORY, idle_report
from tests.placer.states import reader_of
from tests.placer.test_app import MANIFEST, PlacerProcess, local_settings, placer
from tests.slow import examples

EXAMPLES = examples(40)
"""Requests that are drawn for each path and phase: some seconds in all."""


@contextlib.asynccontextmanager
async def served(
    directory: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> AsyncIterator[tuple[PlacerProcess, aiohttp.ClientSession]]:
    """A placer with an emulated node and nine that only report, and a client on its TCP port."""
    async with contextlib.AsyncExitStack() as stack:
        settings = await local_settings(directory, "n1", stack)
        jetstream = await stack.enter_async_context(bus(nats))
        await publish(jetstream, idle_report("n1"), *(report(f"r{i}") for i in range(9)))
        part = await stack.enter_async_context(placer(directory, nats, valkey, http_port="0", **settings))
        yield part, await stack.enter_async_context(aiohttp.ClientSession(part.url))


@pytest.mark.hypothesis
async def test_requests_drawn_from_the_document_are_answered_as_it_says(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """Schemathesis draws legal and illegal requests, and finds no answer that the document does not promise."""
    async with served(tmp_path, nats, valkey) as (part, _):
        for name, size in (("runs", "1Gi"), ("waits", "900Gi")):
            await part.submit(MANIFEST.format(name=name, seconds=1000).replace("1Gi", size))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{part.url}/v1/openapi.json"),
            *("--include-tag", "read", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"),
            *("--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()


async def test_the_owner_reads_the_live_stream_on_the_socket(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """`plimsoll pods` and `top` need no port: the control socket serves the stream too."""
    async with served(tmp_path, nats, valkey) as (part, _):
        await part.submit(MANIFEST.format(name="runs", seconds=1000))
        socket = str(tmp_path / "placer.sock")

        async def pods() -> list[str]:
            return [pod.full_name for pod in lines_of(await snapshot(socket))]

        await eventually(pods, ["default/runs"])


async def explained(tcp: aiohttp.ClientSession, name: str, query: str = "") -> tuple[int, bytes]:
    """Status and body of the explanation of a local pod."""
    async with tcp.get(f"/v1/pods/default/{name}/explain{query}") as response:
        return response.status, await response.read()


async def test_local_pods_are_explained(tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """A pod that waits says what it lacks, a pod that runs what it has; an unknown one is answered with 404."""
    async with served(tmp_path, nats, valkey) as (part, tcp):
        for name, size in (("runs", "20Gi"), ("waits", "10Gi")):
            await part.submit(MANIFEST.format(name=name, seconds=1000).replace("1Gi", size))

        async def states() -> list[PodState]:
            bodies = [(await explained(tcp, name))[1] for name in ("runs", "waits")]
            return [msgspec.json.decode(body, type=Explained).state for body in bodies]

        await eventually(states, [PodState.RUNNING, PodState.WAITING])
        runs = msgspec.json.decode((await explained(tcp, "runs"))[1], type=Explained).running
        assert runs is not None
        [grant] = runs.grants
        assert (runs.node, grant.container, grant.line_bytes) == ("n1", "main", 20 << 30)
        waits = msgspec.json.decode((await explained(tcp, "waits"))[1], type=Explained).waiting
        assert waits is not None
        [near] = waits.nearest
        assert "1 pod of default holds 20Gi" in near.text
        assert [one.nodes for one in waits.reasons] == [1]
        status, body = await explained(tcp, "nobody")
        assert (status, msgspec.json.decode(body, type=Problem).message) == (
            404,
            "pod: 'default/nobody' does not exist; name a pod, and its namespace",
        )
        await part.client.delete(f"http://placer/v1/pods/{(await part.state()).pods[0].uid}")
        body = (await explained(tcp, "runs"))[1]
        assert msgspec.json.decode(body, type=Explained).state is PodState.ENDED


async def test_pages_and_etags(tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """Pages cover all nodes and GPUs; a page that has not changed is answered with 304 and no body."""
    async with served(tmp_path, nats, valkey) as (part, tcp):
        await eventually(lambda: _count(part), 10)
        seen: list[str] = []
        more = ""
        while True:
            async with tcp.get(NODES_PATH, params={"limit": "4", "continue": more}) as response:
                page = msgspec.json.decode(await response.read(), type=NodePage)
            seen += [row.node for row in page.items]
            more = page.more
            if not more:
                break
        assert seen == ["n1", *(f"r{i}" for i in range(9))]
        async with tcp.get(GPUS_PATH, params={"node": "r3"}) as response:
            etag = response.headers["ETag"]
            [row] = msgspec.json.decode(await response.read(), type=GpuPage).items
        assert (row.node, row.uuid) == ("r3", "GPU-r3")
        for given, status in ((etag, 304), (f'"other", W/{etag}', 304), ('"other"', 200), ("*", 304)):
            async with tcp.get(
                GPUS_PATH, params={"node": "r3"}, headers={"If-None-Match": given}
            ) as response:
                assert (response.status, response.headers["ETag"]) == (status, etag)
                assert bool(await response.read()) == (status == 200)
        async with bus(nats) as jetstream:
            await publish(jetstream, report("r3", 2))

        async def status_now() -> int:
            async with tcp.get(GPUS_PATH, params={"node": "r3"}, headers={"If-None-Match": etag}) as response:
                return response.status

        await eventually(status_now, 200)


async def _count(part: PlacerProcess) -> int:
    return len((await part.state()).nodes)


async def test_refusals_have_a_problem_as_their_body(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """Wrong parameters, paths and methods are answered in JSON; HEAD has the headers of GET."""
    async with served(tmp_path, nats, valkey) as (part, tcp):
        for method, path, status, text in (
            ("GET", "/v1/nodes?limit=501", 400, "limit: '501' cannot be; give a whole number from 1 to 500"),
            ("GET", "/v1/gpus?limit=-1", 400, "limit: '-1' cannot be"),
            ("GET", "/v1/gpus?node=a&node=b", 400, "node: ['a', 'b'] is given more than once"),
            ("GET", "/v1/nothing", 404, "GET /v1/nothing: Not Found"),
            ("POST", "/v1/nodes", 405, "POST /v1/nodes: Method Not Allowed"),
            ("DELETE", "/v1/pods/uid", 404, "Not Found"),
        ):
            async with tcp.request(method, path) as response:
                body = msgspec.json.decode(await response.read(), type=Problem)
                assert (response.status, text in body.message) == (status, True), body
                assert ("Allow" in response.headers) == (status == 405)
        for path in ("/v1/state", "/v1/nodes", "/v1/openapi.json"):
            async with tcp.head(path) as response:
                assert response.status == 200
                assert response.content_type == "application/json"
        async with part.client.get("http://placer/v1/pods/default/nobody/explain") as response:
            assert response.status == 404


async def test_a_reader_that_hangs_up_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A client that closes its connection in the middle of the state leaves no traceback, and delays nobody."""
    gpus = tuple(gpu(f"GPU-{i}") for i in range(8))
    decider = Decider(ReportView(), Ledger(), Metrics())
    for i in range(2000):
        decider.reports.apply(report(f"n{i:04}", gpus=gpus))
    reader = reader_of(decider)
    api = Api(reader.rows, reader, tuple, tuple, decider.metrics.registry)
    gc.collect()  # what tests before this one left behind is reported now
    caplog.clear()
    async with serving_port(api, "127.0.0.1", 0) as port:
        for _ in range(3):
            stream, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/state HTTP/1.1\r\nHost: x\r\n\r\n")
            await stream.readexactly(1000)
            writer.transport.abort()
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/v1/state") as response:
            assert len(msgspec.json.decode(await response.read(), type=State).nodes) == 2000
    assert not caplog.records
