"""Wires the placer's parts and owns their lifecycles: when one part ends, all end.

HTTP is served from the first moment, so that people can read the state while NATS or Redis is still away. Pods are
placed once every node's last report was read. Where a cluster has several placers, only the holder of the Lease
places pods. The others keep their view up to date, and write and answer nothing.
"""

import asyncio
import contextlib
import gc
import secrets
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import structlog
from nats.aio.client import Client

from placer.api.access import Access, TokenFile
from placer.api.http import Api, open_socket, serving_port, serving_socket
from placer.api.node_rows import NodeRows
from placer.api.rpc import RpcServer
from placer.api.sources import explainers, pod_sources, previewing
from placer.api.state import StateReader
from placer.core.ledger import Ledger
from placer.core.policies import load_policies, policy_named
from placer.decide import Decider
from placer.intake.intake import Intake, IntakeOptions
from placer.intake.limit_news import LimitView
from placer.intake.reports import ReportView
from placer.intake.violation_events import read_violations
from placer.learning import Learning
from placer.live.news import NewsRoom
from placer.live.wiring import live_page
from placer.local.explain import LocalExplainer
from placer.local.frontend import LocalFrontEnd
from placer.local.live import LocalPods
from placer.local.node import load_nodes
from placer.local.runner import LocalSettings
from placer.metrics import Metrics, Promises, UnhealthyGpus
from placer.publisher import Publisher
from placer.readiness import KubePart, lacking
from placer.settings import Settings
from placer.stores.learned import LearnedStore
from placer.stores.list_writer import ListWriter
from placer.stores.scores import ScoreList
from plimsoll.bus.client import BusClient
from plimsoll.bus.connection import connect
from plimsoll.bus.stream import Stream
from plimsoll.events import Report
from plimsoll.kube.kubeconfig import IN_CLUSTER, own_namespace
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll.native.preload import preloadable
from plimsoll.part.ending import heed_cancellation, noticed, tasks_until
from plimsoll.part.errors import CannotGoOnError, InputError
from plimsoll.part.settings import PREFIX

if TYPE_CHECKING:
    from placer.kube.frontend import KubeFrontEnd

CLOSE_S: Final = 5.0
"""How long closing a connection may keep the placer from ending."""


COLLECT_AFTER: Final = (50_000, 20, 20)
"""The thresholds of Python's garbage collector. With its own, (700, 10, 10), it walks the objects of a whole cluster
several times a second while pods are placed, and each time stops the event loop for some 50 ms at 1000 nodes."""

PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""Variables that processes of local pods inherit. The others are the placer's own; its URLs may hold credentials."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The placer's parts."""

    settings: Settings
    client: Client
    decider: Decider
    intake: Intake
    list_writer: ListWriter
    learning: Learning
    publisher: Publisher
    rpc: RpcServer
    limits: LimitView
    news: NewsRoom
    local: LocalFrontEnd | None
    cluster: KubePart | None


async def run(settings: Settings, environment: Mapping[str, str], stop: asyncio.Event) -> None:
    """Place pods until `stop` is set, and end the processes of local pods then.

    Args:
        settings: checked.
        environment: the placer's own variables: local pods inherit some, and one shows a cluster around it.
        stop: set by a signal.

    Raises:
        InputError: a setting cannot work; in an exception group where a task found that out.
    """
    gc.set_threshold(*COLLECT_AFTER)
    await asyncio.to_thread(load_policies)
    decider = Decider(ReportView(), Ledger(), Metrics())
    decider.candidates.prepare(policy_named(settings.policy, PREFIX + "POLICY"))
    rooms_of = decider.candidates.rooms_of
    scores = ScoreList(settings.redis_url, formula=settings.formula, rooms_of=rooms_of)
    store = LearnedStore(settings.redis_url)
    try:
        parts, api = await _assemble(settings, environment, decider, scores, store)
        async with tasks_until(stop) as tasks:
            tasks.create_task(_serve(parts, api), name="serve")
            await stop.wait()
            if parts.cluster is not None:
                await parts.cluster.finish()
        log.info("placer stopped")
    finally:
        await scores.close()
        await store.close()


async def _assemble(
    settings: Settings,
    environment: Mapping[str, str],
    decider: Decider,
    scores: ScoreList,
    store: LearnedStore,
) -> tuple[_Parts, Api]:
    """Make every part. None is running or connected yet."""
    metrics, reports, ledger = decider.metrics, decider.reports, decider.ledger
    metrics.registry.register(Promises(ledger))
    metrics.registry.register(UnhealthyGpus(reports.states))
    client = BusClient()
    jetstream = client.jetstream()
    stream = Stream(settings.stream_max_bytes, settings.stream_max_age_s, settings.stream_replicas)
    cluster = KubePart(metrics) if _schedules_kubernetes(settings, environment) else None
    _check_has_nodes(settings, cluster)
    options = IntakeOptions(f"placer-{settings.instance}", settings.check_s, settings.forget_s, stream)
    intake = Intake(client, reports, metrics, options)
    learning = Learning(store, decider.learned, decider.wall_s, cluster.leads if cluster else None)
    list_writer = ListWriter(scores, decider, settings.check_s, cluster.leads if cluster else None)
    metrics.nats_up.set_function(lambda: client.is_connected)
    metrics.redis_up.set_function(lambda: not list_writer.is_away)
    publisher = Publisher(
        jetstream,
        metrics,
        stream=stream,
        on_event=lambda *one: page.news.note_own(*one),  # noqa: PLW0108 - the page is made later
    )
    local = await _local(settings, environment, decider, publisher)
    rpc = RpcServer(client, front_ends=(local is not None) + (cluster is not None))
    if local is not None:
        rpc.add(local)
    rows = NodeRows(decider, settings.formula)
    limits = LimitView(client)
    explainer = LocalExplainer(local, decider, limits.of) if local is not None else None
    local_pods = LocalPods(local) if local is not None else None

    def missing() -> list[str]:
        return lacking(client, intake, cluster)

    page = await live_page(
        client,
        decider,
        sources=lambda: pod_sources(local_pods, cluster),
        missing=missing,
        leads=lambda: cluster is None or cluster.leads.is_set(),
    )

    def on_event(report: Report) -> None:
        decider.learn_event(report)
        page.news.note_report(report)

    intake.on_event = on_event
    api = Api(
        rows=rows,
        state=StateReader(rows, ledger, lambda: local.pods.rows() if local else ()),
        explainers=lambda: explainers(explainer, cluster),
        missing=missing,
        registry=metrics.registry,
        local=local,
        page=page,
        previewing=lambda: previewing(cluster),
    )
    parts = _Parts(
        settings,
        client,
        decider,
        intake,
        list_writer,
        learning,
        publisher,
        rpc,
        limits,
        page.news,
        local,
        cluster,
    )
    return parts, api


def _check_has_nodes(settings: Settings, cluster: KubePart | None) -> None:
    """Refuse a placer that could place nothing: it has neither a cluster nor local nodes."""
    if cluster is None and not settings.local_nodes:
        remedy = (
            f"run it in a pod with a service account, set {PREFIX}KUBECONFIG, or give {PREFIX}LOCAL_NODES for nodes "
            "without Kubernetes"
        )
        raise InputError(
            PREFIX + "KUBERNETES", settings.kubernetes, "leaves no nodes to place pods on", remedy
        )


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
    passed_on = {name: environment[name] for name in PASSED_ON if name in environment}
    processes = LocalSettings(
        hook_library=await preloadable(PREFIX + "HOOK_LIBRARY", Path(settings.hook_library), passed_on),
        environment=passed_on,
        output=Path(settings.local_output) if settings.local_output else None,
    )
    return LocalFrontEnd(nodes, decider, processes, policy=settings.policy, publisher=publisher)


async def _serve(parts: _Parts, api: Api) -> None:
    settings = parts.settings
    options = await asyncio.to_thread(settings.nats_access.options)
    async with contextlib.AsyncExitStack() as stack:
        await _serve_http(settings, api, stack)
        stack.push_async_callback(_close, parts.client)
        name = f"plimsoll-placer-{settings.instance}"
        # The live page learns of this placer's own events directly, so the server need not send them back.
        await connect(parts.client, settings.nats_url, name, {**options, "no_echo": True})
        heed_cancellation()
        async with asyncio.TaskGroup() as tasks:
            _start(tasks, "intake", parts.intake.run())
            _start(tasks, "publisher", parts.publisher.run())
            if parts.cluster is not None:
                _start(tasks, "kube front end", _run_kube(parts, parts.cluster))
            _start(tasks, "rpc", _answer(parts))
            _start(tasks, "limit events", parts.limits.run())
            _start(tasks, "news", parts.news.run())
            await parts.intake.ready.wait()
            _start(tasks, "list writer", parts.list_writer.run())
            _start(tasks, "learning", parts.learning.run())
            if parts.local is not None:
                await parts.learning.restore()
                heed_cancellation()
                _start(tasks, "local front end", parts.local.run())
            log.info("placer ready", nodes=len(parts.decider.reports))


def _start(tasks: asyncio.TaskGroup, name: str, work: Coroutine[Any, Any, None]) -> None:
    tasks.create_task(_endless(name, work), name=name)


async def _endless(name: str, work: Coroutine[Any, Any, None]) -> None:
    await noticed(name, lambda: work)
    raise CannotGoOnError(f"the {name} ended by itself")


async def _answer(parts: _Parts) -> None:
    """Answer requests. Each reaches every placer, so only the one that leads listens."""
    if parts.cluster is not None:
        await parts.cluster.leads.wait()
    await parts.rpc.run()


async def _serve_http(settings: Settings, api: Api, stack: contextlib.AsyncExitStack) -> None:
    if settings.http_port is not None:
        access = await _access(settings, stack)
        serving_there = serving_port(api, settings.http_address, settings.http_port, access)
        port = await stack.enter_async_context(serving_there)
        log.info("http ready", address=settings.http_address, port=port)
    if settings.control_socket:
        listener = await asyncio.to_thread(open_socket, Path(settings.control_socket))
        await stack.enter_async_context(serving_socket(api, listener))
        log.info("control socket ready", path=settings.control_socket)


async def _access(settings: Settings, stack: contextlib.AsyncExitStack) -> Access | None:
    if settings.http_auth == "token":
        return TokenFile(Path(settings.http_token_file))
    if settings.http_auth == "none":
        return None
    from placer.kube.reviews import Reviews  # noqa: PLC0415 - as in `_run_kube`
    from plimsoll.kube.client import connect  # noqa: PLC0415
    from plimsoll.kube.configuration import kubeconfig_path  # noqa: PLC0415

    # Connections of its own: readers must not delay the lease.
    kubeconfig = kubeconfig_path(settings.kubeconfig or IN_CLUSTER)
    transport = await stack.enter_async_context(connect(kubeconfig))
    return Reviews(transport, time.monotonic)


async def _run_kube(parts: _Parts, cluster: KubePart) -> None:
    # The import of the Kubernetes client takes more than a second. Local use does without.
    from placer.kube.evictions import EvictionRules, OnViolation  # noqa: PLC0415
    from placer.kube.extender.serving import serve_extender  # noqa: PLC0415
    from placer.kube.frontend import KubeFrontEnd  # noqa: PLC0415
    from placer.kube.options import KubeOptions  # noqa: PLC0415
    from placer.kube.relocation.rules import Mode, RelocationRules  # noqa: PLC0415
    from placer.kube.resize.tickets import NotByBus, StreamConfirmations  # noqa: PLC0415
    from placer.stores.rooms import room_store  # noqa: PLC0415
    from plimsoll.kube.client import connect  # noqa: PLC0415
    from plimsoll.kube.configuration import kubeconfig_path  # noqa: PLC0415

    settings, metrics = parts.settings, cluster.metrics
    policy = policy_named(settings.policy, PREFIX + "POLICY")
    options = KubeOptions(
        policy,
        settings.instance,
        drift_s=settings.drift_s,
        pool_namespace=settings.pool_namespace,
        evictions=EvictionRules(OnViolation(settings.on_violation), settings.violation_grace_s),
        opt_out_label=settings.opt_out_label,
        relocation=RelocationRules(
            Mode(settings.relocation),
            settings.relocation_after_s,
            settings.relocation_keep_s,
            settings.relocation_rest_s,
            settings.relocation_per_hour,
            settings.relocation_spare_gpus,
        ),
    )
    kubeconfig = kubeconfig_path(settings.kubeconfig or IN_CLUSTER)
    namespace = settings.lease_namespace or await asyncio.to_thread(own_namespace)
    async with connect(kubeconfig) as transport, room_store(settings.redis_url) as rooms:
        lease = Lease(
            transport,
            namespace,
            settings.lease_name,
            f"{settings.instance}-{secrets.token_hex(8)}",
            LeaseTiming(settings.lease_s),
            on_failure=metrics.lease_failures.inc,
        )
        loaded = parts.intake.ready
        front_end = KubeFrontEnd(
            transport,
            parts.decider,
            parts.publisher,
            loaded,
            options,
            lease=lease,
            leads=cluster.leads,
            room_memory=rooms,
        )
        front_end.explainer.news_of = parts.limits.of
        front_end.recall = parts.learning.restore
        cluster.lease, cluster.front_end = lease, front_end
        metrics.leader.set_function(lease.is_held)
        metrics.lease_transitions.set_function(lambda: lease.transitions)
        front_end.tickets.confirmations = StreamConfirmations(parts.client.jetstream())
        parts.rpc.add(NotByBus())
        try:
            async with asyncio.TaskGroup() as tasks:
                _start(tasks, "lease", _run_for_lead(lease, front_end, loaded))
                _start(tasks, "scheduler", front_end.run())
                read = read_violations(parts.client, front_end.evictions.suspect, front_end.leads)
                _start(tasks, "violations", read)
                if settings.extender_port is not None:
                    _start(tasks, "extender", serve_extender(settings, settings.extender_port, front_end))
        finally:
            # No write of this placer is under way any more.
            await lease.release()


async def _run_for_lead(lease: Lease, front_end: "KubeFrontEnd", loaded: asyncio.Event) -> None:
    """Take part in the election once all that decisions read was read: a placer that cannot decide must not lead."""
    await front_end.synced.wait()
    await loaded.wait()
    await lease.run()


async def _close(client: Client) -> None:
    """Close a connection in whatever state; messages that were not acknowledged are delivered again."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
    except (nats.errors.Error, OSError, TimeoutError) as error:
        log.info("nats was not closed in good order", error=f"{type(error).__name__}: {error}")
