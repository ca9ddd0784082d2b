"""Wires the monitor's parts and owns their lives: all end together, whichever ends first."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from monitor.advertise import Advertiser
from monitor.broker import Acknowledger, Measurer
from monitor.core.reports import Identity
from monitor.epoch import next_epoch
from monitor.metrics import NodeMetrics, routes
from monitor.observer import Observer, Parts
from monitor.outbox.store import Store, open_store
from monitor.publisher import Publisher, PublisherListeners, StreamTarget
from monitor.sampler import MemoryPoll, Sampler
from monitor.settings import Settings
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import Subscribe
from plimsoll.ids import NodeName
from plimsoll.nvml.xids import XidListener
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


async def _run_parts(settings: Settings, identity: Identity, store: Store, stop: asyncio.Event) -> None:
    node, root, wakened = NodeName(settings.node), Path(settings.broker_root), asyncio.Event()
    publisher = Publisher(StreamTarget(settings.nats_url, node, settings.stream, settings.nats_access), store)
    measurer = Measurer(root, wakened.set)
    metrics = NodeMetrics(node, store, publisher, measurer)
    sampler = Sampler(wakened.set, metrics.driver_called)
    parts = Parts(
        wakened=wakened,
        sampler=sampler,
        store=store,
        publisher=publisher,
        acknowledger=Acknowledger(root),
        measurer=measurer,
        advertiser=Advertiser(settings, wakened.set),
        metrics=metrics,
    )
    observer = Observer(settings, identity, parts)
    listeners = PublisherListeners(lambda: observer.epoch, observer.pass_epoch, observer.foreign_reported)
    messages = subscribed(root, Subscribe(memory=True))
    async with contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(messages.aclose)
        ends.push_async_callback(sampler.close)
        await ends.enter_async_context(_metrics_server(settings, metrics))
        group = await ends.enter_async_context(tasks_until(stop))
        _start(group, "observer", observer.run)
        _start(group, "messages of the broker", lambda: observer.listen(messages))
        _start(group, "acknowledger", parts.acknowledger.run)
        poll = MemoryPoll(sampler, wakened.set)
        _start(group, "poll of memory", poll.run)
        _start(group, "XID errors", XidListener(observer.xid_seen).run)
        _start(group, "measurer", measurer.run)
        _start(group, "publisher", lambda: publisher.run(listeners))
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
