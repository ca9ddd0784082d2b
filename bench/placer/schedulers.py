"""The two schedulers as processes: stock kube-scheduler, and `python -m placer`.

Both are members of `system:masters` and may send 5000 requests a second (the placer has no such limit). Everything
else is default.
"""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.measures.process_cost import cpu_ns, resident_mib
from bench.placer.servers import Servers
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.native import ROOT
from plimsoll.part.settings import PREFIX
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, free_port, running
from tests.cluster import assets

QPS: Final = 5000

KUBE_SCHEDULER: Final = "kube_scheduler"
PLACER: Final = "placer"


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler of the benchmark.

    Attributes:
        name: its name in the figures.
        scheduler_name: the `schedulerName` of its pods.
    """

    name: str
    scheduler_name: str


SCHEDULERS: Final = (Scheduler(KUBE_SCHEDULER, "default-scheduler"), Scheduler(PLACER, SCHEDULER_NAME))


@dataclass(frozen=True, slots=True)
class SchedulerProcess:
    """A running scheduler."""

    server: EmbeddedServer

    def cpu_s(self) -> float:
        """The CPU time of the process until now, user and system, in seconds."""
        return cpu_ns(self.server.pid) / 1e9

    def rss_mib(self) -> float:
        """The resident memory of the process, in MiB."""
        return resident_mib(self.server.pid)


@asynccontextmanager
async def started(scheduler: Scheduler, servers: Servers, name: str) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler until the context ends. The context is entered as soon as the process logs that it starts.

    Args:
        scheduler: the scheduler.
        servers: the servers.
        name: the name of the round, for its folder.
    """
    folder = servers.directory / "sides" / f"{name}-{scheduler.name}"
    kind = placer_kind(servers) if scheduler.name == PLACER else kube_scheduler_kind(servers, folder)
    async with running(kind, folder) as server:
        yield SchedulerProcess(server)


def kube_scheduler_kind(servers: Servers, folder: Path) -> ServerKind:
    """Stock kube-scheduler with higher client limits and without a lease."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(servers.plane.kubeconfig()), "qps": QPS, "burst": QPS},
        "leaderElection": {"leaderElect": False},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config))

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--config={path}", "--secure-port=0")

    program = assets.binary("kube-scheduler")
    return ServerKind("kube-scheduler", "http", "Starting Kubernetes Scheduler", lambda: program, arguments)


def placer_kind(servers: Servers) -> ServerKind:
    """The placer with its default settings, for pods that no node starts."""
    settings = {
        "NATS_URL": servers.nats.url,
        "REDIS_URL": servers.redis_url,
        "KUBECONFIG": str(servers.plane.kubeconfig()),
        "HTTP_PORT": str(free_port()),
        "UNHELD_PODS": "place",
    }
    environment = {
        "PYTHONPATH": str(ROOT),
        **{PREFIX + name: value for name, value in settings.items()},
    }

    def arguments(_: int, __: Path) -> Sequence[str]:
        return ("-m", "placer")

    return ServerKind(
        "placer", "http", "http ready", lambda: Path(sys.executable), arguments, environment=environment
    )
