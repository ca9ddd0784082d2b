"""`python -m bench.webhook [--quick]`: the webhook's answers at 200 reviews a second over TLS.

The webhook runs as its own process, with a certificate of its own in a real API server. Reviews of realistic pods
go to it at a fixed rate, whether or not earlier ones were answered, over connections that are kept, as API servers
do. A time counts from the moment at which its review was due, so a stop of the webhook costs every review that it
delays. Reviews that need no change, refusals, and pods in another scheduler's way are among them. Every answer is
checked.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import ssl
import statistics
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench.measures.percentile import percentile
from bench.measures.process_cost import CpuMeter, resident_mib
from bench.placer.ground import session
from placer.webhook.settings import PREFIX
from tests.cluster import assets
from tests.cluster.build import ensure
from tests.servers.control_plane import ControlPlane, control_plane

Json = dict[str, Any]

RATE_PER_S: Final = 200
CONNECTIONS: Final = 16
"""An API server opens a connection for each review that none is free for, and keeps a hundred."""
SEED: Final = 7
WARM_UP: Final = 200
"""Reviews before the first round: connections are opened, and code is loaded."""
PATIENCE_S: Final = 60.0
SECRET: Final = "/api/v1/namespaces/default/secrets/plimsoll-webhook-certificates"  # noqa: S105 - a path


@dataclass(frozen=True, slots=True)
class Case:
    """A review and the form of its answer.

    Attributes:
        body: the review in JSON.
        outcome: `patched`, `unchanged` or `refused`.
    """

    body: bytes
    outcome: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """The running process."""

    pid: int
    port: int
    authority: str


def pod(kind: str, at: int) -> Json:
    """A pod as a controller makes it: two containers, an init container, volumes, probes and 40 variables.

    Args:
        kind: `gpu`, `plain`, `bad`, or `hami`.
        at: makes names differ.
    """
    env: list[Json] = [
        {"name": f"SETTING_{index}", "value": f"value of setting {index}"} for index in range(40)
    ]
    mounts = [{"name": f"volume-{index}", "mountPath": f"/mnt/{index}"} for index in range(4)]
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "timeoutSeconds": 1,
    }
    limits: Json = {
        "gpu": {"plimsoll.dev/gpu-memory": "8Gi", "plimsoll.dev/gpu-share": "30"},
        "plain": {},
        "bad": {"plimsoll.dev/gpu-memory": "3", "plimsoll.dev/gpu": "2"},
        "hami": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30"},
    }[kind]
    main = {
        "name": "main",
        "image": "registry.example.com/team/serve:1.2.3",
        "args": ["--model", "large", "--port", "8080"],
        "env": env,
        "resources": {
            "limits": {"cpu": "4", "memory": "16Gi", **limits},
            "requests": {"cpu": "2", "memory": "16Gi", **limits},
        },
        "volumeMounts": mounts,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    side = {
        "name": "proxy",
        "image": "registry.example.com/mesh/proxy:9",
        "env": env[:10],
        "volumeMounts": mounts[:1],
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"serve-{at}",
        "uid": f"{at:032x}",
        "controller": True,
    }
    fields: Json = {f"f:field-{index}": {".": {}, "f:name": {}, "f:value": {}} for index in range(60)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"serve-{at}-",
            "namespace": "team-a",
            "labels": {"app": "serve", "pod-template-hash": f"{at:x}"},
            "annotations": {"prometheus.io/scrape": "true", "example.com/checksum": "0" * 64},
            "ownerReferences": [owner],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields}
            ],
        },
        "spec": {
            "schedulerName": "default-scheduler" if kind == "hami" else "plimsoll",
            "containers": [main, side],
            "initContainers": [{**side, "name": "init"}],
            "volumes": [
                {"name": f"volume-{index}", "configMap": {"name": f"c{index}"}} for index in range(4)
            ],
            "serviceAccountName": "serve",
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def review(given: Json, at: int) -> bytes:
    """The review of a new pod, as the API server sends it."""
    user = "system:serviceaccount:kube-system:replicaset-controller"
    request = {
        "uid": f"{at:08x}-0000-4000-8000-000000000000",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["system:serviceaccounts", "system:authenticated"]},
        "object": given,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    )


def cases() -> list[Case]:
    """A hundred reviews: 60 of pods with GPUs, 20 without, 10 in HAMi's way, and 10 that are refused."""
    kinds = ["gpu"] * 60 + ["plain"] * 20 + ["hami"] * 10 + ["bad"] * 10
    random.Random(SEED).shuffle(kinds)
    return [
        Case(review(pod(kind, at), at), "refused" if kind == "bad" else "patched")
        for at, kind in enumerate(kinds)
    ]


def check(case: Case, answer: bytes) -> None:
    """Fail on an answer that is not the expected one."""
    response = json.loads(answer)["response"]
    found = "refused" if not response["allowed"] else "patched" if "patch" in response else "unchanged"
    assert found == case.outcome, response


async def measure(
    http: aiohttp.ClientSession, url: str, given: Sequence[Case], seconds: float
) -> list[float]:
    """Send reviews at the rate; returns each one's time from its due moment to its whole answer, in ms."""
    loop, took_ms = asyncio.get_running_loop(), []
    answers: list[tuple[Case, bytes]] = []

    async def one(case: Case, due_s: float) -> None:
        async with http.post(url, data=case.body, headers={"Content-Type": "application/json"}) as answer:
            body = await answer.read()
            assert answer.status == 200, body
        took_ms.append((loop.time() - due_s) * 1000)
        answers.append((case, body))

    began_s = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for at in range(int(RATE_PER_S * seconds)):
            due_s = began_s + at / RATE_PER_S
            await asyncio.sleep(due_s - loop.time())  # the rate of reviews is the experiment
            tasks.create_task(one(given[at % len(given)], due_s))
    for case, body in answers:
        check(case, body)
    return took_ms


@asynccontextmanager
async def webhook(plane: ControlPlane, api: aiohttp.ClientSession, **further: str) -> AsyncIterator[Webhook]:
    """Run the webhook as a process until the context ends, with `further` settings in lower case."""
    settings = {
        "KUBECONFIG": str(plane.kubeconfig()),
        "NAMESPACE": "default",
        "NAMES": "127.0.0.1",
        "PORT": "0",
        "HAMI": "true",
        **{name.upper(): value for name, value in further.items()},
    }
    environment = {"PATH": os.environ["PATH"], **{PREFIX + name: value for name, value in settings.items()}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "placer.webhook", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (logged := json.loads(await process.stderr.readline()))["event"] != "webhook ready":
                pass
        async with api.get(SECRET) as answer:
            [kept] = json.loads(b64decode((await answer.json())["data"]["generations.json"]))
        yield Webhook(process.pid, logged["port"], kept["authority"])
    finally:
        process.terminate()
        await process.communicate()


async def run(rounds: int, seconds: float) -> Json:
    """All rounds; returns the figures."""
    given = cases()
    with tempfile.TemporaryDirectory(prefix="plimsoll-webhook-") as folder:
        async with (
            control_plane(Path(folder)) as plane,
            session(plane) as api,
            webhook(plane, api) as process,
        ):
            context = ssl.create_default_context(cadata=process.authority)
            connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
            async with aiohttp.ClientSession(connector=connector) as http:
                url = f"https://127.0.0.1:{process.port}/review"
                await measure(http, url, given, WARM_UP / RATE_PER_S)
                took_ms: list[float] = []
                used_s = 0.0
                for at in range(rounds):
                    gc.collect()
                    gc.freeze()  # else this program's own collections would count
                    cpu_meter = CpuMeter(process.pid)
                    now_ms = await measure(http, url, given, seconds)
                    used_s += cpu_meter.cpu_s()
                    took_ms += now_ms
                    line = f"p50 {statistics.median(now_ms):.2f} ms, p99 {percentile(now_ms, 99):.2f} ms"
                    print(
                        f"round {at + 1}: {len(now_ms)} reviews, {line}, most {max(now_ms):.2f} ms",
                        file=sys.stderr,
                    )
            return {
                "p50_ms": round(statistics.median(took_ms), 2),
                "p99_ms": round(percentile(took_ms, 99), 2),
                "max_ms": round(max(took_ms), 2),
                "reviews": len(took_ms),
                "rate_per_s": RATE_PER_S,
                "review_bytes": round(statistics.mean(len(case.body) for case in given)),
                "cpu_ms_per_review": round(used_s * 1000 / len(took_ms), 3),
                "resident_mib": round(resident_mib(process.pid), 1),
                "load": round(os.getloadavg()[0], 2),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }


def main() -> int:
    """Measure, print progress to standard error, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.webhook", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 5 s in place of three of 30 s")
    quick = parser.parse_args().quick
    ensure(assets.NEEDED)
    print(json.dumps(asyncio.run(run(1, 5.0) if quick else run(3, 30.0))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
