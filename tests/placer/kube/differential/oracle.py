"""kube-scheduler as an oracle: the nodes that its filters pass for a pod, without placing the pod.

A real kube-scheduler runs with an extender, which is this process. kube-scheduler sends the extender the nodes that
passed all of its filters. The extender notes them and passes none, so no pod is placed and no state changes. For a
pod without such a node the extender is not asked, and kube-scheduler says so in the pod's condition.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from plimsoll_cli.demo.servers import ServerKind, running
from tests.cluster import assets

SCHEDULER: Final = "default-scheduler"
QPS: Final = 5000
"""Requests a second that kube-scheduler may send: no throttling."""


@dataclass(slots=True)
class Oracle:
    """The answers of kube-scheduler.

    Attributes:
        passed: the nodes that the filters passed, by the pod's uid, as of its last attempt.
    """

    passed: dict[str, frozenset[str]] = field(default_factory=dict)

    async def filter(self, request: web.Request) -> web.Response:
        """Answer as an extender: note the nodes, pass none, and make no preemption worth trying."""
        asked = await request.json()
        names = asked["NodeNames"] or []
        self.passed[asked["Pod"]["metadata"]["uid"]] = frozenset(names)
        refused = dict.fromkeys(names, "the pod only asks")
        return web.json_response({"NodeNames": [], "FailedAndUnresolvableNodes": refused})


@asynccontextmanager
async def oracle(kubeconfig: Path, folder: Path) -> AsyncIterator[Oracle]:
    """Run kube-scheduler with the extender until the context ends.

    Args:
        kubeconfig: its access to the API server.
        folder: for its files.
    """
    asked = Oracle()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/filter", asked.filter)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with running(_kind(kubeconfig, folder, f"http://{host}:{port}"), folder / "kube-scheduler"):
            yield asked
    finally:
        await runner.cleanup()


def _kind(kubeconfig: Path, folder: Path, url: str) -> ServerKind:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": QPS},
        "leaderElection": {"leaderElect": False},
        "extenders": [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "nodeCacheCapable": True,  # names of nodes, not whole nodes
                "enableHTTPS": False,
                "httpTimeout": "30s",
            }
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kube-scheduler.json"
    path.write_text(json.dumps(config))

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--config={path}", "--secure-port=0")

    program = assets.binary("kube-scheduler")
    return ServerKind("kube-scheduler", "http", "Starting Kubernetes Scheduler", lambda: program, arguments)
