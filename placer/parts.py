"""The placer's parts, made from its settings. None of them is connected or runs yet."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nats.aio.client import Client

from placer.api.http import Api
from placer.api.node_rows import NodeRows
from placer.api.sources import explainers, pod_sources, previews
from placer.api.state import StateReader
from placer.cluster_link import ClusterLink
from placer.core.schedulability import ABSENT
from placer.decide import Decider
from placer.intake.intake import Intake, IntakeOptions
from placer.intake.limit_news import LimitView
from placer.live.wiring import LivePage, live_page
from placer.local.explain import LocalExplainer, LocalPods
from placer.local.frontend import LocalFrontEnd
from placer.local.runner import LocalSettings, load_nodes
from placer.metrics.decisions import PromisedGpus, PromisedNamespaces
from placer.metrics.reports import UnhealthyGpus
from placer.publisher import Publisher
from placer.readiness import lacking
from placer.settings import Settings
from placer.stores.learned import LearnedStore, LearnedWriter
from placer.stores.list_writer import ListWriter
from placer.stores.scores import ScoreList
from plimsoll.bus.client import BusClient
from plimsoll.events import Report
from plimsoll.ids import PodUid
from plimsoll.native import HOOK_LIBRARY
from plimsoll.native.preload import preloadable
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX

PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""Variables that processes of local pods inherit. The others are the placer's own; its URLs may hold credentials."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The placer's parts.

    Attributes:
        local: the front end for local nodes; None without such nodes.
        cluster: the front end for Kubernetes; None without a cluster.
    """

    settings: Settings
    client: Client
    decider: Decider
    intake: Intake
    list_writer: ListWriter
    learned_writer: LearnedWriter
    publisher: Publisher
    limits: LimitView
    page: LivePage
    local: LocalFrontEnd | None
    cluster: ClusterLink | None


async def assemble(
    settings: Settings,
    environment: Mapping[str, str],
    decider: Decider,
    scores: ScoreList,
    store: LearnedStore,
) -> Parts:
    """Make every part.

    Raises:
        InputError: a setting cannot work.
    """
    cluster = ClusterLink() if _schedules_kubernetes(settings, environment) else None
    _check_has_nodes(settings, cluster)
    leads = cluster.leads if cluster else None
    client = BusClient()
    options = IntakeOptions(f"placer-{settings.instance}", stream=settings.stream)
    intake = Intake(client, decider.reports, decider.metrics.reports, options)
    publisher = Publisher(client.jetstream(), decider.metrics.servers, stream=settings.stream)
    local = await _local(settings, environment, decider, publisher)
    if cluster is not None and local is None:
        decider.pool.absent = ABSENT
    parts = Parts(
        settings=settings,
        client=client,
        decider=decider,
        intake=intake,
        list_writer=ListWriter(scores, decider, leads=leads),
        learned_writer=LearnedWriter(store, decider.learned, decider.wall_s, leads),
        publisher=publisher,
        limits=LimitView(client),
        page=await _page(client, decider, intake, local, cluster),
        local=local,
        cluster=cluster,
    )
    _pass_events_on(parts)
    _fill_metrics(parts)
    return parts


def api_of(parts: Parts) -> Api:
    """The HTTP API over these parts."""
    local, cluster = parts.local, parts.cluster
    rows = NodeRows(parts.decider)
    explainer = LocalExplainer(local, parts.decider, parts.limits.of) if local is not None else None
    return Api(
        rows=rows,
        state=StateReader(rows, parts.decider.ledger, lambda: local.pods.rows() if local else ()),
        explainers=lambda: explainers(explainer, cluster),
        missing=lambda: lacking(parts.client, parts.intake, cluster),
        registry=parts.decider.metrics.registry,
        local=local,
        page=parts.page,
        previews=lambda: previews(cluster),
        leader=cluster.leader if cluster is not None else lambda: None,
    )


async def _page(
    client: Client, decider: Decider, intake: Intake, local: LocalFrontEnd | None, cluster: ClusterLink | None
) -> LivePage:
    local_pods = LocalPods(local) if local is not None else None
    return await live_page(
        client,
        decider,
        sources=lambda: pod_sources(local_pods, cluster),
        missing=lambda: [*lacking(client, intake, cluster), *(cluster.paused() if cluster else ())],
        leads=lambda: cluster is None or cluster.leads.is_set(),
    )


def _pass_events_on(parts: Parts) -> None:
    """Pass each report to the decider and the live page, and this placer's own events to the page."""

    def on_report(report: Report) -> None:
        parts.decider.learn_event(report)
        parts.page.news.note_report(report)

    parts.intake.on_event = on_report
    parts.publisher.on_event = parts.page.news.note_own


def _fill_metrics(parts: Parts) -> None:
    """Have a scrape read the metrics that no part sets."""
    metrics = parts.decider.metrics
    metrics.registry.register(PromisedGpus(parts.decider.ledger))
    metrics.registry.register(PromisedNamespaces(parts.decider.ledger, partial(_namespace_of, parts.page)))
    metrics.registry.register(UnhealthyGpus(parts.decider.reports.states))
    metrics.servers.nats_up.set_function(lambda: parts.client.is_connected)
    metrics.servers.redis_up.set_function(lambda: not parts.list_writer.is_away)


def _namespace_of(page: LivePage, pod: PodUid) -> str | None:
    name = page.name_of(pod)
    return name.namespace if name is not None else None


def _check_has_nodes(settings: Settings, cluster: ClusterLink | None) -> None:
    """Refuse a placer that could place nothing: it has neither a cluster nor local nodes."""
    if cluster is None and not settings.local_nodes:
        remedy = (
            f"run it in a pod with a service account, set {PREFIX}KUBECONFIG, or give {PREFIX}LOCAL_NODES for nodes "
            "without Kubernetes"
        )
        raise InputError(
            PREFIX + "KUBECONFIG", settings.kubeconfig, "leaves no nodes to place pods on", remedy
        )


def _schedules_kubernetes(settings: Settings, environment: Mapping[str, str]) -> bool:
    is_inside = "KUBERNETES_SERVICE_HOST" in environment
    return bool(settings.kubeconfig) or (is_inside and not settings.places_locally)


async def _local(
    settings: Settings, environment: Mapping[str, str], decider: Decider, publisher: Publisher
) -> LocalFrontEnd | None:
    if not settings.local_nodes:
        return None
    nodes = await asyncio.to_thread(load_nodes, Path(settings.local_nodes))
    passed_on = {name: environment[name] for name in PASSED_ON if name in environment}
    processes = LocalSettings(
        hook_library=await preloadable(HOOK_LIBRARY.name, HOOK_LIBRARY, passed_on),
        environment=passed_on,
    )
    return LocalFrontEnd(nodes, decider, processes, policy=settings.policy, publisher=publisher)
