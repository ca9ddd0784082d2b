"""A stock kube-scheduler in front of the placer, and the test between both.

kube-scheduler asks `Between`, which hands each request on to the placer that runs at that moment. A test may do
something in between, for instance before a bind: take the GPU away, or restart the placer.
"""

import asyncio
import contextlib
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from placer.extender.http import PATH, ExtenderMetrics, serving_extender
from placer.kube.parts import KubeParts
from plimsoll.ids import NodeName, PodUid
from plimsoll.part.web import open_tcp, port_of, serving
from plimsoll_cli.demo.servers import ServerKind, running
from tests.cluster import assets
from tests.placer.kube.world import World
from tests.placer.local.world import REPOSITORY
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, pod_manifest
from tests.servers.waiting import until_true

CONFIGURATION = REPOSITORY / "deploy" / "kube-scheduler-extender.yaml"
SCHEDULER = "default-scheduler"
MEMORY, SHARE, GPUS = "plimsoll.dev/gpu-memory", "plimsoll.dev/gpu-share", "plimsoll.dev/gpu"
HEADERS = {"Content-Type": "application/json"}

Before = Callable[[Object], Awaitable[None]]


@dataclass(slots=True)
class Between:
    """Hands kube-scheduler's requests on.

    Attributes:
        port: the port of the placer's extender; 0 while none runs.
        before: by verb, awaited with each question before it is handed on.
        answers: by verb, the answers in order.
    """

    port: int = 0
    before: dict[str, Before] = field(default_factory=dict)
    answers: list[tuple[str, Any]] = field(default_factory=list)

    def errors(self, verb: str) -> list[str]:
        """The errors that this verb was answered with, in order."""
        return [answer["Error"] for one, answer in self.answers if one == verb and answer["Error"]]

    def counts(self) -> Counter[str]:
        """The number of answers by verb."""
        return Counter(verb for verb, _ in self.answers)

    async def handle(self, request: web.Request) -> web.Response:
        """Hand a request on."""
        verb, body = request.match_info["verb"], await request.read()
        if verb in self.before:
            await self.before[verb](json.loads(body))
        status, text = await ask(self.port, verb, body)
        if status == 200:
            self.answers.append((verb, json.loads(text)))
        return web.Response(status=status, body=text, content_type="application/json")


async def ask(port: int, verb: str, body: object) -> tuple[int, bytes]:
    """Ask the extender as kube-scheduler does; the status and the body of its answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://127.0.0.1:{port}{PATH}/{verb}", data=io.BytesIO(data), headers=HEADERS) as answer,
    ):
        return answer.status, await answer.read()


async def asked(port: int, verb: str, body: object) -> Any:  # noqa: ANN401 - JSON
    """Like `ask`, for a question that has an answer."""
    status, text = await ask(port, verb, body)
    assert status == 200, text
    return json.loads(text)


def order(pod: Object, node: str) -> Object:
    """kube-scheduler's order to bind a pod."""
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


@contextlib.asynccontextmanager
async def serving_front(parts: KubeParts, between: Between | None = None) -> AsyncIterator[int]:
    """Serve the extender of a front end until the context ends; gives its port, also to `between`."""
    metrics = ExtenderMetrics(parts.context.decider.metrics.registry)
    async with serving_extender(parts.extender, ("127.0.0.1", 0), metrics) as port:
        if between is not None:
            between.port = port
        yield port


@contextlib.asynccontextmanager
async def kube_scheduler(api: ApiServer, folder: Path, between: Between) -> AsyncIterator[None]:
    """Run kube-scheduler until the context ends; it asks `between`, by plain HTTP."""
    listeners = await open_tcp("127.0.0.1", 0, "PORT")
    url = f"http://127.0.0.1:{port_of(listeners)}{PATH}"
    changes = {"enableHTTPS": False, "urlPrefix": url, "tlsConfig": None}
    routes = [web.post(PATH + "/{verb}", between.handle)]
    async with serving(routes, listeners, body_bytes=2**26), configured(api, folder, changes):
        yield


@contextlib.asynccontextmanager
async def configured(api: ApiServer, folder: Path, changes: Mapping[str, object]) -> AsyncIterator[None]:
    """Run kube-scheduler with the configuration in `deploy/` until the context ends.

    Only addresses differ: of the API server, and of the extender by `changes`. There is no lease. A pod that was
    not bound is tried again after 1 s at the latest.
    """
    config = yaml.safe_load(await asyncio.to_thread(CONFIGURATION.read_text))
    config["clientConnection"] = {"kubeconfig": str(api.kubeconfig()), "qps": 1000, "burst": 1000}
    config |= {"leaderElection": {"leaderElect": False}, "podMaxBackoffSeconds": 1}
    config["extenders"][0] |= changes
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    path = folder / "config.json"
    await asyncio.to_thread(path.write_text, json.dumps(config))

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--config={path}", "--secure-port=0")

    binary = assets.binary("kube-scheduler")
    kind = ServerKind("kube-scheduler", "http", "Starting Kubernetes Scheduler", lambda: binary, arguments)
    async with running(kind, folder / "kube-scheduler") as server:
        yield
        await server.kill()


async def gpu_node(world: World, name: str, *free_gib: int, total_gib: int = 24) -> None:
    """A node whose GPUs have this much free memory, as the monitor advertises and reports it.

    Returns once the placer leads and its watch has shown what the node offers. Before that, the placer refuses each
    question and bind.
    """
    totals = {
        MEMORY: f"{total_gib * len(free_gib)}Gi",
        SHARE: f"{100 * len(free_gib)}",
        GPUS: f"{30 * len(free_gib)}",
    }
    await create_node(world.api, name, totals)
    await world.report(name, *free_gib, total_gib=total_gib)
    parts = world.parts
    await until_true(
        lambda: parts.context.leads.is_set() and parts.core.profile.cache.free(NodeName(name), GPUS) > 0
    )


async def until_freed(world: World, node: str, pod: Object) -> None:
    """Wait until the placer no longer counts this pod, and let kube-scheduler try again, as on any event.

    kube-scheduler may see a pod's end before the placer does, and then has tried in vain.
    """
    await until_true(lambda: world.ledger.booking(PodUid(pod["metadata"]["uid"])) is None)
    await world.api.must("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"room": "freed"}}})


def front_pod(name: str, resources: dict[str, str], **more: Any) -> Object:  # noqa: ANN401 - passed on
    """A pod that kube-scheduler places; see `pod_manifest`."""
    return pod_manifest(name, resources, scheduler=SCHEDULER, **more)
