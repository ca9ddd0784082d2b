"""Runs the front end for Kubernetes, with its Lease, its events and the extender.

The placer imports this file only where it has a cluster: the import takes a tenth of a second.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

from placer.api.access import Access
from placer.cluster_link import ClusterLink
from placer.core.policies import policy_named
from placer.extender.http import serve_extender
from placer.intake.violation_events import read_violations
from placer.kube.evictions import EvictionRules, OnViolation
from placer.kube.frontend import KubeFrontEnd
from placer.kube.options import DRIFT_S, KubeOptions
from placer.kube.parts import KubeContext, KubeParts
from placer.kube.reviews import Reviews
from placer.metrics.kube import LeaseMetrics
from placer.parts import Parts
from placer.relocation.memory import RelocationMemory
from placer.relocation.rules import RelocationMode, RelocationRules
from placer.resize.tickets import StreamConfirmations
from placer.settings import Settings
from placer.stores.rooms import room_store
from plimsoll.contract import PLACER_LEASE
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.kubeconfig import IN_CLUSTER, own_namespace
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll.kube.transport import Transport
from plimsoll.part.ending import start_endless
from plimsoll.part.settings import PREFIX


async def run_kube(parts: Parts, cluster: ClusterLink) -> None:
    """Place the cluster's pods while this placer holds the Lease, until cancelled; then release the Lease."""
    settings = parts.settings
    kubeconfig = kubeconfig_path(settings.kubeconfig or IN_CLUSTER)
    namespace = settings.lease_namespace or await asyncio.to_thread(own_namespace)
    async with connect(kubeconfig) as transport, room_store(settings.redis_url) as rooms:
        lease = _lease(settings, transport, namespace, parts.decider.metrics.lease)
        lease.address = cluster.address
        kube = _kube_parts(parts, transport, lease, cluster.leads, rooms)
        cluster.lease, cluster.parts = lease, kube
        front_end = KubeFrontEnd(kube, parts.intake.ready, parts.learned_writer.restore)
        try:
            async with asyncio.TaskGroup() as tasks:
                start_endless(tasks, "lease", _run_for_lead(lease, kube.synced, parts.intake.ready))
                start_endless(tasks, "scheduler", front_end.run())
                read = read_violations(parts.client, kube.controllers.evictions.suspect, kube.context.leads)
                start_endless(tasks, "violations", read)
                if settings.extender_port is not None:
                    extender = serve_extender(settings, settings.extender_port, kube.extender)
                    start_endless(tasks, "extender", extender)
        finally:
            # No write of this placer is under way any more.
            await lease.release()


@contextlib.asynccontextmanager
async def cluster_access(kubeconfig: str) -> AsyncIterator[Access]:
    """The access of the cluster's users, over connections of its own: readers must not delay the Lease."""
    async with connect(kubeconfig_path(kubeconfig or IN_CLUSTER)) as transport:
        yield Reviews(transport, time.monotonic)


def _lease(settings: Settings, transport: Transport, namespace: str, metrics: LeaseMetrics) -> Lease:
    lease = Lease(
        transport,
        namespace,
        PLACER_LEASE,
        f"{settings.instance}-{secrets.token_hex(8)}",
        LeaseTiming(settings.lease_s),
        on_failure=metrics.failures.inc,
    )
    metrics.leader.set_function(lease.is_held)
    metrics.transitions.set_function(lambda: lease.transitions)
    return lease


def _kube_parts(
    parts: Parts, transport: Transport, lease: Lease, leads: asyncio.Event, rooms: RelocationMemory
) -> KubeParts:
    kube = KubeParts(
        KubeContext(
            transport,
            parts.decider,
            parts.publisher,
            _options(parts.settings, lease.namespace),
            lease=lease,
            leads=leads,
            relocation_memory=rooms,
        )
    )
    kube.doors.explainer.news_of = parts.limits.of
    kube.doors.tickets.confirmations = StreamConfirmations(parts.client.jetstream())
    return kube


def _options(settings: Settings, namespace: str) -> KubeOptions:
    return KubeOptions(
        policy_named(settings.policy, PREFIX + "POLICY"),
        settings.instance,
        drift_s=DRIFT_S,
        pool_namespace=settings.pool_namespace,
        evictions=EvictionRules(OnViolation(settings.on_violation), settings.violation_grace_s),
        relocation=RelocationRules(
            RelocationMode(settings.relocation),
            settings.relocation_after_s,
            per_hour=settings.relocation_per_hour,
            spare_gpus=settings.relocation_spare_gpus,
        ),
        namespace=namespace,
        places_unheld=settings.unheld_pods == "place",
    )


async def _run_for_lead(lease: Lease, synced: asyncio.Event, loaded: asyncio.Event) -> None:
    """Take part in the election once all that decisions read was read: a placer that cannot decide must not lead."""
    await synced.wait()
    await loaded.wait()
    await lease.run()
