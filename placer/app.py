"""Runs the placer's parts and owns their lifecycles: when one part ends, all end.

HTTP is served from the first moment, so that people can read the state while NATS or Redis is still away. Pods are
placed once every node's last report was read. Where a cluster has several placers, only the holder of the Lease
places pods. The others keep their view up to date, and write and answer nothing.
"""

import asyncio
import contextlib
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import nats.errors
from nats.aio.client import Client

from placer.api.access import Access, TokenFile
from placer.api.http import Api, open_socket, serving_port, serving_socket
from placer.cluster_link import ClusterLink
from placer.core.ledger import Ledger
from placer.core.policies import load_policies, policy_named
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.parts import Parts, api_of, assemble
from placer.settings import Settings
from placer.stores.learned import LearnedStore
from placer.stores.scores import ScoreList
from plimsoll.bus.client import connect
from plimsoll.part.ending import heed_cancellation, start_endless, tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX

CLOSE_S: Final = 5.0
"""How long closing a connection may keep the placer from ending."""

COLLECT_AFTER: Final = (50_000, 20, 20)
"""The thresholds of Python's garbage collector. With its own, (700, 10, 10), it walks the objects of a whole cluster
several times a second while pods are placed, and each time stops the event loop for some 50 ms at 1000 nodes."""

log = get_logger()


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
    scores = ScoreList(settings.redis_url, rooms_of=rooms_of)
    store = LearnedStore(settings.redis_url)
    try:
        parts = await assemble(settings, environment, decider, scores, store)
        async with tasks_until(stop) as tasks:
            tasks.create_task(_serve(parts), name="serve")
            await stop.wait()
            if parts.cluster is not None:
                await parts.cluster.finish()
        log.info("placer stopped")
    finally:
        await scores.close()
        await store.close()


async def _serve(parts: Parts) -> None:
    settings = parts.settings
    options = await asyncio.to_thread(settings.nats_access.options)
    async with contextlib.AsyncExitStack() as stack:
        address = await _serve_http(settings, api_of(parts), stack)
        if parts.cluster is not None:
            parts.cluster.address = address
        stack.push_async_callback(_close, parts.client)
        name = f"plimsoll-placer-{settings.instance}"
        # The live page learns of this placer's own events directly, so the server need not send them back.
        await connect(parts.client, settings.nats_url, name, {**options, "no_echo": True})
        heed_cancellation()
        await _run_parts(parts)


async def _run_parts(parts: Parts) -> None:
    async with asyncio.TaskGroup() as tasks:
        start_endless(tasks, "intake", parts.intake.run())
        start_endless(tasks, "publisher", parts.publisher.run())
        if parts.cluster is not None:
            start_endless(tasks, "kube front end", _run_kube(parts, parts.cluster))
        start_endless(tasks, "limit events", parts.limits.run())
        start_endless(tasks, "news", parts.page.news.run())
        await parts.intake.ready.wait()
        start_endless(tasks, "list writer", parts.list_writer.run())
        start_endless(tasks, "learning", parts.learned_writer.run())
        if parts.local is not None:
            await parts.learned_writer.restore()
            heed_cancellation()
            start_endless(tasks, "local front end", parts.local.run())
        log.info("placer ready", nodes=len(parts.decider.reports))


async def _serve_http(settings: Settings, api: Api, stack: contextlib.AsyncExitStack) -> str:
    """Serve; gives the URL at which other placers reach the port, empty where they cannot."""
    address = ""
    if settings.http_port is not None:
        access = await _access(settings, stack)
        serving_there = serving_port(api, settings.http_address, settings.http_port, access)
        port = await stack.enter_async_context(serving_there)
        log.info("http ready", address=settings.http_address, port=port)
        address = _url(settings.http_host or settings.http_address, port)
    if settings.control_socket:
        listener = await asyncio.to_thread(open_socket, Path(settings.control_socket))
        await stack.enter_async_context(serving_socket(api, listener))
        log.info("control socket ready", path=settings.control_socket)
    return address


def _url(host: str, port: int) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every address of this machine, and so none for others
        return ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _access(settings: Settings, stack: contextlib.AsyncExitStack) -> Access | None:
    if settings.http_auth == "token":
        return TokenFile(Path(settings.http_token_file))
    if settings.http_auth == "none":
        return None
    from placer.kube.app import cluster_access  # noqa: PLC0415 - as in `_run_kube`

    return await stack.enter_async_context(cluster_access(settings.kubeconfig))


async def _run_kube(parts: Parts, cluster: ClusterLink) -> None:
    # The import takes a tenth of a second, and a placer without a cluster does without it.
    from placer.kube.app import run_kube  # noqa: PLC0415 - see above

    await run_kube(parts, cluster)


async def _close(client: Client) -> None:
    """Close a connection in whatever state; messages that were not acknowledged are delivered again."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
    except (nats.errors.Error, OSError, TimeoutError) as error:
        log.info("nats was not closed in good order", error=f"{type(error).__name__}: {error}")
