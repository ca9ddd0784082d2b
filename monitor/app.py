"""Wires the monitor's parts and owns their lives: all end together, whichever ends first."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import structlog

from monitor.advertise import Advertiser
from monitor.broker import Acknowledger, Measurer
from monitor.core.conditions import ConditionChanges, Conditions
from monitor.core.lifecycle import Fact
from monitor.core.reports import Identity
from monitor.epoch import next_epoch
from monitor.foreign import ForeignReport
from monitor.glances import Glances
from monitor.listeners import Listeners
from monitor.metrics import NodeMetrics, Sources, routes
from monitor.observer import Observer
from monitor.outbox.store import Store, open_store
from monitor.publisher import Hearers, Publisher, Target
from monitor.sampler import Sampler
from monitor.settings import Settings
from monitor.xids import XidListener
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import Subscribe
from plimsoll.bus.stream import Stream
from plimsoll.events import Gpu
from plimsoll.ids import NodeName
from plimsoll.part.ending import noticed, tasks_until
from plimsoll.part.processes import boot_id
from plimsoll.part.settings import PREFIX, shown_url
from plimsoll.part.web import serving_tcp

log = structlog.get_logger("monitor.app")


class _EndedError(Exception):
    """A task that was meant to live for ever ended."""


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Monitor this node until `stop` is set.

    Events that are not published by then stay on disk, and are published after the next start. Cancelling ends the
    monitor as a crash would, and loses as little.

    Raises:
        InputError: a setting cannot be used: the state directory, the metrics port, an address, a kubeconfig. Raised
            within a group if a running task found it out.
    """
    directory = Path(settings.state_dir)
    store = await open_store(
        directory, settings.outbox_age_s
    )  # first: it keeps a second monitor from taking an epoch
    try:
        booted = await asyncio.to_thread(boot_id)
        identity = Identity(booted, await asyncio.to_thread(next_epoch, directory))
        await _run_parts(settings, identity, store, stop)
    finally:
        await store.close()
    log.info("stopped", waiting=store.waiting_count)


@contextlib.asynccontextmanager
async def _closing(sampler: Sampler) -> AsyncIterator[Sampler]:
    try:
        yield sampler
    finally:
        await sampler.close()


async def _run_parts(settings: Settings, identity: Identity, store: Store, stop: asyncio.Event) -> None:
    node, root = NodeName(settings.node), Path(settings.broker_root)
    metrics = NodeMetrics(
        node,
        Sources(
            waiting=lambda: (
                store.waiting_count,
                store.waiting_bytes,
                store.dropped_count,
                store.failures_count,
            ),
            nats_answers=lambda: publisher.is_reachable,
            broker_answers=lambda: observer.has_broker,
            busy_s=lambda: observer.busy_s,
            ecc_errors=lambda: observer.ecc_errors,
        ),
    )

    def labels_read(labels: Mapping[str, str]) -> None:
        observer.set_labels(labels)

    advertiser = Advertiser(settings, labels_read)

    def round_stored(gpus: tuple[Gpu, ...], facts: tuple[Fact, ...]) -> None:
        metrics.round_stored(gpus, facts)
        advertiser.set_gpus(gpus)

    def gpus_measured(gpus: tuple[Gpu, ...], began_ns: int) -> None:
        measurer.send(gpus, began_ns)

    def conditions_stored(found: Conditions, changes: ConditionChanges) -> None:
        metrics.conditions_stored(found, changes)
        measurer.set_unhealthy(found.unhealthy)

    async def pass_epoch(known: int) -> None:
        await observer.pass_epoch(known)

    def foreign_reported(report: ForeignReport) -> None:
        observer.foreign_reported(report)

    def sample_came() -> None:
        observer.wake()

    stream = Stream(settings.stream_max_bytes, settings.stream_max_age_s, settings.stream_replicas)
    hearers = Hearers(lambda: observer.epoch, pass_epoch, foreign_reported)
    publisher = Publisher(Target(settings.nats_url, node, stream, settings.nats_access), store, hearers)
    acknowledger = Acknowledger(root)
    listeners = Listeners(
        publisher.wake,
        acknowledger.acknowledge,
        round_stored,
        gpus_measured,
        metrics.foreign_report,
        metrics.limit_event,
        metrics.driver_answered,
        conditions_stored,
        metrics.xid_seen,
    )
    sampler = Sampler(sample_came, metrics.driver_called)
    observer = Observer(settings, identity, store, sampler, listeners)
    glances = Glances(sampler, settings.glance_s, settings.tolerance_bytes, sample_came)
    measurer = Measurer(root, settings.broker_away_s, observer.set_broker_presence)
    messages = subscribed(root, Subscribe(memory=True))
    xids = XidListener(observer.xid_seen)
    try:
        async with _closing(sampler), _metrics_server(settings, metrics), tasks_until(stop) as group:
            _start(group, "observer", observer.run)
            _start(group, "messages of the broker", lambda: observer.listen(messages))
            _start(group, "acknowledger", acknowledger.run)
            _start(group, "glances", glances.run)
            _start(group, "XID errors", xids.run)
            _start(group, "measurer", measurer.run)
            _start(group, "publisher", publisher.run)
            if settings.kubeconfig:
                _start(group, "advertiser", advertiser.run)
            log.info("monitoring", **_shown(settings, identity))
    finally:
        await messages.aclose()


def _shown(settings: Settings, identity: Identity) -> dict[str, Any]:
    """The settings as the log may show them: without passwords."""
    shown = dataclasses.replace(settings, nats_url=shown_url(settings.nats_url))
    return {**dataclasses.asdict(shown), "epoch": identity.epoch}


def _start(group: asyncio.TaskGroup, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    group.create_task(_eternal(name, work), name=name)


async def _eternal(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await noticed(name, work)
    raise _EndedError(f"{name} ended, and is meant to live as long as the monitor")


@contextlib.asynccontextmanager
async def _metrics_server(settings: Settings, metrics: NodeMetrics) -> AsyncIterator[None]:
    if settings.metrics_port is None:
        yield
        return
    host, variable = settings.metrics_address, PREFIX + "METRICS_PORT"
    async with serving_tcp(routes(metrics), host, settings.metrics_port, variable) as port:
        log.info("metrics", host=host, port=port)
        yield
