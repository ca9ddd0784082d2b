"""`plimsoll doctor --bundle`: one archive with what a bug report needs, and without secrets.

What always holds: each file passes `Secrets.removed`. A source that does not answer is named in `missing.txt`, and
the others are there all the same. The bundle has the names, demands and events of workloads, but no logs or manifests
of theirs.
"""

import asyncio
import importlib.metadata
import io
import os
import platform
import tarfile
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from plimsoll.broker.client import BrokerClient
from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.kube.client import KubeClient
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll_cli.asking import asking
from plimsoll_cli.cluster import NAME, client_of, kubeconfig_of
from plimsoll_cli.doctor.examine import Group, Places
from plimsoll_cli.doctor.report import shown
from plimsoll_cli.doctor.secrets import REMOVED, Secrets
from plimsoll_cli.events import EventFilter, events

SOURCE_S: Final = 30.0
EVENTS_KEPT: Final = 2000
LOG_LINES: Final = 2000
WIDTH: Final = 100
ENVIRONMENT: Final = "PLIMSOLL_"

Files = AsyncGenerator[tuple[str, str]]


async def write_bundle(path: Path, places: Places, groups: Sequence[Group]) -> str:
    """Write the archive. Returns a line for people.

    Args:
        path: the `.tar.gz`; must not exist, and only its owner may read it.
        places: where the parts are.
        groups: the findings.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    urls = (places.nats_url, places.redis_url, places.placer)
    secrets = await asyncio.to_thread(
        Secrets.of, [url for url in urls if isinstance(url, str)], places.access, os.environ
    )
    files, missing = _findings(groups), []
    gathered = await asyncio.gather(*(_gathered(name, source(places)) for name, source in SOURCES.items()))
    for found, problem in gathered:
        files |= found
        missing += [problem] if problem else []
    files["missing.txt"] = "".join(line + "\n" for line in missing)
    cleaned = {name: secrets.removed(text) for name, text in files.items()}
    await asyncio.to_thread(_pack, path, cleaned)
    look = "secrets are removed as far as their form shows them; look through it before you send it"
    return f"{path}: {len(cleaned)} files; {look}"


def _findings(groups: Sequence[Group]) -> dict[str, str]:
    return {
        "findings.json": msgspec.json.encode(groups).decode(),
        "findings.txt": "".join(line.plain + "\n" for line in shown(groups, WIDTH)),
    }


async def _gathered(name: str, source: Files) -> tuple[dict[str, str], str]:
    """The files of a source, and why the rest of them is missing."""
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(SOURCE_S), aclosing(source) as files:
            async for file, text in files:
                found[file] = text  # noqa: PERF403 - those before an error are kept
    except TimeoutError:
        return found, f"{name}: took longer than {SOURCE_S:.0f} s"
    except (PlimsollError, OSError) as error:
        return found, f"{name}: {error}"
    return found, ""


async def _machine(places: Places) -> Files:
    """Versions, and the settings in the environment."""
    packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    uname = platform.uname()
    yield (
        "machine.yaml",
        yaml.safe_dump(
            {
                "python": platform.python_version(),
                "system": f"{uname.system} {uname.release} {uname.machine}",
                "c-library": " ".join(platform.libc_ver()),
                "library": str(places.machine.library),
                "broker-root": str(places.machine.broker_root),
                "environment": {
                    name: os.environ[name] for name in sorted(os.environ) if name.startswith(ENVIRONMENT)
                },
                "packages": packages,
            },
            sort_keys=False,
        ),
    )


async def _broker(places: Places) -> Files:
    """The containers of this machine's broker."""
    root = places.machine.broker_root
    if await asyncio.to_thread((root / CONTROL_NAME).exists):
        async with BrokerClient(root, timeout_s=SOURCE_S) as broker:
            yield "broker.json", msgspec.json.encode(await broker.describe()).decode()


async def _bus(places: Places) -> Files:
    """The newest events of the stream."""
    if not places.nats_url:
        return
    kept: deque[bytes] = deque(maxlen=EVENTS_KEPT)
    async with aclosing(events(places.nats_url, EventFilter(), places.access, follow=False)) as messages:
        async for message in messages:
            kept.append(message)
    yield "events.jsonl", "".join(one.decode(errors="replace") + "\n" for one in kept)


async def _placer(places: Places) -> Files:
    """The placer's view, its metrics, and what it lacks."""
    if not places.placer:
        return
    async with asking(places.placer, notes=False) as placer:
        yield "placer/missing.txt", "".join(line + "\n" for line in await placer.missing())
        yield "placer/state.json", msgspec.json.encode(await placer.state()).decode()
        yield "placer/metrics.txt", await placer.metrics()


async def _cluster(places: Places) -> Files:
    """The release's own objects, the log of its pods, and the nodes."""
    if not NAME.fullmatch(places.namespace):
        return
    try:
        await asyncio.to_thread(kubeconfig_of, places.cluster)
    except InputError as error:
        if error.value is None and not places.cluster.context:
            return  # no cluster was named
        raise
    async with client_of(places.cluster) as client:
        for name, path in OBJECTS.items():
            listed = msgspec.json.decode(await client.get(path.format(namespace=places.namespace)))
            yield (
                f"cluster/{name}.yaml",
                yaml.safe_dump(without_secrets(listed.get("items", [])), sort_keys=False),
            )
            if name == "pods":
                for pod in listed.get("items", []):
                    async for file in _logs(client, pod["metadata"]["namespace"], pod["metadata"]["name"]):
                        yield file


async def _logs(client: KubeClient, namespace: str, pod: str) -> Files:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    try:
        log = await client.get(path, (("tailLines", str(LOG_LINES)),))
    except PlimsollError as error:
        yield f"cluster/logs/{pod}.missing.txt", f"{error}\n"
    else:
        yield f"cluster/logs/{pod}.txt", log.decode(errors="replace")


OBJECTS: Final = {
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "deployments": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "daemonsets": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "events": "/api/v1/namespaces/{namespace}/events",
    "nodes": "/api/v1/nodes",
}
SOURCES: Final[dict[str, Callable[[Places], Files]]] = {
    "machine": _machine,
    "broker": _broker,
    "bus": _bus,
    "placer": _placer,
    "cluster": _cluster,
}

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """An object of Kubernetes without the values of variables, and without copies of itself in annotations."""
    if isinstance(value, list):
        return [without_secrets(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: one for name, one in value.items() if name not in {_LAST_APPLIED, "managedFields"}}
    if isinstance(kept.get("env"), list):
        kept["env"] = [
            {**one, "value": REMOVED} if isinstance(one, dict) and "value" in one else one
            for one in kept["env"]
        ]
    return {name: without_secrets(one) for name, one in kept.items()}


def _pack(path: Path, files: dict[str, str]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        remedy = "name a file that does not exist, in a folder of yours"
        raise InputError("--bundle", str(path), f"cannot be written ({error.strerror})", remedy) from error
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in files.items():
                body = text.encode(errors="replace")
                info = tarfile.TarInfo(f"plimsoll-bundle/{name}")
                info.size, info.mtime, info.mode = len(body), int(time.time()), 0o600
                archive.addfile(info, io.BytesIO(body))
    except OSError as error:
        path.unlink(missing_ok=True)
        remedy = "give it a place that has room"
        raise InputError("--bundle", str(path), f"cannot be written ({error.strerror})", remedy) from error
