"""The world of a run: a real API server, NATS, Valkey, and placers behind a proxy each."""

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, free_port, nats_server, valkey_server
from tests.chaos.fleet import CARDS, FLEET, Machine
from tests.chaos.journal import Journal
from tests.chaos.leases import LEASES, Leases
from tests.chaos.monitors import Monitors
from tests.chaos.pods import PRIORITIES
from tests.chaos.proxy import Proxy, proxy
from tests.chaos.watching import Watching
from tests.chaos.witness import TENANT, Witness
from tests.constants import part_with
from tests.placer.placers import free_lease
from tests.servers.apiserver import Answer, ApiServer, RefusedError
from tests.servers.control_plane import ControlPlane, control_plane
from tests.servers.objects import ready_condition
from tests.servers.waiting import until

ROOT: Final = Path(__file__).parents[2]
POLICY: Final = ROOT / "deploy" / "annotations-policy.yaml"
SHIPPED_WRITER: Final = "system:serviceaccount:plimsoll-system:plimsoll-placer"
PLACER_USER: Final = "plimsoll-placer"
TENANT_USER: Final = "somebody"
NAMESPACE: Final = "chaos"
REQUEST_S: Final = 10.0
TERM_S: Final = 30.0
"""A placer closes several connections on SIGTERM, each with a time limit. After this time it counts as hung."""
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"

Object = dict[str, Any]


@dataclass(slots=True)
class Placer:
    """A placer: a process that may be killed, its way to the API server, and its HTTP port."""

    name: str
    server: EmbeddedServer
    proxy: Proxy

    def crashes(self) -> int:
        """The number of errors in its log that its code did not expect. Blocks."""
        return (self.server.directory / "server.log").read_text(errors="replace").count("Traceback (most")

    async def fetch(self, path: str) -> bytes | None:
        """The answer of its HTTP API, or None if it gives none with status 200."""
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.get(self.server.url + path) as answer,
            ):
                return await answer.read() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


@dataclass(slots=True)
class World:
    """Everything that runs.

    Attributes:
        witness, pods: the judge of pods, and the watch that feeds it.
        leases: the history of the placers' Lease.
        missing: the machines whose Node object a fault has deleted.
        cordoned: the machines that a fault has made unfit.
        down: the placers that a fault has ended and will start again.
        restarts: how often each placer ended by itself and was started again.
    """

    api: ApiServer
    nats: EmbeddedServer
    valkey: EmbeddedServer
    placers: tuple[Placer, ...]
    monitors: Monitors
    witness: Witness
    pods: Watching
    leases: Leases
    journal: Journal
    missing: set[str] = field(default_factory=set)
    cordoned: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    restarts: Counter[str] = field(default_factory=Counter)

    @property
    def plane(self) -> ControlPlane:
        """The API server and its etcd."""
        return self.api.plane

    async def ask(
        self, method: str, path: str, body: object = None, *, tenant: bool = False
    ) -> Answer | None:
        """Send a request past the proxies. Returns None without an answer. A tenant's writes bear its name."""
        user = TENANT_USER if tenant else "admin"
        if tenant and method == "PATCH":
            path += f"?fieldManager={TENANT}"
        try:
            return await self.api.call(method, path, body, user=user)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
            return None

    async def insist(self, method: str, path: str, body: object = None) -> Answer:
        """Like `ask`, until it is done or was done before.

        Shortly after its start the API server may refuse what it allows: it has not read rights and policies yet.
        """

        async def look() -> Answer | None:
            answer = await self.ask(method, path, body)
            done = answer is not None and (answer.status < 400 or answer.status in (404, 409))
            return answer if done else None

        answer = await until(look, timeout_s=180)
        assert answer is not None
        return answer


async def create_machine(world: World, machine: Machine) -> None:
    """Create a machine's Node object as a healthy kubelet would; an existing one is made healthy."""
    path = f"/api/v1/nodes/{machine.name}"
    labels = {"kubernetes.io/hostname": machine.name, **machine.labels}
    await world.insist("POST", "/api/v1/nodes", {"metadata": {"name": machine.name, "labels": labels}})
    healthy = {"metadata": {"labels": labels}, "spec": {"taints": None, "unschedulable": None}}
    await world.insist("PATCH", path, healthy)
    resources = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    resources |= {name: str(amount) for name, amount in machine.advertised.items()}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready_condition(ready=True)]}
    await world.insist("PATCH", f"{path}/status", {"status": status})


@contextlib.asynccontextmanager
async def world(
    directory: Path, journal: Journal, *, seed: int, placers: int, settings: Mapping[str, str]
) -> AsyncIterator[World]:
    """Start everything, with all nodes reported and all placers ready.

    Args:
        directory: for all files; created if absent.
        journal: takes what is seen.
        seed: the seed of the randomness beside the plan's.
        placers: how many placers run at the same time.
        settings: further settings of the placers, in lower case and without prefix.
    """
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(directory / "cluster"))
        trusted = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
        api = ApiServer(plane, await stack.enter_async_context(_session(plane.url, trusted)))
        nats = await stack.enter_async_context(nats_server(directory / "nats"))
        valkey = await stack.enter_async_context(valkey_server(directory / "valkey"))
        witness, leases = Witness(CARDS, journal), Leases()
        pods = Watching(api, "/api/v1/pods", witness)

        async def placer(number: int) -> Placer:
            chance = random.Random(f"{seed}/{number}")
            way = await stack.enter_async_context(proxy(plane.url, trusted, chance))
            own = directory / f"placer-{number}"
            return await asyncio.to_thread(_placer, number, own, plane, way, nats, valkey, settings)

        made = [await placer(number) for number in range(placers)]
        monitors = Monitors(witness.sums, random.Random(f"{seed}/monitors"))
        here = World(api, nats, valkey, tuple(made), monitors, witness, pods, leases, journal)
        await _create_objects(here)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(pods.run(), name="watch of pods")
            following = group.create_task(Watching(api, LEASES, leases).run(), name="watch of leases")
            talking = group.create_task(monitors.run(nats.url), name="monitors")
            try:
                await pods.listed.wait()
                for one in made:
                    await one.server.start()
                    stack.push_async_callback(end, one)
                for one in made:
                    await until(partial(one.fetch, "/readyz"))
                restarting = group.create_task(_restart_ended(here), name="restart of placers")
                yield here
                restarting.cancel()
            finally:
                watching.cancel()
                following.cancel()
                talking.cancel()


async def _restart_ended(world: World) -> None:
    """Restart placers that ended by themselves, as a kubelet would: a placer that lost its Lease must end."""
    while True:
        for placer in world.placers:
            if not placer.server.is_running and placer.name not in world.down:
                world.journal.note("placer ended by itself", placer=placer.name)
                world.restarts[placer.name] += 1
                await placer.server.start()
        await asyncio.sleep(0.5)  # the pause of a kubelet before a restart, in short


async def end(placer: Placer) -> bool:
    """End a placer by SIGTERM; False if it had to be killed after `TERM_S`."""
    server = placer.server
    if not server.is_running:
        return True
    os.kill(server.pid, signal.SIGCONT)
    os.kill(server.pid, signal.SIGTERM)

    async def ended() -> bool:
        return not server.is_running

    try:
        return await until(ended, timeout_s=TERM_S)
    except AssertionError:
        return False
    finally:
        await server.kill()


def _session(url: str, trusted: ssl.SSLContext) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=2)
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=trusted, limit=0), timeout=timeout)


def _placer(
    number: int,
    directory: Path,
    plane: ControlPlane,
    way: Proxy,
    nats: EmbeddedServer,
    valkey: EmbeddedServer,
    settings: Mapping[str, str],
) -> Placer:
    directory.mkdir(parents=True, exist_ok=True)
    kubeconfig, port = directory / "kubeconfig", free_port()
    kubeconfig.write_text(json.dumps(_kubeconfig(way.url, plane.tokens[PLACER_USER])))
    environment = {
        "NATS_URL": nats.url,
        "REDIS_URL": valkey.url.replace("valkey://", "redis://"),
        "INSTANCE": f"placer-{number}",
        "KUBECONFIG": str(kubeconfig),
        "UNHELD_PODS": "place",
        "HTTP_PORT": str(port),
        **{name.upper(): value for name, value in settings.items()},
    }
    kind = ServerKind(
        name=f"placer-{number}",
        scheme="http",
        ready="",  # A placer that starts while a server is away gets ready later.
        program=lambda: Path(sys.executable),
        arguments=lambda *_: part_with("placer", "placer.kube.options.DRIFT_S=2.0"),
        environment={
            "PYTHONPATH": str(ROOT),
            **{f"PLIMSOLL_{key}": text for key, text in environment.items()},
        },
    )
    return Placer(f"placer-{number}", EmbeddedServer(kind, directory.absolute(), port), way)


def _kubeconfig(url: str, token: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chaos", "cluster": {"server": url}}],
        "users": [{"name": "placer", "user": {"token": token}}],
        "contexts": [{"name": "chaos", "context": {"cluster": "chaos", "user": "placer"}}],
        "current-context": "chaos",
    }


async def _create_objects(world: World) -> None:
    """Make namespace, rights, policy, priorities and nodes."""
    api = world.api
    await api.must("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    pods = [{"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding"], "verbs": ["*"]}]
    for user, rules in ((PLACER_USER, everything), (TENANT_USER, pods)):
        await api.must("POST", f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        binding = {"metadata": {"name": user}, "roleRef": role, "subjects": subjects}
        await api.must("POST", f"{RBAC}/clusterrolebindings", binding)
    for name, value in PRIORITIES.items():
        priority = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        await api.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    await free_lease(api)
    for machine in FLEET:
        await create_machine(world, machine)
    await _guard(api)


async def _guard(api: ApiServer) -> None:
    """Put the shipped policy in force: only the placer may write its answers."""
    text = await asyncio.to_thread(POLICY.read_text)
    await api.kubectl("apply", "--filename=-", stdin=text.replace(SHIPPED_WRITER, PLACER_USER))
    forged = {"metadata": {"name": "probe", "annotations": {"gpus.plimsoll.dev/main": "GPU-1"}}}
    probe = forged | {"spec": {"containers": [{"name": "main", "image": "none"}]}}

    async def in_force() -> bool:
        try:
            answer = await api.call("POST", f"{PODS}?dryRun=All", probe, user=TENANT_USER)
        except RefusedError:
            return False
        return answer.status == 403

    await until(in_force)
