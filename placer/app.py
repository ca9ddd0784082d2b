"""Wires the placer's parts and owns their lifecycles: when one part ends, all end.

HTTP is served from the first moment, so that people can read the state while NATS or Redis is still away. Pods are
placed once every node's last report was read.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nats.errors
import structlog
from nats.aio.client import Client

from placer.connection import connect
from placer.core.ledger import Ledger
from placer.core.policies import policy_named
from placer.decide import Decider
from placer.http import Api, open_socket, serving_port, serving_socket, state_of
from placer.intake import Intake, IntakeOptions
from placer.list_writer import ListWriter
from placer.local.frontend import LocalFrontEnd
from placer.local.node import load_nodes
from placer.local.runner import LocalSettings
from placer.metrics import Metrics
from placer.publisher import Publisher
from placer.reports import ReportView
from placer.rpc import RpcServer
from placer.scores import ScoreList
from placer.settings import Settings
from plimsoll.bus import Stream
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX

CLOSE_S: Final = 5.0
"""How long closing a connection may keep the placer from ending."""

PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""Variables that processes of local pods inherit. The others are the placer's own; its URLs may hold credentials."""

log = structlog.get_logger(__name__)


class _StopError(Exception):
    """Ends the task group in good order."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The placer's parts."""

    settings: Settings
    client: Client
    decider: Decider
    intake: Intake
    list_writer: ListWriter
    publisher: Publisher
    rpc: RpcServer
    local: LocalFrontEnd | None
    kube_synced: asyncio.Event | None


async def run(settings: Settings, environment: Mapping[str, str], stop: asyncio.Event) -> None:
    """Place pods until `stop` is set, and end the processes of local pods then.

    Args:
        settings: checked.
        environment: the placer's own variables: local pods inherit some, and one shows a cluster around it.
        stop: set by a signal.

    Raises:
        InputError: a setting cannot work; in an exception group where a task found that out.
    """
    decider = Decider(ReportView(), Ledger(), Metrics())
    decider.candidates.prepare(policy_named(settings.policy, PREFIX + "POLICY"))
    rooms_of = decider.candidates.rooms_of
    scores = ScoreList(settings.redis_url, formula=settings.formula, rooms_of=rooms_of)
    try:
        parts, api = await _assemble(settings, environment, decider, scores)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_until(stop), name="stop")
            tasks.create_task(_serve(parts, api), name="serve")
    except* _StopError:
        log.info("placer stopped")
    finally:
        await scores.close()


async def _assemble(
    settings: Settings, environment: Mapping[str, str], decider: Decider, scores: ScoreList
) -> tuple[_Parts, Api]:
    """Make every part. None is running or connected yet."""
    metrics, reports, ledger = decider.metrics, decider.reports, decider.ledger
    reports.on_report(ledger.observe)
    client = Client()
    jetstream = client.jetstream()
    stream = Stream(settings.stream_max_bytes, settings.stream_max_age_s)
    options = IntakeOptions(f"placer-{settings.instance}", settings.check_s, settings.forget_s, stream)
    kube_synced = asyncio.Event() if _schedules_kubernetes(settings, environment) else None
    intake = Intake(jetstream, reports, metrics, options)
    list_writer = ListWriter(scores, decider, settings.check_s, kube_synced)
    publisher = Publisher(jetstream, metrics, stream=stream)
    local = await _local(settings, environment, decider, publisher)
    rpc = RpcServer(client, front_ends=(local is not None) + (kube_synced is not None))
    if local is not None:
        rpc.add(local)
    api = Api(
        state=lambda: state_of(reports, ledger, settings.formula, local.pods.rows() if local else ()),
        is_ready=lambda: intake.ready.is_set() and (kube_synced is None or kube_synced.is_set()),
        registry=metrics.registry,
        local=local,
    )
    return _Parts(settings, client, decider, intake, list_writer, publisher, rpc, local, kube_synced), api


def _schedules_kubernetes(settings: Settings, environment: Mapping[str, str]) -> bool:
    if settings.kubernetes != "auto":
        return settings.kubernetes == "on"
    return bool(settings.kubeconfig) or "KUBERNETES_SERVICE_HOST" in environment


async def _local(
    settings: Settings, environment: Mapping[str, str], decider: Decider, publisher: Publisher
) -> LocalFrontEnd | None:
    if not settings.local_nodes:
        return None
    nodes = await asyncio.to_thread(load_nodes, Path(settings.local_nodes))
    processes = LocalSettings(
        hook_library=await asyncio.to_thread(Path(settings.hook_library).absolute),
        environment={name: environment[name] for name in PASSED_ON if name in environment},
        output=Path(settings.local_output) if settings.local_output else None,
    )
    if not await asyncio.to_thread(processes.hook_library.exists):
        remedy = "build it (`make native`), or name where it is"
        raise InputError(PREFIX + "HOOK_LIBRARY", settings.hook_library, "does not exist", remedy)
    return LocalFrontEnd(nodes, decider, processes, policy=settings.policy, publisher=publisher)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _StopError


async def _serve(parts: _Parts, api: Api) -> None:
    settings = parts.settings
    async with contextlib.AsyncExitStack() as stack:
        await _serve_http(settings, api, stack)
        stack.push_async_callback(_close, parts.client)
        await connect(parts.client, settings.nats_url, f"plimsoll-placer-{settings.instance}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(parts.intake.run(), name="intake")
            tasks.create_task(parts.publisher.run(), name="publisher")
            if parts.kube_synced is not None:
                tasks.create_task(_run_kube(parts, parts.kube_synced), name="kube front end")
            tasks.create_task(parts.rpc.run(), name="rpc")
            await parts.intake.ready.wait()
            tasks.create_task(parts.list_writer.run(), name="list writer")
            if parts.local is not None:
                tasks.create_task(parts.local.run(), name="local front end")
            log.info("placer ready", nodes=len(parts.decider.reports))


async def _serve_http(settings: Settings, api: Api, stack: contextlib.AsyncExitStack) -> None:
    if settings.http_port is not None:
        port = await stack.enter_async_context(serving_port(api, settings.http_address, settings.http_port))
        log.info("http ready", address=settings.http_address, port=port)
    if settings.control_socket:
        listener = await asyncio.to_thread(open_socket, Path(settings.control_socket))
        await stack.enter_async_context(serving_socket(api, listener))
        log.info("control socket ready", path=settings.control_socket)


async def _run_kube(parts: _Parts, synced: asyncio.Event) -> None:
    # The import of the Kubernetes client takes more than a second. Local use does without.
    from placer.kube.frontend import KubeFrontEnd, KubeOptions  # noqa: PLC0415
    from plimsoll.kube import client as kube_client  # noqa: PLC0415

    settings = parts.settings
    options = KubeOptions(policy_named(settings.policy, PREFIX + "POLICY"), settings.instance)
    kubeconfig = kube_client.kubeconfig_path(settings.kubeconfig or kube_client.IN_CLUSTER)
    async with kube_client.connect(kubeconfig) as transport:
        loaded = parts.intake.ready
        front_end = KubeFrontEnd(transport, parts.decider, parts.publisher, loaded, options, synced)
        parts.rpc.add(front_end)
        await front_end.run()


async def _close(client: Client) -> None:
    """Close a connection in whatever state; messages that were not acknowledged are delivered again."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
    except (nats.errors.Error, OSError, TimeoutError) as error:
        log.info("nats was not closed in good order", error=f"{type(error).__name__}: {error}")
