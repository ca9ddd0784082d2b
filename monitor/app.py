"""Wires the monitor's parts and owns their lives: all end together, whichever ends first."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

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
from monitor.publisher import Publisher, PublisherListeners, StreamTarget
from monitor.sampler import Sampler
from monitor.settings import Settings
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import Subscribe
from plimsoll.events import Gpu
from plimsoll.ids import NodeName
from plimsoll.nvml.xid_listener import XidListener
from plimsoll.part.ending import noticed, tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.processes import boot_id
from plimsoll.part.settings import PREFIX, shown_url
from plimsoll.part.web import serving_tcp

log = get_logger()


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
    # The store comes first: it keeps a second monitor from taking an epoch.
    store = await open_store(directory, settings.stream_max_age_s)
    try:
        booted = await asyncio.to_thread(boot_id)
        identity = Identity(booted, await asyncio.to_thread(next_epoch, directory))
        await _run_parts(settings, identity, store, stop)
    finally:
        await store.close()
    log.info("stopped", waiting=store.waiting_count)


class _Parts:
    """The monitor's parts, each with the functions by which it calls the others.

    The methods name parts that do not exist yet when the functions are handed out.
    """

    def __init__(self, settings: Settings, identity: Identity, store: Store) -> None:
        node, root = NodeName(settings.node), Path(settings.broker_root)
        target = StreamTarget(settings.nats_url, node, settings.stream, settings.nats_access)
        self.metrics = NodeMetrics(node, self._sources(store))
        self.advertiser = Advertiser(settings, self._labels_read)
        self.publisher = Publisher(target, store, self._publisher_listeners())
        self.acknowledger = Acknowledger(root)
        self.sampler = Sampler(self._sample_came, self.metrics.driver_called)
        self.observer = Observer(settings, identity, store, self.sampler, self._listeners())
        self.glances = Glances(self.sampler, self.observer.wake)
        self.measurer = Measurer(root, self.observer.set_broker_presence)
        self.messages = subscribed(root, Subscribe(memory=True))
        self.xids = XidListener(self.observer.xid_seen)

    def _sources(self, store: Store) -> Sources:
        return Sources(
            waiting=lambda: (
                store.waiting_count,
                store.waiting_bytes,
                store.dropped_count + self.publisher.dropped_count,
                store.failures_count,
            ),
            nats_answers=lambda: self.publisher.is_reachable,
            broker_answers=lambda: self.observer.has_broker,
            busy_s=lambda: self.observer.busy_s,
            ecc_errors=lambda: self.observer.ecc_errors,
        )

    def _publisher_listeners(self) -> PublisherListeners:
        return PublisherListeners(
            own_epoch=lambda: self.observer.epoch,
            known_epoch=self._pass_epoch,
            foreign=self._foreign_reported,
        )

    def _listeners(self) -> Listeners:
        return Listeners(
            events_stored=self.publisher.wake,
            announcements_stored=self.acknowledger.acknowledge,
            round_stored=self._round_stored,
            gpus_measured=self._gpus_measured,
            foreign_report=self.metrics.foreign_report,
            limit_event=self.metrics.limit_event,
            driver_answered=self.metrics.driver_answered,
            conditions_stored=self._conditions_stored,
            xid_seen=self.metrics.xid_seen,
        )

    def _labels_read(self, labels: Mapping[str, str]) -> None:
        self.observer.set_labels(labels)

    def _sample_came(self) -> None:
        self.observer.wake()

    async def _pass_epoch(self, known: int) -> None:
        await self.observer.pass_epoch(known)

    def _foreign_reported(self, report: ForeignReport) -> None:
        self.observer.foreign_reported(report)

    def _round_stored(self, gpus: tuple[Gpu, ...], facts: tuple[Fact, ...]) -> None:
        self.metrics.round_stored(gpus, facts)
        self.advertiser.set_gpus(gpus)

    def _gpus_measured(self, gpus: tuple[Gpu, ...], began_ns: int) -> None:
        self.measurer.send(gpus, began_ns)

    def _conditions_stored(self, found: Conditions, changes: ConditionChanges) -> None:
        self.metrics.conditions_stored(found, changes)
        self.measurer.set_unhealthy(found.unhealthy)


async def _run_parts(settings: Settings, identity: Identity, store: Store, stop: asyncio.Event) -> None:
    parts = _Parts(settings, identity, store)
    async with contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(parts.messages.aclose)
        ends.push_async_callback(parts.sampler.close)
        await ends.enter_async_context(_metrics_server(settings, parts.metrics))
        group = await ends.enter_async_context(tasks_until(stop))
        _start(group, "observer", parts.observer.run)
        _start(group, "messages of the broker", lambda: parts.observer.listen(parts.messages))
        _start(group, "acknowledger", parts.acknowledger.run)
        _start(group, "glances", parts.glances.run)
        _start(group, "XID errors", parts.xids.run)
        _start(group, "measurer", parts.measurer.run)
        _start(group, "publisher", parts.publisher.run)
        if settings.kubeconfig:
            _start(group, "advertiser", parts.advertiser.run)
        log.info("monitoring", **_shown(settings, identity))


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
    if settings.http_port is None:
        yield
        return
    host, variable = settings.http_address, PREFIX + "HTTP_PORT"
    async with serving_tcp(routes(metrics), host, settings.http_port, variable) as port:
        log.info("metrics", host=host, port=port)
        yield
